# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""The suites of compare_torch.py: which problems, beside which peers, in which variants of libqattn's calls."""
import torch

from torch_problems import Dense, Mixed, Packed, Paged, normal

PREFILL_S = (512, 1024, 2048, 4096, 8192, 16384)
DECODE_B, DECODE_S = (1, 4, 16, 64), (1024, 4096, 16384, 65536)
PACKED_LENGTHS = [n for n in (4096, 128, 1024, 256, 2048, 512) for _ in range(2)] + [128, 128]


class Case:
    """name: readable and unique in its suite; make(): the Problem, made when its turn comes; peers: names of
    torch_peers.MAKERS; variants: of the problem's ours(); op: what plots group by."""

    def __init__(self, name, make, peers, variants=("",), op="flash"):
        self.name, self.make, self.peers, self.variants, self.op = name, make, peers, variants, op


def word(causal):
    return "causal" if causal else "full"


def prefill_fa(quick):
    """16k tokens, hidden size 2048, as FlashAttention's own benchmarks."""
    for d in (64, 128, 256):
        for causal in (False, True):
            for s in (512, 4096) if quick else PREFILL_S:
                peers = ["fa2", "cudnn", "fa3"] + (["efficient"] if s <= 2048 else [])
                yield Case(f"D{d} S{s} {word(causal)}", lambda d=d, s=s, causal=causal: Dense(
                    16384 // s, 2048 // d, 2048 // d, s, s, d, causal=causal), peers)


def decode(quick):
    """One query row a sequence, 32 query heads over 8, the cache read from memory."""
    for b in (1, 16) if quick else DECODE_B:
        for s in (1024, 16384) if quick else DECODE_S:
            yield Case(f"B{b} S{s}", lambda b=b, s=s: Dense(b, 32, 8, 1, s, 128, order="BHSD", rotate=True),
                       ["fa2", "cudnn", "fa3"])


def paged(quick):
    """The same in the memory order of caches, whole and as shuffled pages."""
    for b in (1, 16) if quick else DECODE_B:
        for s in (1024, 16384) if quick else DECODE_S:
            yield Case(f"B{b} S{s}", lambda b=b, s=s: Paged(b, 32, 8, s, 128), [], ["", "page 16", "page 64"])


def masks(quick):
    """What models add, B4 H16 S4096 D128."""
    s, h = 4096, 16

    def make(**options):
        return lambda: Dense(4, h, h, s, s, 128, order="BHSD",
                             **{name: x() if callable(x) else x for name, x in options.items()})

    def slopes():
        return torch.tensor([2.0 ** (-8 * (i + 1) / h) for i in range(h)], device="cuda")

    def half():
        keep = torch.rand(s, s, device="cuda") < 0.5
        return keep.fill_diagonal_(True)
    torch_masks = ["cudnn", "efficient", "flex"]
    yield Case("softcap full", make(softcap=50.0), ["flex", "fa3"])
    yield Case("softcap causal", make(softcap=50.0, causal=True), ["flex", "fa3"])
    yield Case("full", make(), ["fa2", "cudnn", "efficient", "flex", "fa3"])
    yield Case("causal", make(causal=True), ["fa2", "cudnn", "flex", "fa3"])
    yield Case("window 1024", make(causal=True, window=(1023, 0)), ["fa2 window", "flex"])
    yield Case("alibi causal", make(slopes=slopes, causal=True), ["flex"])
    yield Case("bias HSS", make(bias=lambda: normal(h, s, s)), torch_masks)
    if not quick:
        yield Case("bias SS", make(bias=lambda: normal(1, s, s)), torch_masks)
    yield Case("keep SS", make(keep=half), torch_masks)
    if not quick:
        yield Case("bias softcap causal", make(bias=lambda: normal(h, s, s), softcap=50.0, causal=True), ["flex"])


def gqa_qwen3(quick):
    """Qwen3-0.6B's attention, 16 query heads over 8, width 128: three kernels beside one pass, bf16 and f32."""
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float32, "f32")):
        peers, variants = ["three", "math"], ["gqa", ""]
        if dtype == torch.float32:
            peers += ["three tf32", "math tf32", "efficient"]
            variants += ["gqa tf32", "3xtf32", "tf32"]
        else:
            peers += ["fa2", "cudnn", "fa3"]
        for s in (2048,) if quick else (2048, 4096):
            for causal in (False, True):
                yield Case(f"{name} S{s} {word(causal)}", lambda s=s, causal=causal, dtype=dtype: Dense(
                    1, 16, 8, s, s, 128, dtype, "BHSD", causal=causal), peers, variants, "gqa")


def packed(quick):
    """Sequences of 128 to 4096 tokens, 16k in all, one after the other; and a padded batch with about as many keys a
    query, which is the rate to keep."""
    for d in (128,) if quick else (64, 128):
        h = 2048 // d
        yield Case(f"D{d} packed", lambda d=d, h=h: Packed(PACKED_LENGTHS, h, h, d), ["fa2 varlen"])
        yield Case(f"D{d} dense B6 S2816", lambda d=d, h=h: Dense(6, h, h, 2816, 2816, d, causal=True),
                   ["fa2", "cudnn"])


def mixed(quick):
    """60 decode rows over 4096 keys and 4 prompts of 512 tokens in one call over pages, and the two apart."""
    for page in (16, 64):
        yield Case(f"page {page}", lambda page=page: Mixed(60, 4096, 4, 512, 32, 8, 128, page), [],
                   ["one call", "apart"])


def small(quick):
    """Data in L2; launches and tails show."""
    shapes = [(8, 12, 128, 64), (1, 16, 77, 64), (1, 16, 128, 64), (1, 32, 512, 128)]
    for b, h, s, d in shapes[:2] if quick else shapes:
        for causal in (False, True):
            yield Case(f"B{b} H{h} S{s} D{d} {word(causal)}", lambda b=b, h=h, s=s, d=d, causal=causal: Dense(
                b, h, h, s, s, d, causal=causal), ["fa2", "cudnn", "efficient", "fa3"])


SUITES = {"prefill_fa": prefill_fa, "decode": decode, "paged": paged, "masks": masks, "gqa_qwen3": gqa_qwen3,
          "packed": packed, "mixed": mixed, "small": small}
