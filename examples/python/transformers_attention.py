# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""libqattn as the attention of Hugging Face transformers. Copy it beside qattn.py.

    import transformers_attention                     # registers the name "qattn"
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="qattn", dtype=torch.bfloat16).cuda()

Grouped heads, sliding windows, softcap, sinks, boolean and additive 4-D masks, and decoding with a KV cache, on CPU
and CUDA. Queries, keys and values are read where the model has them, and the result is written as [B, S, H, D], the
order the output projection wants: nothing is copied. For inference only: there is no gradient and no dropout.

    QATTN_LIBRARY=/path/to/libqattn.so python3 transformers_attention.py     # a tiny random Qwen3 beside sdpa
"""
import sys

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

import qattn

NAME = "qattn"


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, sliding_window=None, softcap=None,
              s_aux=None, is_causal=None, position_bias=None, **_):
    """transformers' attention function. query [B, Hq, Sq, D]; key, value [B, Hkv, Sk, D]; attention_mask None, or
    [B or 1, Hq or 1, Sq, Sk], booleans (True: visible) or numbers to add. Returns ([B, Sq, Hq, Dv], None).

    Without a mask a causal module's last query sees the last key: a prompt, a later part of it, or one token."""
    if dropout:
        raise ValueError("libqattn has no dropout: call model.eval()")
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        raise ValueError("libqattn has no gradient: use torch.no_grad() or torch.inference_mode()")
    options = {"scale": scaling or 0.0, "softcap": softcap or 0.0}
    if attention_mask is not None:
        options.update(split_mask(attention_mask, key.shape[2]))
    else:
        options.update(masks_without_tensor(module, is_causal, sliding_window))
    if position_bias is not None:
        bias = options.get("bias")
        options["bias"] = position_bias if bias is None else position_bias + bias
    if s_aux is not None:                                  # one logit a head that takes weight and gives nothing
        options["sinks"] = s_aux.float()
    b, hq, sq, _ = query.shape
    out = torch.empty((b, sq, hq, value.shape[3]), dtype=query.dtype, device=query.device)
    qattn.flash_forward(query, key, value, out.transpose(1, 2), **options)
    return out, None


def split_mask(mask, keys):
    mask = mask[..., :keys]                                # a static cache's mask may be longer
    return {"keep": mask} if mask.dtype == torch.bool else {"bias": mask}


def masks_without_tensor(module, is_causal, sliding_window):
    if not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        return {"mask": 0}
    if not sliding_window:
        return {"mask": qattn.MASK_CAUSAL}
    return {"mask": qattn.MASK_CAUSAL | qattn.MASK_WINDOW, "window_left": sliding_window - 1, "window_right": 0}


def make_mask(**call):
    """transformers' mask function: None where attention() needs no mask tensor, so that hidden tiles are skipped and
    no S x S mask is made: causal or sliding-window patterns without padding. Else the 4-D booleans of sdpa. A padding
    mask is looked at, which waits for the device once a forward pass and cannot be captured in a graph: without
    padding, give none."""
    return None if is_plain(call) else sdpa_mask(**call)


def is_plain(call):
    if not call.get("allow_is_causal_skip", True) or "q_length" not in call or call.get("use_vmap"):
        return False                                       # another pattern, or a transformers that asks otherwise
    lengths = [call[name] for name in ("q_offset", "q_length", "kv_offset", "kv_length")]
    if not all(isinstance(n, int) for n in lengths) or lengths[0] + lengths[1] != lengths[2] + lengths[3]:
        return False                                       # the last query is not beside the last key
    window, padding = call.get("local_size"), call.get("attention_mask")
    if window is not None and not is_window(call["mask_function"], window):
        return False
    return padding is None or bool(padding.all())


def is_window(visible, size):
    """A window, not chunks: position `size` sees 1 and not 0."""
    def at(q, k):
        return bool(visible(*(torch.tensor(n) for n in (0, 0, q, k))))
    return at(size, 1) and not at(size, 0)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, make_mask)


def main():
    from transformers import Qwen3Config, Qwen3ForCausalLM
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = Qwen3Config(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=3, head_dim=32,
                         num_attention_heads=8, num_key_value_heads=4)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval().to(device)
    prompt = torch.randint(1000, (2, 50), device=device)
    logits, tokens = {}, {}
    for name in ("sdpa", NAME):
        model.set_attn_implementation(name)
        with torch.inference_mode():
            logits[name] = model(prompt).logits
            tokens[name] = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20,
                                          do_sample=False, pad_token_id=0)
    worst = (logits[NAME] - logits["sdpa"]).abs().max().item()
    same = torch.equal(tokens[NAME], tokens["sdpa"])
    print(qattn.build_info())
    print(f"Qwen3 on {device}: logits differ by {worst:.1e}, tokens {'equal' if same else 'DIFFER'}")
    return 0 if same and worst < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
