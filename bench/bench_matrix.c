/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "bench_matrix.h"

#include <stdio.h>
#include <string.h>

#include "bench_data.h"
#include "core/impls.h"

/* A line of the matrix: "<op> <words>" is asked of each row for each op; the cell lists the ops that run. */
struct matrix_line { const char *label, *ops[2], *words; };

#define BOTH { "flash", "gqa" }
static const struct matrix_line type_lines[] = {
    { "q, k, v f32", BOTH, "f32 sq9 sk9" },
    { "q, k, v f32, `precision` 3xTF32 or TF32", BOTH, "f32 3xtf32 sq9 sk9" },
    { "q, k, v f16", BOTH, "f16 sq9 sk9" },
    { "q, k, v bf16", BOTH, "bf16 sq9 sk9" },
    { "q, k, v bf16; o f32", BOTH, "bf16 out=f32 sq9 sk9" },
    { "q f16; k, v E4M3FN", BOTH, "f16 kv=e4m3fn sq9 sk9" },
    { "q f16; k, v E5M2", BOTH, "f16 kv=e5m2 sq9 sk9" },
    { "q f16; k, v I8", BOTH, "f16 kv=i8 sq9 sk9" },
    { "q bf16; k, v E4M3FN", BOTH, "bf16 kv=e4m3fn sq9 sk9" },
    { "q bf16; k, v E5M2", BOTH, "bf16 kv=e5m2 sq9 sk9" },
    { "q bf16; k, v I8", BOTH, "bf16 kv=i8 sq9 sk9" },
    { "q, k, v E4M3FN; o bf16", BOTH, "e4m3fn out=bf16 sq9 sk9" },
    { "q, k, v E5M2; o bf16", BOTH, "e5m2 out=bf16 sq9 sk9" },
    { "q, k, v I8; o bf16", BOTH, "i8 out=bf16 sq9 sk9" },
};

static const struct matrix_line feature_lines[] = {
    { "grouped queries (GQA, MQA)", BOTH, "bf16 hq6 hkv2 sq9 sk9" },
    { "D, Dv up to 1024, different", BOTH, "bf16 d1024 dv40 sq9 sk9" },
    { "causal, bottom right", BOTH, "bf16 causal sq9 sk12" },
    { "causal, top left", BOTH, "bf16 causal top_left sq9 sk12" },
    { "sliding window", BOTH, "bf16 left=3 right=0 sq9 sk9" },
    { "softcap", BOTH, "bf16 softcap=30 sq9 sk9" },
    { "bias", BOTH, "bf16 bias sq9 sk9" },
    { "keep mask", BOTH, "bf16 keep sq9 sk9" },
    { "ALiBi", BOTH, "bf16 alibi sq9 sk9" },
    { "sinks", BOTH, "bf16 sinks sq9 sk9" },
    { "LSE output", BOTH, "bf16 lse sq9 sk9" },
    { "scores output", { "gqa" }, "bf16 scores sq9 sk9" },
    { "one query row, keys split", { "flash" }, "bf16 sq1 sk999 splits=3" },
    { "padded batch, `seqused_k`", BOTH, "bf16 b3 used_k sq9 sk9" },
    { "packed batch, `cu_seqlens_*`", BOTH, "bf16 b3 packed_q packed_k sq9 sk9" },
    { "paged k, v", BOTH, "bf16 b3 page=4 sq1 sk9" },
    { "packed q over paged k, v", BOTH, "bf16 b3 packed_q page=4 sq2 sk9" },
    { "`BATCH_INVARIANT`", BOTH, "bf16 invariant sq9 sk9" },
};

static const struct matrix_line other_lines[] = {
    { "matrix products, f32", { "matmul", "matmul_nt" }, "f32 m9 n9 k9" },
    { "matrix products, f32, 3xTF32 or TF32", { "matmul", "matmul_nt" }, "f32 3xtf32 m9 n9 k9" },
    { "matrix products, f16", { "matmul", "matmul_nt" }, "f16 m9 n9 k9" },
    { "matrix products, bf16", { "matmul", "matmul_nt" }, "bf16 m9 n9 k9" },
    { "softmax, f32", { "softmax", "softmax_causal" }, "f32 sq9 sk9" },
    { "softmax, f16", { "softmax", "softmax_causal" }, "f16 sq9 sk9" },
    { "softmax, bf16", { "softmax", "softmax_causal" }, "bf16 sq9 sk9" },
    { "merging partial results, f32", { "merge" }, "f32 sq9" },
    { "merging partial results, f16", { "merge" }, "f16 sq9" },
    { "merging partial results, bf16", { "merge" }, "bf16 sq9" },
};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static bool row_supports(const struct impl *impl, const char *op, const char *words)
{
    static struct bench_case c;
    static struct bench_data d;
    char text[200], why[512];
    snprintf(text, sizeof text, "%s %s", op, words);
    if (!bench_case_parse(&c, text, why, sizeof why)
        || !bench_data_make(&d, &c, impl->device_type, 1, true, why, sizeof why))
        return false;
    const bool yes = impl->supports(&d.problem, why, sizeof why);
    bench_data_free(&d);
    return yes;
}

/* Can the row run anything at all on this machine? */
static bool row_runs_here(const struct impl *impl)
{
    return row_supports(impl, "flash", "bf16 sq9 sk9") || row_supports(impl, "flash", "f32 sq9 sk9")
        || row_supports(impl, "gqa", "bf16 sq9 sk9") || row_supports(impl, "matmul", "bf16 m9 n9 k9")
        || row_supports(impl, "softmax", "f32 sq9 sk9") || row_supports(impl, "merge", "f32 sq9");
}

static void print_cell(const struct impl *impl, const struct matrix_line *line)
{
    int found = 0;
    if (!row_runs_here(impl)) {
        printf(" ? |");
        return;
    }
    for (int k = 0; k < 2; k++)
        if (line->ops[k] && row_supports(impl, line->ops[k], line->words))
            printf("%s%s", found++ ? ", " : " ", line->ops[k]);
    printf(found ? " |" : " - |");
}

static void print_table(const char *title, const struct matrix_line *lines, int count)
{
    printf("| %s |", title);
    for (int i = 0; i < qattn__impl_count; i++)
        printf(" `%s` |", qattn__impls[i].id);
    printf("\n|---|");
    for (int i = 0; i < qattn__impl_count; i++)
        printf("---|");
    for (int k = 0; k < count; k++) {
        printf("\n| %s |", lines[k].label);
        for (int i = 0; i < qattn__impl_count; i++)
            print_cell(&qattn__impls[i], &lines[k]);
    }
    printf("\n");
}

void bench_print_matrix(void)
{
    print_table("attention: types", type_lines, COUNT(type_lines));
    printf("\n");
    print_table("attention: features", feature_lines, COUNT(feature_lines));
    printf("\n");
    print_table("building blocks", other_lines, COUNT(other_lines));
}
