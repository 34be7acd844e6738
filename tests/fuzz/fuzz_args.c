/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * libFuzzer target: calls made of arbitrary bytes (fuzz_call.h), some valid, some broken. Whatever comes,
 *   - the twins and the call return a status of the list and touch nothing outside their blocks;
 *   - a refused call writes nothing and leaves a text;
 *   - an accepted one leaves its inputs alone, and every row of the table that supports it agrees with the oracle.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/impls.h"
#include "core/params.h"
#include "fuzz_call.h"
#include "fuzz_compare.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

/* What the inputs became: a fuzzer whose calls are all refused tests little. */
static long long num_compared, num_accepted, num_refused, num_twins_only;

static void print_counts(void)
{
    fprintf(stderr, "fuzz: %lld calls compared with the oracle on every row, %lld more accepted, %lld refused, "
            "%lld twins alone\n", num_compared, num_accepted, num_refused, num_twins_only);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    atexit(print_counts);
    return 0;
}

/* A request for an absurd workspace must come back as NULL, as without the sanitizer. */
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static int32_t check_status(int32_t status)
{
    require(strcmp(qattn_status_name(status), "QATTN_ERR_UNKNOWN") != 0, "status %d is not in the list", (int)status);
    require(status != QATTN_ERR_INTERNAL, "internal error");
    if (status != QATTN_OK) {
        char text[512];
        require(qattn_last_error(text, sizeof text) == status && text[0], "no text for %s", qattn_status_name(status));
    }
    return status;
}

#define CALL(c, suffix, params, ...) \
    ((c)->op == OP_MATMUL ? qattn_matmul##suffix(&(c)->a, &(c)->b, &(c)->c, params, __VA_ARGS__) : \
     (c)->op == OP_MATMUL_NT ? qattn_matmul_nt##suffix(&(c)->a, &(c)->b, &(c)->c, params, __VA_ARGS__) : \
     (c)->op == OP_SOFTMAX && (c)->causal_twin ? \
         qattn_softmax_causal##suffix(&(c)->a, &(c)->b, params, __VA_ARGS__) : \
     (c)->op == OP_SOFTMAX ? qattn_softmax##suffix(&(c)->a, &(c)->b, params, __VA_ARGS__) : \
     (c)->op == OP_GQA_FORWARD ? \
         qattn_gqa_forward##suffix(&(c)->a, &(c)->b, &(c)->c, &(c)->d, params, __VA_ARGS__) : \
     (c)->op == OP_FLASH_FORWARD ? \
         qattn_flash_forward##suffix(&(c)->a, &(c)->b, &(c)->c, &(c)->d, params, __VA_ARGS__) : \
     qattn_merge##suffix((c)->num_parts, (c)->o_parts, (c)->lse_parts, &(c)->c, &(c)->d, params, __VA_ARGS__))

static int32_t call_twins(struct call *c, const void *params, size_t cap, size_t *bytes)
{
    char *text = malloc(cap ? cap : 1);
    require(text != NULL, "out of memory");
    *bytes = 12345;
    const int32_t status = check_status(CALL(c, _workspace, params, bytes));
    require(status == QATTN_OK || *bytes == 12345, "a refused *_workspace wrote bytes");
    const int32_t explained = check_status(CALL(c, _explain, params, text, cap));
    require(cap == 0 || memchr(text, 0, cap), "*_explain leaves its text without an end");
    free(text);
    require((status == QATTN_OK) == (explained == QATTN_OK), "*_workspace says %s, *_explain %s",
            qattn_status_name(status), qattn_status_name(explained));
    return status;
}

/* The params in a heap block of exactly struct_size bytes, surplus zero or (rarely) not. */
static void *copy_params(const struct call *c, struct bytes *in, size_t *given)
{
    memcpy(given, &c->params, sizeof *given);
    const size_t bytes = *given >= 8 && *given <= 8192 ? *given : 8;
    unsigned char *copy = calloc(1, bytes);
    require(copy != NULL, "out of memory");
    memcpy(copy, &c->params, bytes < c->params_size ? bytes : c->params_size);
    if (bytes > c->params_size && take_chance(in, 4))
        copy[c->params_size + take_u8(in) % (bytes - c->params_size)] = 1;
    return copy;
}

/* Gives the call a workspace: none, what was asked for, one byte less, or a misaligned one. Returns its block. */
static void *give_workspace(void *params, size_t given, int64_t how, size_t bytes)
{
    void *block = NULL;
    if (how == 0 || given < 32 || bytes == 0 || bytes > 1 << 26)
        return NULL;
    const size_t size = how == 2 ? bytes - 1 : bytes;
    require(posix_memalign(&block, 256, size + (how == 3 ? 8 : 0)) == 0, "out of memory");
    memset(block, 0xA5, size);
    char *const start = (char *)block + (how == 3 ? 8 : 0);
    memcpy((char *)params + offsetof(qattn_attn_params, workspace), &start, sizeof start);
    memcpy((char *)params + offsetof(qattn_attn_params, workspace_bytes), &size, sizeof size);
    return block;
}

static void check_untouched(const struct call *c, bool outputs, const char *what)
{
    for (int i = 0; i < c->num_blocks; i++)
        require((c->blocks[i].output && !outputs) ||
                memcmp(c->blocks[i].mem, c->blocks[i].before, c->blocks[i].bytes) == 0,
                "%s wrote to block %d (%s)", what, i, c->blocks[i].output ? "output" : "input");
}

static int32_t make_problem(struct problem *p, const struct call *c, const void *params)
{
    switch (c->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT: return qattn__problem_matmul(p, c->op, &c->a, &c->b, &c->c, params, false);
    case OP_SOFTMAX:   return qattn__problem_softmax(p, &c->a, &c->b, params, c->causal_twin, false);
    case OP_MERGE:
        return qattn__problem_merge(p, c->num_parts, c->o_parts, c->lse_parts, &c->c, &c->d, params, false);
    default:           return qattn__problem_attention(p, c->op, &c->a, &c->b, &c->c, &c->d, params, false);
    }
}

/* Every row of the table, each in a workspace of exactly what it asks for. */
static void compare_rows(struct call *c, struct problem *p)
{
    char why[256];
    for (int i = 0; i < qattn__impl_count; i++) {
        const struct impl *row = &qattn__impls[i];
        void *workspace = NULL;
        if (row->device_type != QATTN_DEVICE_CPU || !row->supports(p, why, sizeof why))
            continue;
        p->workspace_bytes = row->workspace(p);
        if (p->workspace_bytes) {
            require(posix_memalign(&workspace, 256, p->workspace_bytes) == 0, "out of memory");
            memset(workspace, 0xFF, p->workspace_bytes);
        }
        p->workspace = workspace;
        require(row->run(p, NULL) == QATTN_OK, "%s refuses what it supports", row->id);
        compare_outputs(c, p, row->id);
        free(workspace);
    }
}

static void call_operation(struct call *c, const void *params, int32_t twins)
{
    static struct problem p;
    const int32_t status = check_status(CALL(c, , params, NULL));
    if (status != QATTN_OK) {
        num_refused++;
        check_untouched(c, true, "a refused call");
        return;
    }
    require(twins == QATTN_OK, "the call runs, but *_workspace says %s", qattn_status_name(twins));
    if (!c->comparable) {
        num_accepted++;
        return;
    }
    num_compared++;
    check_untouched(c, false, "the call");
    require(make_problem(&p, c, params) == QATTN_OK, "the same arguments make no problem");
    compare_outputs(c, &p, "the call");
    compare_rows(c, &p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct call c;
    struct bytes in = { data, size };
    size_t given, bytes;
    const int64_t workspace = take_below(&in, 8), cap = take_u8(&in) * 8;
    call_make(&c, &in);
    call_mutate(&c, &in);
    for (int i = 0; i < c.num_blocks; i++)
        memcpy(c.blocks[i].before, c.blocks[i].mem, c.blocks[i].bytes);
    void *params = copy_params(&c, &in, &given);
    const int32_t status = call_twins(&c, params, (size_t)cap, &bytes);
    check_untouched(&c, true, "a twin");
    if (call_is_contained(&c)) {
        void *block = give_workspace(params, given, status == QATTN_OK ? workspace : 0, bytes);
        call_operation(&c, params, status);
        free(block);
    } else {
        num_twins_only++;
    }
    free(params);
    call_free(&c);
    return 0;
}
