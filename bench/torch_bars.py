# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""Bars: what libqattn has to reach beside its peers, judged from the times of one run of compare_torch.py."""
import math


class Results:
    """Median microseconds and FLOP by (suite, case, candidate)."""

    def __init__(self, row):
        self.row, self.us, self.flop = row, {}, {}

    def add(self, suite, case, candidate, us, flop):
        self.us[suite, case, candidate] = us
        self.flop[suite, case] = flop

    def cases(self, suite):
        return [case for s, case in self.flop if s == suite]

    def time(self, suite, case, candidate):
        """us, or None; "": libqattn's row; " gqa": a variant of it."""
        name = self.row + candidate if candidate == "" or candidate[0] == " " else candidate
        return self.us.get((suite, case, name))

    def ratio(self, suite, case, ours, other, other_case=None):
        """Time of the other over ours, None where either is missing."""
        a, b = self.time(suite, case, ours), self.time(suite, other_case or case, other)
        return b / a if a and b else None


def worst(pairs):
    """(ratio, where) of the least; None where there is nothing."""
    there = [(ratio, where) for ratio, where in pairs if ratio is not None]
    return min(there) if there else None


def over(r, suite, ours, other, cases=None):
    return [(r.ratio(suite, case, ours, other), case) for case in (cases or r.cases(suite))]


def geometric_mean(pairs):
    there = [ratio for ratio, _ in pairs if ratio is not None]
    return (math.exp(sum(map(math.log, there)) / len(there)), f"{len(there)} cells") if there else None


def packed_rates(r, width):
    """Rate of the packed batch over that of the dense one."""
    name, dense = f"D{width} packed", f"D{width} dense B6 S2816"
    a, b = r.time("packed", name, ""), r.time("packed", dense, "")
    return (r.flop["packed", name] / a) / (r.flop["packed", dense] / b) if a and b else None


def window_share(r):
    """Visible share of the full time over the window's time."""
    full, window = r.time("masks", "full", ""), r.time("masks", "window 1024", "")
    if not full or not window:
        return None
    return full * r.flop["masks", "window 1024"] / r.flop["masks", "full"] / window


def list_bars(r):
    """(text, least ratio, worst (ratio, where) or None)"""
    gqa = r.cases("gqa_qwen3")
    f32, bf16 = [c for c in gqa if c.startswith("f32")], [c for c in gqa if c.startswith("bf16")]
    dense = [c for c in ("bias HSS", "bias SS", "keep SS")]
    soft = ["softcap full", "softcap causal"]
    widths = [d for d in (64, 128) if ("packed", f"D{d} packed") in r.flop]
    m = "masks"
    return [
        ("prefill_fa >= 1.0x FA2, every cell", 1.0, worst(over(r, "prefill_fa", "", "fa2"))),
        ("prefill_fa >= 1.1x FA2, geometric mean", 1.1, geometric_mean(over(r, "prefill_fa", "", "fa2"))),
        ("decode >= 1.0x FA2, every cell", 1.0, worst(over(r, "decode", "", "fa2"))),
        ("gqa_forward bf16 >= 1.0x torch's three kernels", 1.0, worst(over(r, "gqa_qwen3", " gqa", "three", bf16))),
        ("gqa_forward f32 >= 1.0x torch's three kernels", 1.0, worst(over(r, "gqa_qwen3", " gqa", "three", f32))),
        ("flash f32 IEEE >= 1.2x torch math", 1.2, worst(over(r, "gqa_qwen3", "", "math", f32))),
        ("flash f32 3xTF32 >= 1.0x torch efficient", 1.0, worst(over(r, "gqa_qwen3", " 3xtf32", "efficient", f32))),
        ("bias and keep: full time / their time >= 0.7", 0.7, worst((r.ratio(m, c, "", "", "full"), c) for c in dense)),
        ("bias and keep >= 1.0x torch efficient", 1.0, worst(over(r, m, "", "efficient", dense))),
        ("keep >= 1.0x cuDNN", 1.0, worst(over(r, m, "", "cudnn", ["keep SS"]))),
        ("softcap >= 1.0x flex", 1.0, worst(over(r, m, "", "flex", soft))),
        ("window: visible share of the full time / its time >= 1/1.2", 1 / 1.2, worst([(window_share(r), "window")])),
        ("alibi: causal time / its time >= 0.85", 0.85, worst([(r.ratio(m, "alibi causal", "", "", "causal"), "")])),
        ("paged 16: contiguous time / its time >= 1/1.1", 1 / 1.1, worst(over(r, "paged", " page 16", ""))),
        ("paged 64: contiguous time / its time >= 1/1.1", 1 / 1.1, worst(over(r, "paged", " page 64", ""))),
        ("packed prefill >= 0.95x dense rate", 0.95, worst((packed_rates(r, d), f"D{d}") for d in widths)),
        ("packed prefill >= 1.0x FA2 varlen", 1.0, worst(over(r, "packed", "", "fa2 varlen"))),
        ("mixed: apart / one call >= 1/1.15", 1 / 1.15, worst(over(r, "mixed", " one call", " apart"))),
        ("host time of a call with a workspace, less an empty one, <= 5 us", 1.0,
         host_bar(r, 5.0, "bound call", "bound call, keys split")),
        ("host time of a refusal, less an empty call, <= 2 us", 1.0, host_bar(r, 2.0, "refused call")),
    ]


def host_bar(r, limit, *calls):
    """The library's own time: what the slowest of the calls takes more than an empty one with the same arguments."""
    *us, empty = (r.us.get(("host", "B1 H16 S128 D64", f"libqattn, {what}")) for what in (*calls, "empty call"))
    if not all((*us, empty)):
        return None
    own = max(us) - empty
    torch = r.us.get(("host", "B1 H16 S128 D64", "sdpa fa2"))
    beside = f"; torch's own call {torch:.2f}" if torch else ""
    return limit / own, (f"{own:.2f} us more than an empty call; {max(us):.2f} through ctypes with its {empty:.2f}"
                         f"{beside}: hosts differ")


def print_bars(r):
    """Prints a line a bar; returns how many are missed."""
    missed = 0
    print(f"\nBars, row {r.row} (ratio above 1: libqattn is faster)")
    for text, least, found in list_bars(r):
        if found is None:
            print(f"  -       {text}: not measured")
            continue
        good = found[0] >= least
        missed += not good
        print(f"  {'met' if good else 'MISSED':7} {text}: {found[0]:.3f} ({found[1]})")
    return missed
