# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""Causal attention with grouped queries from Python, checked against the formula.

    QATTN_LIBRARY=/path/to/libqattn.so python3 hello.py

Runs on the standard library alone; with NumPy it also takes slices of a fused projection as they lie in memory.
"""
import ctypes
import math
import random
import sys

import qattn

try:
    import numpy as np
except ImportError:
    np = None


def run_plain():
    """ctypes arrays and view(): what a program without NumPy does. Returns the largest difference."""
    hq, hkv, s, d = 4, 2, 12, 8
    random.seed(6)
    q, k, v = ((ctypes.c_float * (h * s * d))(*(random.gauss(0, 1) for _ in range(h * s * d))) for h in (hq, hkv, hkv))
    o = (ctypes.c_float * (hq * s * d))()
    qattn.flash_forward(qattn.view(q, (1, hq, s, d)), qattn.view(k, (1, hkv, s, d)), qattn.view(v, (1, hkv, s, d)),
                        qattn.view(o, (1, hq, s, d)), mask=qattn.MASK_CAUSAL)

    def row(array, h, i):
        return array[(h * s + i) * d:(h * s + i + 1) * d]

    differences = []
    for h in range(hq):
        for i in range(s):
            keys, values = ([row(array, h // (hq // hkv), j) for j in range(i + 1)] for array in (k, v))
            p = [math.exp(sum(a * b for a, b in zip(row(q, h, i), key)) / math.sqrt(d)) for key in keys]
            expected = [sum(w * value[x] for w, value in zip(p, values)) / sum(p) for x in range(d)]
            differences += [abs(a - b) for a, b in zip(expected, row(o, h, i))]
    return largest(differences)


def run_numpy():
    """q, k, v as slices of one [B, S, heads*D] array, no copy; o in the order the next projection wants."""
    b, s, hq, hkv, d = 2, 200, 9, 3, 64
    qkv = np.random.default_rng(6).standard_normal((b, s, hq + 2 * hkv, d), dtype=np.float32)
    q, k, v = qkv[:, :, :hq], qkv[:, :, hq:hq + hkv], qkv[:, :, hq + hkv:]
    o, lse = qattn.flash_forward(q, k, v, layout="BSHD", mask=qattn.MASK_CAUSAL, lse=True)
    print(qattn.flash_forward_explain(q, k, v, o, layout="BSHD", mask=qattn.MASK_CAUSAL).splitlines()[0])

    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k.repeat(hq // hkv, 2), v.repeat(hq // hkv, 2)))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(d)
    p = np.exp(np.where(np.tri(s, dtype=bool), scores, -np.inf))
    expected = (p @ v / p.sum(-1, keepdims=True)).transpose(0, 2, 1, 3)
    return largest([np.abs(o - expected).max(), np.abs(lse - np.log(p.sum(-1))).max()])


def largest(differences):
    """max() that does not lose a NaN."""
    return math.nan if any(math.isnan(x) for x in differences) else float(max(differences))


def main():
    print(qattn.build_info())
    worst = [run_plain()]
    if np:
        worst.append(run_numpy())
    else:
        print("NumPy is not installed: that part is skipped")
    print(f"hello.py: largest difference from the formula {largest(worst):.1e}")
    return 0 if largest(worst) < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
