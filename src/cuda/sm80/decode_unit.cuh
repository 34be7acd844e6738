/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Decode: one unit of keys against the rows of one warp: products, scores, softmax. See decode_sm80.cuh. */
#ifndef QATTN_CUDA_DECODE_UNIT_CUH
#define QATTN_CUDA_DECODE_UNIT_CUH

#include "cuda/sm80/decode_bytes.cuh"
#include "cuda/sm80/decode_copy.cuh"

/* A warp's running softmax: rows lane / 4 and lane / 4 + 8 of its tile. */
template <int NV> struct decode_state {
    float o[NV][4];
    float m[2], l[2];       /* l: this lane's share of the sum */
    float unit[2];          /* a power of two that o is counted in: per-key descales of V */
};

/* Column of O of element e of block b, for lane c of four. */
template <int BYTES> __device__ __forceinline__ int decode_column(int b, int e, int c)
{
    return BYTES == 1 ? 16 * (b >> 1) + 4 * c + 2 * (e & 1) + (b & 1) : 8 * b + 2 * c + (e & 1);
}

/* Scores of a lane: block t of 8 keys, element e of the accumulator: the lane's first row for e < 2. Here is the
 * key. */
__device__ __forceinline__ int decode_key(int t, int e, int c) { return 8 * t + 2 * c + (e & 1); }

enum { KEY_BLOCKS = DECODE_UNIT / 8 };

/* Where a lane reads fragments, in shared memory, and which keys need no mask. */
struct decode_view {
    int q, k, v;                /* of Q; of K and V in the slot at offset 0 */
    int full_begin, full_end;   /* a unit that starts in between, both ends included, is seen whole by all rows */
};

/* The lane's piece `bytes` further in its row, a multiple of 16 (decode_turn). */
__device__ __forceinline__ int decode_piece(int at, int bytes) { return (at ^ (bytes & 112)) + (bytes & ~127); }

template <int BYTES>
__device__ __forceinline__ struct decode_view decode_view_of(const struct decode_sm80_args *a,
                                                             const struct decode_lane &t, uint32_t q, uint32_t ring)
{
    struct decode_view y;
    const int v = a->v_in_k ? 0 : DECODE_UNIT * a->k_pitch, v_pitch = a->v_in_k ? a->k_pitch : a->v_pitch;
    y.q = q + (16 * t.tile + (t.lane & 15)) * a->q_pitch + (t.lane >> 4) * 16;
    y.k = ring + (BYTES == 2 ? ((t.lane & 7) + (t.lane >> 4) * 8) * a->k_pitch +
                                   ((t.lane >> 3 & 1) * 16 ^ decode_turn(t.lane))
                             : (t.lane >> 2) * a->k_pitch + 4 * (t.lane & 3) + decode_turn(t.lane >> 2));
    y.v = ring + v + (t.lane & 15) * v_pitch + ((t.lane >> 4) * 16 ^ decode_turn(t.lane));
    if (BYTES == 2) {
        keep_in_register(y.q);
        keep_in_register(y.k);
        keep_in_register(y.v);
    }
    return y;
}

/* s = Q K^T, 64 elements of D at a time, in two chains for even and odd steps of 16. */
template <class T, int BYTES, bool INTEGER>
__device__ __forceinline__ void decode_multiply_k(const struct decode_sm80_args *a, const struct problem *p, int q_at,
                                                  int k_at, float (*s)[4])
{
    const int width = (int)p->d;
    float odd[KEY_BLOCKS][4];
#pragma unroll
    for (int x = 0; x < 4 * KEY_BLOCKS; x++)
        s[x >> 2][x & 3] = odd[x >> 2][x & 3] = 0.0f;
#pragma unroll 1
    for (int d = 0; d < width; d += DECODE_STEP) {
#pragma unroll
        for (int x = 0; x < DECODE_STEP; x += 16) {
            uint32_t qf[4], kf[4];
            float (*const to)[4] = x & 16 ? odd : s;
            ldmatrix_x4(qf, q_at + 2 * (d + x));
#pragma unroll
            for (int t = 0; t < KEY_BLOCKS; t += 2) {
                const int at = decode_piece(k_at + 8 * t * a->k_pitch, BYTES * (d + x));
                if (BYTES == 2) {
                    ldmatrix_x4(kf, at);
                } else {
                    widen4<T, INTEGER>(load_shared_32(at), p->k.dtype, &kf[0], &kf[1]);
                    widen4<T, INTEGER>(load_shared_32(at + 8 * a->k_pitch), p->k.dtype, &kf[2], &kf[3]);
                }
                mma_16816<T>(to[t], qf, kf);
                mma_16816<T>(to[t + 1], qf, kf + 2);
            }
        }
    }
#pragma unroll
    for (int x = 0; x < 4 * KEY_BLOCKS; x++)
        s[x >> 2][x & 3] += odd[x >> 2][x & 3];
}

/* Descale of key lane % DECODE_UNIT of the unit, where every key has its own. */
__device__ __forceinline__ float decode_key_descale(const struct problem *p, const struct seq *s,
                                                    const struct descale *ds, int kv_head, int j0, int lane)
{
    const int j = j0 + (lane & (DECODE_UNIT - 1));
    return j < s->len_k ? seq_kv_descale(p, s, ds, kv_head / ds->head_div, j, 0) : 0.0f;
}

__device__ __forceinline__ bool has_key_descale(const struct descale *ds) { return ds->kind > DESCALE_SEQUENCE; }

/* From products to final scores: -inf where hidden. */
template <int BYTES>
__device__ __forceinline__ void decode_scores(const struct problem *p, const struct decode_shared *sh,
                                              const struct decode_view &view, int kv_head, int j0, int row, int lane,
                                              float k_scale, float (*s)[4])
{
    const int c = lane & 3;
    if (BYTES == 1 && has_key_descale(&p->k_descale)) {
        const float mine = decode_key_descale(p, &sh->seq, &p->k_descale, kv_head, j0, lane);
#pragma unroll
        for (int x = 0; x < 2 * KEY_BLOCKS; x++) {
            const int t = x >> 1, e = x & 1;
            const float factor = __shfl_sync(0xFFFFFFFFu, mine, decode_key(t, e, c));
            s[t][e] *= factor;
            s[t][e + 2] *= factor;
        }
    }
#pragma unroll
    for (int x = 0; x < 4 * KEY_BLOCKS; x++)
        s[x >> 2][x & 3] = BYTES == 1 ? p->scale * (s[x >> 2][x & 3] * k_scale) : p->scale * s[x >> 2][x & 3];
    if (p->softcap != 0.0f) {
#pragma unroll
        for (int x = 0; x < 4 * KEY_BLOCKS; x++)
            s[x >> 2][x & 3] = score_cap(s[x >> 2][x & 3], p->softcap);
    }
    const bool terms = score_has_terms(p);
    if (!terms && j0 >= view.full_begin && j0 <= view.full_end)
        return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const struct decode_row *const r = &sh->row[row + 8 * half];
        const int begin = r->begin - j0, end = r->end - j0;
#pragma unroll
        for (int x = 0; x < 2 * KEY_BLOCKS; x++) {
            const int t = x >> 1, e = (x & 1) + 2 * half, j = decode_key(t, e, c);
            if (j < begin || j >= end)
                s[t][e] = minus_infinity();
            else if (terms)
                s[t][e] = score_terms(p, &r->score, j0 + j, s[t][e]);
        }
    }
}

/* P of f16 is 2^12 e^(s - m), or small ones would be subnormal and lose digits; o and l are in the same units. */
__device__ __forceinline__ constexpr float decode_lift(__half) { return 12.0f; }
__device__ __forceinline__ constexpr float decode_lift(__nv_bfloat16) { return 0.0f; }
__device__ __forceinline__ constexpr float decode_lowered(__half) { return 1.0f / 4096.0f; }
__device__ __forceinline__ constexpr float decode_lowered(__nv_bfloat16) { return 1.0f; }

/* O of the lane's two rows times `keep` of them. BYTES 1 has one NV for all widths. */
template <int BYTES, int NV>
__device__ __forceinline__ void decode_rescale(const struct problem *p, decode_state<NV> *w, const float *keep)
{
#pragma unroll
    for (int x = 0; x < 4 * NV; x++) {
        if (BYTES == 1 && x % 32 == 0 && p->dv <= 2 * x)
            break;
        w->o[x >> 2][x & 3] *= keep[x >> 1 & 1];
    }
}

/* Scores to probabilities; m, l and o are brought to the new maximum. */
template <class T, int BYTES, int NV>
__device__ __forceinline__ void decode_softmax(const struct problem *p, decode_state<NV> *w, float (*s)[4])
{
    float top[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        top[half] = w->m[half];
#pragma unroll
        for (int x = 0; x < 2 * KEY_BLOCKS; x++)
            top[half] = fmaxf(top[half], s[x >> 1][(x & 1) + 2 * half]);
        top[half] = lanes_max<4>(top[half]);
    }
    if (__any_sync(0xFFFFFFFFu, top[0] != w->m[0] || top[1] != w->m[1])) {
        const float keep[2] = { exp_below(w->m[0], top[0]), exp_below(w->m[1], top[1]) };
        decode_rescale<BYTES, NV>(p, w, keep);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            w->l[half] *= keep[half];
            w->m[half] = top[half];
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float from = top[half] == minus_infinity() ? 0.0f : top[half];
#pragma unroll
        for (int x = 0; x < 2 * KEY_BLOCKS; x++) {
            float *const y = &s[x >> 1][(x & 1) + 2 * half];
            *y = exp2_approx(__fmaf_rn(*y - from, LOG2_E, decode_lift(T())));
            w->l[half] += *y;
        }
    }
}

/* P rounded to T, times the descales of V's keys, counted in w->unit so that 16 bits hold it. A key whose p is 0
 * stays at 0: it may be hidden, and its descale anything. */
template <class T, int NV>
__device__ __forceinline__ void decode_scale_p(const struct problem *p, const struct seq *seq, int kv_head, int j0,
                                               int lane, decode_state<NV> *w, float (*s)[4])
{
    const float mine = decode_key_descale(p, seq, &p->v_descale, kv_head, j0, lane);
    float factor[2 * KEY_BLOCKS], top[2] = { w->unit[0], w->unit[1] };
#pragma unroll
    for (int x = 0; x < 2 * KEY_BLOCKS; x++) {
        factor[x] = __shfl_sync(0xFFFFFFFFu, mine, decode_key(x >> 1, x & 1, lane & 3));
        const float power = __uint_as_float(__float_as_uint(factor[x]) & 0x7F800000u);
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (is_finite(power) && s[x >> 1][(x & 1) + 2 * half] != 0.0f)
                top[half] = fmaxf(top[half], power);
    }
    top[0] = lanes_max<4>(top[0]);
    top[1] = lanes_max<4>(top[1]);
    const float keep[2] = { w->unit[0] / top[0], w->unit[1] / top[1] }, inverse[2] = { 1.0f / top[0], 1.0f / top[1] };
    decode_rescale<1, NV>(p, w, keep);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        w->unit[half] = top[half];
#pragma unroll
        for (int x = 0; x < 2 * KEY_BLOCKS; x++) {
            float *const y = &s[x >> 1][(x & 1) + 2 * half];
            *y = *y == 0.0f ? 0.0f : (float)(T)*y * (factor[x] * inverse[half]);
        }
    }
}

/* One unit of the exponent, in both halves of a register. */
__device__ __forceinline__ uint32_t exponent_step(__half) { return 0x04000400u; }
__device__ __forceinline__ uint32_t exponent_step(__nv_bfloat16) { return 0x00800080u; }

/* All ones in every half that is NaN or infinite. */
template <class T> __device__ __forceinline__ uint32_t non_finite_halves(uint32_t x)
{
    return ((((x & 0x7FFF7FFFu) + exponent_step(T())) & 0x80008000u) >> 15) * 0xFFFFu;
}

/* Does V of the unit hold a non-finite element? Every lane looks at its share; columns beyond Dv may count. */
template <class T, int BYTES>
__device__ __forceinline__ bool decode_v_is_bad(const struct problem *p, const char *v, int pitch, int lane)
{
    const int pieces = (((int)p->dv + 15) >> 4) * BYTES;
    uint32_t bad = 0;
    for (int row = lane >> 4; row < DECODE_UNIT; row += 2)
        for (int x = lane & 15; x < pieces; x += 16) {
            const uint4 piece = *(const uint4 *)(v + row * pitch + (16 * x ^ decode_turn(row)));
            const uint32_t words[4] = { piece.x, piece.y, piece.z, piece.w };
#pragma unroll
            for (int y = 0; y < 4; y++)
                bad |= BYTES == 2 ? non_finite_halves<T>(words[y]) : non_finite_bytes(words[y], p->v.dtype);
        }
    return __any_sync(0xFFFFFFFFu, bad != 0);
}

/* The A fragment of P, or of marks, for 16 keys from block t of 8 on. */
template <class T> __device__ __forceinline__ void decode_fragment(const float (*s)[4], uint32_t *f)
{
    f[0] = pack_16<T>(s[0][0], s[0][1]);
    f[1] = pack_16<T>(s[0][2], s[0][3]);
    f[2] = pack_16<T>(s[1][0], s[1][1]);
    f[3] = pack_16<T>(s[1][2], s[1][3]);
}

/* The bad elements of V among keys that a row sees make their column of the row NaN: the product of 1 for each seen
 * pair with 1 for each bad element is above 0 just there. */
template <class T>
__device__ __forceinline__ void decode_spoil(const uint32_t *seen, const uint32_t *bad, float *o)
{
    const uint32_t one = pack_16<T>(1.0f, 1.0f), marks[2] = { bad[0] & one, bad[1] & one };
    float count[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    mma_16816<T>(count, seen, marks);
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (count[e] > 0.0f)
            o[e] = __int_as_float(0x7FC00000);
}

/* Fragments of V for 16 keys and columns 16 BYTES' = 32 / BYTES columns from block x of 8 on. */
template <class T, int BYTES, bool INTEGER>
__device__ __forceinline__ void decode_load_v(const struct problem *p, uint32_t v_at, int x, uint32_t *vf)
{
    uint32_t raw[4];
    ldmatrix_x4_trans(raw, decode_piece((int)v_at, 8 * BYTES * x));
#pragma unroll
    for (int y = 0; y < 4; y++) {
        if (BYTES == 2)
            vf[y] = raw[y];
        else
            widen4<T, INTEGER>(raw[y], p->v.dtype, &vf[(y >> 1) * 4 + (y & 1)], &vf[(y >> 1) * 4 + 2 + (y & 1)]);
    }
}

/* O += P V for 16 keys, 64 columns at a time, as V is padded in shared memory. */
template <class T, int BYTES, bool INTEGER, int NV>
__device__ __forceinline__ void decode_multiply_v(const struct problem *p, uint32_t v_at, const uint32_t *pf,
                                                  decode_state<NV> *w)
{
    constexpr int loaded = 4 / BYTES;                    /* blocks of one load */
#pragma unroll
    for (int b = 0; b < NV; b += 8) {
        if (p->dv <= 8 * b)
            break;
#pragma unroll
        for (int x = b; x < b + 8; x += loaded) {
            uint32_t vf[8];
            decode_load_v<T, BYTES, INTEGER>(p, v_at, x, vf);
#pragma unroll
            for (int y = 0; y < loaded; y++)
                mma_16816<T>(w->o[x + y], pf, vf + 2 * y);
        }
    }
}

/* The same where V has non-finite elements: they count as 0, then spoil the rows that see them. seen: bit 4 t + e
 * for each of the lane's pairs that is not hidden. */
template <class T, int BYTES, bool INTEGER, int NV>
__device__ __forceinline__ void decode_multiply_bad_v(const struct problem *p, uint32_t v_at, const uint32_t *pf,
                                                      uint32_t seen, decode_state<NV> *w)
{
    constexpr int loaded = 4 / BYTES;
    float one[2][4];
    uint32_t marks[4];
#pragma unroll
    for (int x = 0; x < 8; x++)
        one[x >> 2][x & 3] = seen >> x & 1 ? 1.0f : 0.0f;
    decode_fragment<T>(one, marks);
#pragma unroll
    for (int x = 0; x < NV; x += loaded) {
        if ((x & 7) == 0 && p->dv <= 8 * x)
            break;
        __syncwarp();                                    /* else all loads come first, and registers run out */
        uint32_t vf[8];
        decode_load_v<T, BYTES, INTEGER>(p, v_at, x, vf);
#pragma unroll
        for (int y = 0; y < loaded; y++) {
            const uint32_t halves[2] = { non_finite_halves<T>(vf[2 * y]), non_finite_halves<T>(vf[2 * y + 1]) };
            const uint32_t clean[2] = { vf[2 * y] & ~halves[0], vf[2 * y + 1] & ~halves[1] };
            mma_16816<T>(w->o[x + y], pf, clean);
            decode_spoil<T>(marks, halves, w->o[x + y]);
        }
    }
}

/* s = s - (s rounded to T): what a fragment left out. */
template <class T> __device__ __forceinline__ void decode_remainder(float (*s)[4])
{
#pragma unroll
    for (int x = 0; x < 4 * KEY_BLOCKS; x++)
        s[x >> 2][x & 3] -= (float)(T)s[x >> 2][x & 3];
}

template <class T, int BYTES, bool INTEGER, int NV>
__device__ __forceinline__ void decode_unit(const struct decode_sm80_args *a, const struct problem *p,
                                            const struct decode_shared *sh, const struct decode_lane &t,
                                            const struct decode_view &view, int kv_head, int j0, float k_scale,
                                            int slot, const char *memory, decode_state<NV> *w)
{
    const int row = 16 * t.tile + (t.lane >> 2), v_pitch = a->v_in_k ? a->k_pitch : a->v_pitch;
    const int v_at = view.v + slot;
    const char *const v = memory + slot + (a->v_in_k ? 0 : DECODE_UNIT * a->k_pitch);
    float s[KEY_BLOCKS][4];
    decode_multiply_k<T, BYTES, INTEGER>(a, p, view.q, view.k + slot, s);
    decode_scores<BYTES>(p, sh, view, kv_head, j0, row, t.lane, k_scale, s);

    bool hides = false;
#pragma unroll
    for (int x = 0; x < 4 * KEY_BLOCKS; x++)
        hides |= s[x >> 2][x & 3] == minus_infinity();
    const bool bad = __any_sync(0xFFFFFFFFu, hides) && decode_v_is_bad<T, BYTES>(p, v, v_pitch, t.lane);
    uint32_t seen = 0;                                   /* bit 4 t + e: not hidden */
    if (bad) {
#pragma unroll
        for (int x = 0; x < 4 * KEY_BLOCKS; x++)
            seen |= (s[x >> 2][x & 3] == minus_infinity() ? 0u : 1u) << x;
    }
    decode_softmax<T, BYTES, NV>(p, w, s);
    const bool scaled = BYTES == 1 && has_key_descale(&p->v_descale);
    if (scaled)
        decode_scale_p<T, NV>(p, &sh->seq, kv_head, j0, t.lane, w, s);
#pragma unroll 1
    for (int pass = 0; pass < (scaled ? 2 : 1); pass++) {    /* a descaled P needs more than one rounding keeps */
        if (pass == 1)
            decode_remainder<T>(s);
#pragma unroll
        for (int b = 0; b < KEY_BLOCKS; b += 2) {
            uint32_t pf[4];
            decode_fragment<T>(s + b, pf);
            if (bad) {
                decode_multiply_bad_v<T, BYTES, INTEGER, NV>(p, v_at + 8 * b * v_pitch, pf, seen >> 4 * b, w);
                continue;
            }
            decode_multiply_v<T, BYTES, INTEGER, NV>(p, v_at + 8 * b * v_pitch, pf, w);
        }
    }
}

#endif
