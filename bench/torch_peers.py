# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""Attention that torch brings, and FlashAttention-3 where its wheel is installed, as candidates of compare_torch.py.

A maker takes a problem and returns a function of an input set's number that gives O as the problem's own calls do,
or raises LeftOut with the reason.
"""
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_problems import Dense, LeftOut, Packed

BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}


def refuse(p, *features):
    """LeftOut if the problem has one of the features, attributes of Problem."""
    for name in features:
        value = getattr(p, name)
        if isinstance(value, torch.Tensor) or value:
            raise LeftOut(f"takes no {name}")


def additive_mask(p):
    """What torch's attn_mask wants: booleans or numbers to add, [B, Hq, Sq, Sk] by expansion."""
    mask = p.keep if p.keep is not None else p.bias
    return None if mask is None else mask.view(-1, p.sq, p.sk)[None].expand(p.b, p.hq, p.sq, p.sk)


def make_sdpa(name):
    def make(p):
        refuse(p, "softcap", "slopes", "window")
        if not isinstance(p, Dense):
            raise LeftOut("takes no packed or paged batches")
        mask, kv, grouped = additive_mask(p), p.kv, p.hq != p.hkv
        if mask is not None and (name == "fa2" or p.causal):
            raise LeftOut("takes no such mask")
        if name == "efficient" and grouped:                        # heads expanded before the timing
            kv, grouped = [[x.repeat_interleave(p.hq // p.hkv, 1) for x in pair] for pair in kv], False

        def run(i):
            with sdpa_kernel(BACKENDS[name]):
                return F.scaled_dot_product_attention(p.q, *kv[i], attn_mask=mask, is_causal=p.causal and p.sq > 1,
                                                      enable_gqa=grouped)
        return run
    return make


def make_math_tf32(p):
    return with_tf32(make_sdpa("math")(p))


def with_tf32(run):
    def allowed(i):
        before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
        try:
            return run(i)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    return allowed


def make_three(p):
    """matmul, softmax, matmul with the scores in memory; heads of a group are rows of one product."""
    refuse(p, "softcap", "slopes", "window", "bias", "keep")
    group = p.hq // p.hkv
    q = p.q.reshape(p.b, p.hkv, group * p.sq, p.d)
    hidden = torch.ones(p.sq, p.sk, device="cuda", dtype=torch.bool).triu(1 + p.sk - p.sq)
    bias = torch.zeros(p.sq, p.sk, device="cuda", dtype=p.dtype).masked_fill_(hidden, -math.inf).repeat(group, 1)

    def run(i):
        k, v = p.kv[i]
        s = torch.matmul(q, k.transpose(-1, -2)).mul_(1 / math.sqrt(p.d))
        if p.causal:
            s.add_(bias)
        return torch.matmul(torch.softmax(s, -1), v).view(p.b, p.hq, p.sq, p.d)
    return run


def make_three_tf32(p):
    return with_tf32(make_three(p))


def make_fa2_varlen(p):
    if not isinstance(p, Packed):
        raise LeftOut("packed batches only")
    forward, longest = torch.ops.aten._flash_attention_forward, max(p.lengths)

    def run(_):
        return forward(p.q, p.k, p.v, p.starts, p.starts, longest, longest, 0.0, True, False)[0]
    return run


def make_fa2_window(p):
    """FlashAttention-2's own window, which scaled_dot_product_attention does not reach."""
    refuse(p, "softcap", "slopes", "bias", "keep")
    q, pairs = p.q.transpose(1, 2), [[x.transpose(1, 2) for x in pair] for pair in p.kv]

    def run(i):
        return torch.ops.aten._flash_attention_forward(
            q, *pairs[i], None, None, p.sq, p.sk, 0.0, p.causal, False, window_size_left=p.window[0],
            window_size_right=p.window[1])[0].transpose(1, 2)
    return run


def make_fa3(p):
    refuse(p, "slopes", "window", "bias", "keep")
    try:
        import fa3_fwd_interface as fa3
    except ImportError as e:
        raise LeftOut("fa3_fwd_interface is not installed") from e
    if not isinstance(p, Dense) or p.dtype == torch.float32:
        raise LeftOut("16-bit dense batches only")
    q, pairs = p.q.transpose(1, 2), [[x.transpose(1, 2) for x in pair] for pair in p.kv]
    if p.sq == 1:
        used = torch.full((p.b,), p.sk, device="cuda", dtype=torch.int32)
        return lambda i: fa3.flash_attn_with_kvcache(q, *pairs[i], cache_seqlens=used, num_splits=0).transpose(1, 2)
    return lambda i: fa3.flash_attn_func(q, *pairs[i], causal=p.causal, softcap=p.softcap).transpose(1, 2)


def flex_parts(p):
    """score_mod and mask_mod of the problem, None where not needed."""
    def score(s, b, h, i, j):
        if p.softcap:
            s = p.softcap * torch.tanh(s / p.softcap)
        if p.bias is not None:
            s = s + (bias[h, i, j] if heads else bias[i, j])
        if p.slopes is not None:
            s = s - p.slopes[h] * (i - j)                          # causal: never negative
        return s

    def visible(b, h, i, j):
        seen = i >= j
        if p.window:
            seen = seen & (i - j <= p.window[0])
        return seen
    heads = p.bias is not None and p.bias.shape[0] > 1
    bias = None if p.bias is None else p.bias if heads else p.bias[0]
    scored = p.softcap or p.bias is not None or p.slopes is not None
    mask = (lambda b, h, i, j: p.keep[i, j]) if p.keep is not None else visible if p.causal else None
    return score if scored else None, mask


def make_flex(p):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    if not isinstance(p, Dense) or p.sq == 1:
        raise LeftOut("dense prefill only")
    score, mask = flex_parts(p)
    torch._dynamo.reset()                                          # one compilation a problem
    compiled = torch.compile(flex_attention, dynamic=False)
    block_mask = create_block_mask(mask, None, None, p.sq, p.sk, device="cuda") if mask else None
    return lambda i: compiled(p.q, *p.kv[i], score_mod=score, block_mask=block_mask, enable_gqa=p.hq != p.hkv)


MAKERS = {**{name: make_sdpa(name) for name in BACKENDS}, "math tf32": make_math_tf32, "three": make_three,
          "three tf32": make_three_tf32, "fa2 varlen": make_fa2_varlen, "fa2 window": make_fa2_window, "fa3": make_fa3,
          "flex": make_flex}
