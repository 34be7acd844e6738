/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Which keys a row of the reference sees: causal and window masks under every position rule, keep, lengths, packed
 * sequences, pages. K is 0 everywhere, so O is the mean of the visible values and exp(LSE) their number; V holds the
 * key's own index, and NaN where nobody may look.
 */

#include "core/params.h"
#include "suites.h"
#include "test_ref.h"

/* O and LSE of a row that sees `count` keys of index sum `sum`. */
#define CHECK_MEAN(o, lse, count, sum) \
    do { \
        const double count_ = (double)(count); \
        CHECK_NEAR(o, count_ > 0 ? (double)(sum) / count_ : 0.0); \
        CHECK_NEAR(lse, count_ > 0 ? log(count_) : -INFINITY); \
    } while (0)

/* ---------------------------------------------------------------- causal, window, position */

/* Sixth grade: running means. */
START_TEST(causal_gives_running_means)
{
    const float q[4] = { 0 }, k[4] = { 0 }, v[4] = { 4, 8, 0, 20 };
    float o[4], lse[4];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.mask = QATTN_MASK_CAUSAL;
    ref_attend_f32((struct ref_shape){ 1, 1, 4, 4, 1, 1 }, q, k, v, o, lse, &params);
    ck_assert(o[0] == 4 && o[1] == 6 && o[3] == 8);
    CHECK_NEAR(o[2], 4);
    ref_attend_f32((struct ref_shape){ 1, 1, 2, 4, 1, 1 }, q, k, v, o, lse, &params);      /* bottom right */
    CHECK_NEAR(o[0], 4);
    ck_assert(o[1] == 8);
    ref_attend_f32((struct ref_shape){ 1, 1, 4, 2, 1, 1 }, q, k, v, o, lse, &params);      /* two rows see nothing */
    ck_assert(o[0] == 0 && o[1] == 0 && lse[0] == -INFINITY && lse[1] == -INFINITY && o[2] == 4 && o[3] == 6);
    params.mask |= QATTN_MASK_TOP_LEFT;
    ref_attend_f32((struct ref_shape){ 1, 1, 2, 4, 1, 1 }, q, k, v, o, lse, &params);
    ck_assert(o[0] == 4 && o[1] == 6);
}
END_TEST

struct mask_case { bool causal, window; int64_t left, right, offset; uint32_t position; };

/* The rule of the header, in 128 bits so that nothing wraps. */
static bool sees(const struct mask_case *m, int64_t sq, int64_t sk, int64_t i, int64_t j)
{
    __extension__ typedef __int128 wide;
    wide pos = (wide)i + sk - sq;
    if (m->position == QATTN_MASK_TOP_LEFT)
        pos = i;
    if (m->position == QATTN_MASK_OFFSET)
        pos = (wide)i + m->offset;
    return !(m->causal && j > pos) && !(m->window && m->left != -1 && j < pos - m->left) &&
           !(m->window && m->right != -1 && j > pos + m->right);
}

/* Every row alone, with NaN in the keys and values it may not see. */
static void check_mask(const struct mask_case *m, int64_t sq, int64_t sk)
{
    enum { MAX = 8 };
    const float q[MAX] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    float k[MAX], v[MAX], o[MAX], lse[MAX];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.mask = (m->causal ? QATTN_MASK_CAUSAL : 0u) | (m->window ? QATTN_MASK_WINDOW : 0u) | m->position;
    params.window_left = m->left;
    params.window_right = m->right;
    params.q_offset = m->position == QATTN_MASK_OFFSET ? m->offset : 0;
    for (int64_t i = 0; i < sq; i++) {
        int64_t count = 0, sum = 0;
        for (int64_t j = 0; j < sk; j++) {
            const bool visible = sees(m, sq, sk, i, j);
            k[j] = visible ? 0 : NAN;
            v[j] = visible ? (float)j : NAN;
            count += visible;
            sum += visible ? j : 0;
        }
        ref_attend_f32((struct ref_shape){ 1, 1, sq, sk, 1, 1 }, q, k, v, o, lse, &params);
        CHECK_MEAN(o[i], lse[i], count, sum);
    }
}

START_TEST(masks_by_position)
{
    static const int64_t lefts[] = { -1, 0, 1, 3, INT64_MAX - 1, INT64_MAX },
                         rights[] = { -1, 0, 2, INT64_MAX - 1, INT64_MAX };
    static const int64_t offsets[] = { 0, -3, -1, 2, 7, INT64_MAX - 2, INT64_MAX, INT64_MIN, INT64_MIN + 3 };
    static const uint32_t positions[] = { 0, QATTN_MASK_TOP_LEFT, QATTN_MASK_OFFSET };
    for (int64_t sq = 1; sq <= 5; sq += sq)
        for (int64_t sk = 0; sk <= 5; sk += 1 + sk / 2)
            for (int causal = 0; causal < 2; causal++)
                for (unsigned w = 0; w <= 30; w++)         /* 30: no window */
                    for (unsigned position = 0; position < 3; position++)
                        for (unsigned n = 0; n < (position == 2 ? 9 : 1); n++) {
                            const struct mask_case m = {
                                causal, w < 30, w < 30 ? lefts[w % 6] : 0, w < 30 ? rights[w / 6] : 0, offsets[n],
                                positions[position],
                            };
                            check_mask(&m, sq, sk);
                        }
}
END_TEST

/* q_offsets [N] wins over q_offset. */
START_TEST(offsets_per_sequence)
{
    const float q[3] = { 0 }, k[12] = { 0 }, v[12] = { 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3 };
    const int32_t offsets[3] = { 2, -1, 0 };
    float o[3], lse[3] = { 0 };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.mask = QATTN_MASK_CAUSAL | QATTN_MASK_OFFSET;
    params.q_offset = 3;
    params.q_offsets = offsets;
    params.lse = ref_tensor(lse, QATTN_DTYPE_F32, 3, 1, 1, 1);
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 3, 1, 1, 1), to = ref_tensor(o, QATTN_DTYPE_F32, 3, 1, 1, 1);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 3, 1, 4, 1), tv = ref_tensor(v, QATTN_DTYPE_F32, 3, 1, 4, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
    CHECK_MEAN(o[0], lse[0], 3, 3);
    CHECK_MEAN(o[1], lse[1], 0, 0);
    CHECK_MEAN(o[2], lse[2], 1, 0);
}
END_TEST

/* Any non-zero byte keeps; both types; full axes and broadcast ones; together with causal. */
START_TEST(keep_hides_zero_bytes)
{
    const float q[4] = { 1, 1, 1, 1 };
    const uint8_t per_row[8] = { 1, 0, 2, 0,   0, 255, 0, 128 }, for_all[4] = { 0, 1, 1, 0 };
    const float v[4] = { 0, 1, 2, 3 }, k[4] = { 0 }, k_hidden[4] = { NAN, 0, 0, NAN }, v_hidden[4] = { NAN, 1, 2, NAN };
    float o[4], lse[4];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.keep = ref_tensor(per_row, QATTN_DTYPE_BOOL, 1, 1, 2, 4);
    ref_attend_f32((struct ref_shape){ 2, 1, 2, 4, 1, 1 }, q, k, v, o, lse, &params);
    for (int h = 0; h < 2; h++) {
        CHECK_MEAN(o[2 * h], lse[2 * h], 2, 2);
        CHECK_MEAN(o[2 * h + 1], lse[2 * h + 1], 2, 4);
    }
    params.keep = ref_tensor(per_row, QATTN_DTYPE_U8, 1, 2, 1, 4);
    params.mask = QATTN_MASK_CAUSAL;                       /* rows at positions 2, 3 */
    ref_attend_f32((struct ref_shape){ 2, 1, 2, 4, 1, 1 }, q, k, v, o, lse, &params);
    CHECK_MEAN(o[0], lse[0], 2, 2);
    CHECK_MEAN(o[1], lse[1], 2, 2);
    CHECK_MEAN(o[2], lse[2], 1, 1);
    CHECK_MEAN(o[3], lse[3], 2, 4);
    params.keep = ref_tensor(for_all, QATTN_DTYPE_U8, 1, 1, 1, 4);
    params.mask = 0;
    ref_attend_f32((struct ref_shape){ 2, 1, 2, 4, 1, 1 }, q, k_hidden, v_hidden, o, lse, &params);
    for (int n = 0; n < 4; n++)
        CHECK_MEAN(o[n], lse[n], 2, 3);
}
END_TEST

/* ---------------------------------------------------------------- lengths */

/* Three padded sequences of 3 rows and 5 keys; lengths out of range are clamped. Bottom right uses the sequence's
 * own lengths. Rows past seqused_q: O = 0, LSE = -inf, whatever the sink. */
START_TEST(padded_lengths)
{
    const int32_t used_q[3] = { 2, 100, -7 }, used_k[3] = { 4, -1, 77 };
    const float sinks[1] = { -INFINITY }, finite_sinks[1] = { 0 };
    float q[9], k[15], v[15], o[9], lse[9] = { 0 };
    for (int n = 0; n < 15; n++) {
        const bool used = n < 4 || n >= 10;
        k[n] = used ? 0 : NAN;
        v[n] = used ? (float)(n % 5) : NAN;
    }
    for (int n = 0; n < 9; n++)
        q[n] = n < 2 || n / 3 == 1 ? 1 : NAN;
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.seqused_q = used_q;
    params.seqused_k = used_k;
    params.mask = QATTN_MASK_CAUSAL;
    params.sinks = sinks;
    params.lse = ref_tensor(lse, QATTN_DTYPE_F32, 3, 1, 3, 1);
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 3, 1, 3, 1), to = ref_tensor(o, QATTN_DTYPE_F32, 3, 1, 3, 1);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 3, 1, 5, 1), tv = ref_tensor(v, QATTN_DTYPE_F32, 3, 1, 5, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
    CHECK_MEAN(o[0], lse[0], 3, 3);                        /* offset 4 - 2 */
    CHECK_MEAN(o[1], lse[1], 4, 6);
    for (int n = 2; n < 9; n++)
        CHECK_MEAN(o[n], lse[n], 0, 0);
    params.sinks = finite_sinks;
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
    CHECK_NEAR(lse[1], log(5));
    ck_assert(lse[2] == -INFINITY && o[2] == 0);           /* past seqused_q */
    for (int n = 3; n < 6; n++)
        ck_assert(lse[n] == 0 && o[n] == 0);               /* a query without keys: the sink */
}
END_TEST

/* ---------------------------------------------------------------- packed */

/* q rows: 0, 1 nobody's; 2..4, none, 5..8, none; 9, 10 nobody's. Keys: 0..3, 4..5, none, 6..9. */
static const int32_t packed_q[5] = { 2, 5, 5, 9, 9 }, packed_k[5] = { 0, 4, 6, 6, 10 };
enum { TOTAL_Q = 11, TOTAL_K = 10 };

static void attend_packed(qattn_attn_params *params, float *o, float *lse)
{
    static const float q[TOTAL_Q], k[TOTAL_K];
    float v[TOTAL_K];
    for (int n = 0; n < TOTAL_K; n++)
        v[n] = (float)n;
    for (int n = 0; n < TOTAL_Q; n++)
        o[n] = lse[n] = 99;
    params->cu_seqlens_q = packed_q;
    params->cu_seqlens_k = packed_k;
    params->num_seqs = 4;
    params->lse = ref_tensor(lse, QATTN_DTYPE_F32, 1, 1, TOTAL_Q, 1);
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 1, 1, TOTAL_Q, 1);
    const qattn_tensor to = ref_tensor(o, QATTN_DTYPE_F32, 1, 1, TOTAL_Q, 1);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 1, 1, TOTAL_K, 1);
    const qattn_tensor tv = ref_tensor(v, QATTN_DTYPE_F32, 1, 1, TOTAL_K, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, params);
}

START_TEST(packed_sequences)
{
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    float o[TOTAL_Q], lse[TOTAL_Q];
    params.mask = QATTN_MASK_CAUSAL;
    attend_packed(&params, o, lse);
    for (int n = 0; n < TOTAL_Q; n++) {
        if (n < 2 || n >= 9)
            ck_assert(o[n] == 99 && lse[n] == 99);         /* not touched */
        else if (n >= 5)
            CHECK_MEAN(o[n], lse[n], 0, 0);                /* no keys */
    }
    CHECK_MEAN(o[2], lse[2], 2, 1);                        /* 3 rows, 4 keys, bottom right */
    CHECK_MEAN(o[3], lse[3], 3, 3);
    CHECK_MEAN(o[4], lse[4], 4, 6);
}
END_TEST

START_TEST(packed_with_bounds_and_lengths)
{
    const int32_t used_q[4] = { 1, 0, 9, 0 }, used_k[4] = { 3, 2, 1, 4 };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    float o[TOTAL_Q], lse[TOTAL_Q];
    params.max_seqlen_q = 2;
    params.max_seqlen_k = 3;
    attend_packed(&params, o, lse);
    CHECK_MEAN(o[2], lse[2], 3, 3);                        /* keys 0..2 */
    CHECK_MEAN(o[3], lse[3], 3, 3);
    ck_assert(o[4] == 99 && lse[4] == 99);                 /* beyond max_seqlen_q */
    CHECK_MEAN(o[6], lse[6], 0, 0);
    ck_assert(o[7] == 99 && o[8] == 99);

    params = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    params.seqused_q = used_q;
    params.seqused_k = used_k;
    attend_packed(&params, o, lse);
    CHECK_MEAN(o[2], lse[2], 3, 3);
    CHECK_MEAN(o[3], lse[3], 0, 0);                        /* in the slot, past seqused_q: written */
    CHECK_MEAN(o[8], lse[8], 0, 0);
}
END_TEST

/* ---------------------------------------------------------------- pages */

/* Three sequences of 5, 0 and 7 keys, packed queries of 1 (decode), 2 and 3 (prefill) rows, in pools of `size`-row
 * pages handed out in shuffled order. Whatever no sequence owns is NaN; table entries past the length are wild. */
static void check_pages(int64_t size, uint32_t mask, int64_t window)
{
    enum { PAGES = 24, COLUMNS = 8, STRIDE = 9 };
    static const int32_t starts[4] = { 0, 1, 3, 6 }, lengths[3] = { 5, 0, 7 };
    const float q[6] = { 1, 1, 1, 1, 1, 1 };
    float k[PAGES * 4], v[PAGES * 4], o[6], lse[6] = { 0 };
    int32_t table[3 * STRIDE], next = 0;
    for (int64_t n = 0; n < PAGES * size; n++)
        k[n] = v[n] = NAN;
    for (int n = 0; n < 3 * STRIDE; n++)
        table[n] = n % 2 ? INT32_MAX : -5;
    for (int n = 0; n < 3; n++) {
        for (int64_t j = 0; j < lengths[n]; j++) {
            int32_t *const page = &table[n * STRIDE + j / size];
            if (j % size == 0)
                *page = 7 * next++ % PAGES;                /* 7 and 24 share no factor: no page twice */
            k[*page * size + j % size] = 0;
            v[*page * size + j % size] = (float)j;
        }
    }
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.cu_seqlens_q = starts;
    params.num_seqs = 3;
    params.seqused_k = lengths;
    params.page_table = table;
    params.page_table_stride = STRIDE;
    params.max_pages = COLUMNS;
    params.mask = mask;
    params.window_left = window;
    params.lse = ref_tensor(lse, QATTN_DTYPE_F32, 1, 1, 6, 1);
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 1, 1, 6, 1), to = ref_tensor(o, QATTN_DTYPE_F32, 1, 1, 6, 1);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, PAGES, 1, size, 1);
    const qattn_tensor tv = ref_tensor(v, QATTN_DTYPE_F32, PAGES, 1, size, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
    for (int n = 0; n < 3; n++) {
        for (int64_t i = 0; i < starts[n + 1] - starts[n]; i++) {
            const int64_t pos = i + lengths[n] - (starts[n + 1] - starts[n]);
            int64_t count = 0, sum = 0;
            for (int64_t j = 0; j < lengths[n]; j++) {
                const bool visible = !((mask & QATTN_MASK_CAUSAL) && j > pos) &&
                                     !((mask & QATTN_MASK_WINDOW) && j < pos - window);
                count += visible;
                sum += visible ? j : 0;
            }
            CHECK_MEAN(o[starts[n] + i], lse[starts[n] + i], count, sum);
        }
    }
}

/* Packed rows that no sequence covers are not touched: all of them, where there is no sequence. */
START_TEST(no_sequences)
{
    const float x[4] = { 1, 2, 3, 4 };
    const int32_t starts[1] = { 0 };
    float o[4] = { 7, 7, 7, 7 };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.cu_seqlens_q = params.cu_seqlens_k = starts;
    const qattn_tensor t = ref_tensor(x, QATTN_DTYPE_F32, 1, 1, 4, 1), to = ref_tensor(o, QATTN_DTYPE_F32, 1, 1, 4, 1);
    ck_assert_int_eq(qattn_flash_forward(&t, &t, &t, &to, &params, NULL), QATTN_OK);
    for (int i = 0; i < 4; i++)
        ck_assert(o[i] == 7.0f);
}
END_TEST

START_TEST(shuffled_pages)
{
    for (int64_t size = 1; size <= 4; size++) {
        check_pages(size, 0, 0);
        check_pages(size, QATTN_MASK_CAUSAL, 0);
        check_pages(size, QATTN_MASK_CAUSAL | QATTN_MASK_WINDOW, 2);
    }
}
END_TEST

/* Padded q over pages: bias spans max_pages * page_size keys. A pool without pages holds no key. */
START_TEST(pages_with_bias_and_empty_pool)
{
    const float q[2] = { 0 }, k[6] = { 0 }, v[6] = { 2, 3, 4, 5, 0, 1 };
    const float bias[6] = { 0, -INFINITY, 0, 0, -INFINITY, NAN };
    const int32_t lengths[2] = { 5, 3 }, table[6] = { 2, 0, 1, 1, 2, 0 };
    float o[2], lse[2];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.seqused_k = lengths;
    params.page_table = table;
    params.max_pages = 3;
    params.bias = ref_tensor(bias, QATTN_DTYPE_F32, 1, 1, 1, 6);
    params.lse = ref_tensor(lse, QATTN_DTYPE_F32, 2, 1, 1, 1);
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 2, 1, 1, 1), to = ref_tensor(o, QATTN_DTYPE_F32, 2, 1, 1, 1);
    qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 3, 1, 2, 1), tv = ref_tensor(v, QATTN_DTYPE_F32, 3, 1, 2, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
    CHECK_MEAN(o[0], lse[0], 3, 0 + 2 + 3);                /* keys 0 1 2 3 4 hold 0 1 2 3 4; 1 and 4 are hidden */
    CHECK_MEAN(o[1], lse[1], 2, 4 + 0);                    /* keys 0 1 2 hold 4 5 0; 1 is hidden */

    tk = ref_tensor(NULL, QATTN_DTYPE_F32, 0, 1, 2, 1);
    tv = ref_tensor(NULL, QATTN_DTYPE_F32, 0, 1, 2, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
    CHECK_MEAN(o[0], lse[0], 0, 0);
    CHECK_MEAN(o[1], lse[1], 0, 0);
}
END_TEST

/* ---------------------------------------------------------------- nothing there */

START_TEST(zero_sizes)
{
    const float q[4] = { 1, 2, 3, 4 }, v[3] = { 1, 2, 6 };
    float o[4], lse[4];
    ref_attend_f32((struct ref_shape){ 2, 1, 2, 0, 1, 1 }, q, NULL, NULL, o, lse, NULL);           /* Sk */
    for (int n = 0; n < 4; n++)
        CHECK_MEAN(o[n], lse[n], 0, 0);
    ref_attend_f32((struct ref_shape){ 1, 1, 2, 3, 0, 1 }, NULL, NULL, v, o, lse, NULL);           /* D: scores 0 */
    for (int n = 0; n < 2; n++)
        CHECK_MEAN(o[n], lse[n], 3, 9);
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 1, 0 }, q, v, NULL, NULL, lse, NULL);           /* Dv: LSE alone */
    CHECK_NEAR(lse[0], log(exp(1) + exp(2) + exp(6)));
    ref_attend_f32((struct ref_shape){ 1, 1, 0, 3, 1, 1 }, NULL, v, v, NULL, NULL, NULL);          /* Sq */
    ref_attend_f32((struct ref_shape){ 0, 1, 2, 3, 1, 1 }, NULL, v, v, NULL, NULL, NULL);          /* Hq */
    ref_attend_f32((struct ref_shape){ 0, 0, 0, 0, 0, 0 }, NULL, NULL, NULL, NULL, NULL, NULL);
    const qattn_tensor none = ref_tensor(NULL, QATTN_DTYPE_F32, 0, 1, 1, 1);                       /* B */
    ref_attend(OP_GQA_FORWARD, &none, &none, &none, &none, NULL);
}
END_TEST

TCase *tcase_ref_keys(void)
{
    TCase *const tc = tcase_create("keys");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, causal_gives_running_means);
    tcase_add_test(tc, masks_by_position);
    tcase_add_test(tc, offsets_per_sequence);
    tcase_add_test(tc, keep_hides_zero_bytes);
    tcase_add_test(tc, padded_lengths);
    tcase_add_test(tc, packed_sequences);
    tcase_add_test(tc, packed_with_bounds_and_lengths);
    tcase_add_test(tc, no_sequences);
    tcase_add_test(tc, shuffled_pages);
    tcase_add_test(tc, pages_with_bias_and_empty_pool);
    tcase_add_test(tc, zero_sizes);
    return tc;
}
