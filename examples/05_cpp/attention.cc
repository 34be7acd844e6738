// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The libqattn authors

// C++11: vectors as tensors, a refused call as an exception, and attention over two halves of the keys merged
// into one (what long contexts on several machines do).
//
//     c++ -std=c++11 attention.cc $(pkg-config --cflags --libs qattn) && ./a.out
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include <qattn.h>

namespace {

const int64_t B = 2, HQ = 6, HKV = 3, SQ = 17, SK = 90, SPLIT = 37, D = 40, DV = 24;

void require(int32_t status)
{
    char text[512];
    if (status == QATTN_OK)
        return;
    qattn_last_error(text, sizeof text);
    throw std::runtime_error(text);
}

// Owns packed [B][H][S][D] floats and gives views of them.
struct Array {
    int64_t h, s, d;
    std::vector<float> data;

    Array(int64_t h_, int64_t s_, int64_t d_) : h(h_), s(s_), d(d_), data(static_cast<size_t>(B * h_ * s_ * d_)) {}

    // Rows first .. last-1 of every head.
    qattn_tensor rows(int64_t first, int64_t last)
    {
        qattn_tensor t;
        require(qattn_tensor_init(&t, data.data() + first * d, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD,
                                  B, h, s, d));
        t.shape[2] = last - first;
        return t;
    }
    qattn_tensor all() { return rows(0, s); }

    double at(int64_t b, int64_t hh, int64_t i, int64_t x) const
    {
        return data[static_cast<size_t>(((b * h + hh) * s + i) * d + x)];
    }
};

void fill_random(Array &a)
{
    static uint32_t seed = 5;
    for (float &x : a.data) {
        seed = seed * 1664525u + 1013904223u;
        x = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
    }
}

double larger(double a, double b)      // std::fmax drops a NaN; a check must not
{
    return std::isnan(a) || a > b ? a : b;
}

double compare_with_naive(const Array &q, const Array &k, const Array &v, const Array &o, const Array &lse)
{
    double worst = 0;
    std::vector<double> p(SK);
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < HQ; h++)
            for (int64_t i = 0; i < SQ; i++) {
                const int64_t kv = h / (HQ / HKV);
                double sum = 0;
                for (int64_t j = 0; j < SK; j++) {
                    double s = 0;
                    for (int64_t x = 0; x < D; x++)
                        s += q.at(b, h, i, x) * k.at(b, kv, j, x);
                    p[static_cast<size_t>(j)] = std::exp(s / std::sqrt(static_cast<double>(D)));
                    sum += p[static_cast<size_t>(j)];
                }
                worst = larger(worst, std::fabs(std::log(sum) - lse.at(b, h, i, 0)));
                for (int64_t x = 0; x < DV; x++) {
                    double r = 0;
                    for (int64_t j = 0; j < SK; j++)
                        r += p[static_cast<size_t>(j)] / sum * v.at(b, kv, j, x);
                    worst = larger(worst, std::fabs(r - o.at(b, h, i, x)));
                }
            }
    return worst;
}

double run()
{
    Array q(HQ, SQ, D), k(HKV, SK, D), v(HKV, SK, DV), o(HQ, SQ, DV), lse(HQ, SQ, 1);
    Array o_left(HQ, SQ, DV), o_right(HQ, SQ, DV), lse_left(HQ, SQ, 1), lse_right(HQ, SQ, 1);
    fill_random(q);
    fill_random(k);
    fill_random(v);

    const qattn_tensor o_parts[2] = { o_left.all(), o_right.all() };
    const qattn_tensor lse_parts[2] = { lse_left.all(), lse_right.all() };
    const int64_t edges[3] = { 0, SPLIT, SK };
    const qattn_tensor tq = q.all();
    for (int n = 0; n < 2; n++) {
        const qattn_tensor tk = k.rows(edges[n], edges[n + 1]), tv = v.rows(edges[n], edges[n + 1]);
        qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
        params.lse = lse_parts[n];
        require(qattn_flash_forward(&tq, &tk, &tv, &o_parts[n], &params, nullptr));
    }
    const qattn_tensor to = o.all(), tlse = lse.all();
    require(qattn_merge(2, o_parts, lse_parts, &to, &tlse, nullptr, nullptr));
    return compare_with_naive(q, k, v, o, lse);
}

} // namespace

int main()
{
    try {
        const double worst = run();
        std::printf("attention: two merged halves, largest difference from the naive loop %.1e\n", worst);
        return worst < 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return EXIT_FAILURE;
    }
}
