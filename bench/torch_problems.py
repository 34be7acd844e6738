# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""Problems of compare_torch.py: their tensors, a float64 reference on sampled rows, and the calls of libqattn.

Tensors are [B, H, S, D] views, whatever their order in memory. A problem has one or more sets of inputs of the same
shapes, used in turn so that a decode step finds its cache in memory and not in L2.
"""
import math

import torch

ROTATE_BYTES = 320 << 20
UNIT = {torch.bfloat16: 2.0 ** -8, torch.float16: 2.0 ** -11, torch.float32: 2.0 ** -18}
TF32_UNIT = 2.0 ** -10


class LeftOut(Exception):
    """This candidate has nothing to show for the problem; the text says why."""


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def heads_last(b, h, s, d, dtype):
    """[B, H, S, D], lying in memory as [B, S, H, D]."""
    return normal(b, s, h, d, dtype=dtype).transpose(1, 2)


def spread_rows(count):
    """Up to 24 of `count` rows: the ends and some between."""
    rows = {0, 1, 63, 64, 127, 128, count // 2, count - 2, count - 1}
    rows |= set(torch.randint(count, (15,), generator=torch.Generator().manual_seed(count)).tolist())
    return torch.tensor(sorted(r for r in rows if 0 <= r < count), device="cuda")


class Problem:
    """What all have. bias: [1 or Hq, Sq, Sk] or None; keep: [Sq, Sk] booleans or None; slopes: [Hq] or None."""
    causal, window, softcap, slopes, bias, keep = False, None, 0.0, None, None, None
    sets = 1

    def pairs(self):
        """Visible pairs of query and key of one head, over all sequences."""
        raise NotImplementedError

    def samples(self):
        """(q [R, D], k [S, D], v [S, D], head, row numbers, positions, function: output -> its rows [R, D])"""
        raise NotImplementedError

    def ours(self, binding, variant):
        """Function of a set's number that runs libqattn and returns O; the binding's explain text in .row."""
        raise NotImplementedError

    @property
    def flop(self):
        return 4 * self.hq * self.d * self.pairs()

    def scores(self, q, k, head, rows, pos):
        """float64 [R, S], hidden keys -inf."""
        s = q.double() @ k.double().T / math.sqrt(self.d)
        if self.softcap:
            s = self.softcap * torch.tanh(s / self.softcap)
        j = torch.arange(k.shape[0], device="cuda")
        if self.bias is not None:
            s += self.bias[head % self.bias.shape[0]][rows].double()
        if self.slopes is not None:
            s -= self.slopes[head].double() * (pos[:, None] - j).abs()
        if self.causal:
            s.masked_fill_(j > pos[:, None], -math.inf)
        if self.window:
            s.masked_fill_((j < pos[:, None] - self.window[0]) | (j > pos[:, None] + self.window[1]), -math.inf)
        if self.keep is not None:
            s.masked_fill_(~self.keep[rows], -math.inf)
        return s

    def error(self, out, unit):
        """Largest |O - O64| over its bound, (3 unit + 2^-16) sum p |v|: above 1 the answer is wrong. NaN: infinity."""
        worst = 0.0
        for q, k, v, head, rows, pos, pick in self.samples():
            p = torch.softmax(self.scores(q, k, head, rows, pos), -1)
            v = v.double()
            difference = (pick(out).double() - p @ v).abs() / ((3 * unit + 2.0 ** -16) * (p @ v.abs()))
            worst = max(worst, difference.nan_to_num(nan=math.inf).max().item())
        return worst


class Dense(Problem):
    """One length for all sequences. order: "BSHD" or "BHSD", how q, k and v lie in memory."""

    def __init__(self, b, hq, hkv, sq, sk, d, dtype=torch.bfloat16, order="BSHD", rotate=False, **options):
        self.b, self.hq, self.hkv, self.sq, self.sk, self.d = b, hq, hkv, sq, sk, d
        self.dtype, self.order = dtype, order
        self.bytes = 2 * b * hkv * sk * d * dtype.itemsize
        self.sets = max(1, min(64, -(-ROTATE_BYTES // self.bytes))) if rotate else 1
        make = heads_last if order == "BSHD" else lambda b, h, s, d, dtype: normal(b, h, s, d, dtype=dtype)
        self.q = make(b, hq, sq, d, dtype)
        self.kv = [(make(b, hkv, sk, d, dtype), make(b, hkv, sk, d, dtype)) for _ in range(self.sets)]
        for name, value in options.items():
            setattr(self, name, value)

    def pairs(self):
        if self.window:
            left, right = self.window
            i = torch.arange(self.sq) + self.sk - self.sq
            last = (i if self.causal else i + right).clamp(max=self.sk - 1)
            return self.b * int((last - (i - left).clamp(min=0) + 1).sum())
        return self.b * self.sq * self.sk / (2 if self.causal else 1)      # half: the field's convention

    def samples(self):
        rows = spread_rows(self.sq)
        for b, h in {(0, 0), (self.b // 2, self.hq // 2), (self.b - 1, self.hq - 1)}:
            kv = h // (self.hq // self.hkv)
            yield (self.q[b, h, rows], self.kv[0][0][b, kv], self.kv[0][1][b, kv], h, rows, rows + self.sk - self.sq,
                   lambda out, b=b, h=h: out[b, h, rows])

    def ours(self, binding, variant):
        """variant: words: "gqa" for three kernels, "3xtf32", "tf32"."""
        words = variant.split()
        operation = "gqa_forward" if "gqa" in words else "flash_forward"
        precision = binding.PRECISION_3XTF32 if "3xtf32" in words else binding.PRECISION_TF32 if "tf32" in words else 0
        mask = (binding.MASK_CAUSAL if self.causal else 0) | (binding.MASK_WINDOW if self.window else 0)
        options = {"mask": mask, "softcap": self.softcap, "precision": precision, "alibi_slopes": self.slopes,
                   "bias": self.bias, "keep": self.keep}
        if self.window:
            options.update(window_left=self.window[0], window_right=self.window[1])
        out = torch.empty_like(self.q)
        function, explain = (getattr(binding, operation + end) for end in ("", "_explain"))

        def run(i):
            return function(self.q, *self.kv[i], out, **options)
        run.row = explain(self.q, *self.kv[0], out, **options)
        return run


class Paged(Problem):
    """One query row a sequence over a cache of keys in memory order [B, S, Hkv, D], read as it is or as pages of that
    memory in a shuffled order. variant: "" or "page N"."""

    def __init__(self, b, hq, hkv, sk, d, dtype=torch.bfloat16):
        self.b, self.hq, self.hkv, self.sk, self.d, self.dtype = b, hq, hkv, sk, d, dtype
        self.bytes = 2 * b * hkv * sk * d * dtype.itemsize
        self.sets = max(1, min(64, -(-ROTATE_BYTES // self.bytes)))
        self.q = normal(b, 1, hq, d, dtype=dtype)
        self.kv = [(normal(b, sk, hkv, d, dtype=dtype), normal(b, sk, hkv, d, dtype=dtype)) for _ in range(self.sets)]
        self.used = torch.full((b,), sk, device="cuda", dtype=torch.int32)
        self.tables = {}

    def pairs(self):
        return self.b * self.sk

    def table(self, page):
        count = self.b * self.sk // page
        if page not in self.tables:
            self.tables[page] = torch.randperm(count, device="cuda").to(torch.int32).view(self.b, self.sk // page)
        return self.tables[page]

    def samples(self):
        rows = torch.zeros(1, dtype=torch.int64, device="cuda")
        for b, h in {(0, 0), (self.b // 2, self.hq // 2), (self.b - 1, self.hq - 1)}:
            k, v = (self.gather(x, b)[:, h // (self.hq // self.hkv)] for x in self.kv[0])
            yield self.q[b, rows, h], k, v, h, rows, rows + self.sk - 1, lambda out, b=b, h=h: out[b, rows, h]

    def gather(self, cache, b):
        """Keys of sequence b, [S, Hkv, D], as the candidate that is being checked reads them."""
        if not self.page:
            return cache[b]
        return cache.view(-1, self.page, self.hkv, self.d)[self.table(self.page)[b].long()].flatten(0, 1)

    page = 0

    def ours(self, binding, variant):
        page = int(variant.split()[1]) if variant else 0
        options = {"layout": "BSHD"}
        kv = self.kv
        if page:
            kv = [[x.view(-1, page, self.hkv, self.d) for x in pair] for pair in self.kv]
            options.update(page_table=self.table(page), seqused_k=self.used)
        out = torch.empty_like(self.q)

        def run(i):
            self.page = page
            return binding.flash_forward(self.q, *kv[i], out, **options)
        run.row = binding.flash_forward_explain(self.q, *kv[0], out, **options)
        return run


def starts_of(lengths):
    """[0, l0, l0 + l1, ...] on the device."""
    return torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)


class Packed(Problem):
    """Sequences of unlike lengths one after the other, causal: q, k, v [T, H, D]."""
    causal = True

    def __init__(self, lengths, hq, hkv, d, dtype=torch.bfloat16):
        self.lengths, self.hq, self.hkv, self.d, self.dtype = lengths, hq, hkv, d, dtype
        self.starts, total = starts_of(lengths), sum(lengths)
        self.q, self.k, self.v = (normal(total, h, d, dtype=dtype) for h in (hq, hkv, hkv))

    def pairs(self):
        return sum(n * n / 2 for n in self.lengths)

    def samples(self):
        for n, h in {(0, 0), (len(self.lengths) // 2, self.hq // 2), (len(self.lengths) - 1, self.hq - 1)}:
            first, rows = sum(self.lengths[:n]), spread_rows(self.lengths[n])
            k, v = (x[first:first + self.lengths[n], h // (self.hq // self.hkv)] for x in (self.k, self.v))
            at = first + rows
            yield self.q[at, h], k, v, h, rows, rows, lambda out, at=at, h=h: out[at, h]

    def ours(self, binding, variant):
        longest = max(self.lengths)
        options = {"layout": "THD", "mask": binding.MASK_CAUSAL,
                   "cu_seqlens_q": self.starts, "cu_seqlens_k": self.starts,
                   "max_seqlen_q": longest, "max_seqlen_k": longest}
        out = torch.empty_like(self.q)

        def run(_):
            return binding.flash_forward(self.q, self.k, self.v, out, **options)
        run.row = binding.flash_forward_explain(self.q, self.k, self.v, out, **options)
        return run


class Mixed(Problem):
    """The engines' main call: packed queries over pages, `decodes` sequences with one new token over `context` keys and
    `prefills` with `prompt` new tokens over as many keys. variant: "one call", or "apart": decode, then prefill."""
    causal = True

    def __init__(self, decodes, context, prefills, prompt, hq, hkv, d, page, dtype=torch.bfloat16):
        self.rows, self.keys = [1] * decodes + [prompt] * prefills, [context] * decodes + [prompt] * prefills
        self.decodes, self.hq, self.hkv, self.d, self.page, self.dtype = decodes, hq, hkv, d, page, dtype
        self.starts, pages = starts_of(self.rows), len(self.rows) * context // page
        self.used = torch.tensor(self.keys, device="cuda", dtype=torch.int32)
        self.q = normal(sum(self.rows), hq, d, dtype=dtype)
        self.pools = [normal(pages, page, hkv, d, dtype=dtype) for _ in range(2)]
        self.table = torch.randperm(pages, device="cuda").to(torch.int32).view(len(self.rows), context // page)

    def pairs(self):
        return sum(r * k - r * (r - 1) // 2 for r, k in zip(self.rows, self.keys))

    def samples(self):
        for n, h in {(0, 0), (self.decodes - 1, self.hq // 2), (len(self.rows) - 1, self.hq - 1)}:
            first, rows = sum(self.rows[:n]), spread_rows(self.rows[n])
            pages, kv = self.table[n].long(), h // (self.hq // self.hkv)
            k, v = (pool[pages].flatten(0, 1)[:self.keys[n], kv] for pool in self.pools)
            at = first + rows
            yield (self.q[at, h], k, v, h, rows, rows + self.keys[n] - self.rows[n],
                   lambda out, at=at, h=h: out[at, h])

    def part(self, binding, first, last):
        """Arguments of a call over sequences first..last-1."""
        begin, end = sum(self.rows[:first]), sum(self.rows[:last])
        options = {"layout": "THD", "mask": binding.MASK_CAUSAL, "cu_seqlens_q": starts_of(self.rows[first:last]),
                   "seqused_k": self.used[first:last], "page_table": self.table[first:last],
                   "max_seqlen_q": max(self.rows[first:last]), "max_seqlen_k": max(self.keys[first:last])}
        return (self.q[begin:end], *self.pools, self.out[begin:end]), options

    def ours(self, binding, variant):
        self.out = torch.empty_like(self.q)
        cuts = [0, len(self.rows)] if variant == "one call" else [0, self.decodes, len(self.rows)]
        calls = [self.part(binding, *cut) for cut in zip(cuts, cuts[1:])]
        out = self.out

        def run(_):
            for arrays, options in calls:
                binding.flash_forward(*arrays, **options)
            return out
        run.row = binding.flash_forward_explain(*calls[0][0], **calls[0][1])
        return run
