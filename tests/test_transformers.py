#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""examples/python/transformers_attention.py, and the binding's calls on torch tensors: tiny random models must give the
logits and the tokens that they give with transformers' own attention, on the CPU and on CUDA.

    python3 tests/test_transformers.py [-v] [name...]     # tests whose name contains one of these

Needs torch and transformers; what they lack (a device, a model) is skipped, and said.
"""
import os
import sys
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "examples", "python"))
try:
    import torch
    import transformers
except ImportError as e:
    print(f"skipped: {e.name} is not installed\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)
import qattn
import transformers_attention

VOCABULARY = 320
COMMON = {"vocab_size": VOCABULARY, "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "max_position_embeddings": 512,
          "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
WINDOWED = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
MODELS = {                     # name: (class of transformers, what it compares with, options)
    "llama": ("Llama", "sdpa", {}),
    "qwen3": ("Qwen3", "sdpa", {}),
    "qwen3_window": ("Qwen3", "sdpa", {"use_sliding_window": True, **WINDOWED}),
    "mistral_window": ("Mistral", "sdpa", {"sliding_window": 16}),
    "gemma2_softcap": ("Gemma2", "eager", {"attn_logit_softcapping": 4.0, "query_pre_attn_scalar": 24, **WINDOWED}),
    "gpt_oss_sinks": ("GptOss", "eager", {"num_local_experts": 4, "num_experts_per_tok": 4, **WINDOWED}),
}


class Skip(Exception):
    pass


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def make_model(name, device, dtype=torch.float32):
    kind, reference, options = MODELS[name]
    try:
        config_class, model_class = (getattr(transformers, kind + end) for end in ("Config", "ForCausalLM"))
    except AttributeError:
        raise Skip(f"transformers {transformers.__version__} has no {kind}") from None
    torch.manual_seed(3)
    model = model_class(config_class(**COMMON, **options)).eval().to(device, dtype)
    for parameter in model.parameters():                   # larger than a fresh model's, so that attention is not flat
        parameter.data *= 3 if parameter.ndim > 1 else 1
    for layer in model.model.layers:
        if hasattr(layer.self_attn, "sinks"):
            layer.self_attn.sinks.data.normal_()
    return model, reference


def both(model, reference, function):
    """function() with transformers' attention, then with libqattn, which must have been called."""
    results, calls = [], 0

    def count(*arguments, **options):
        nonlocal calls
        calls += 1
        return transformers_attention.attention(*arguments, **options)
    transformers.AttentionInterface.register(transformers_attention.NAME, count)
    for name in (reference, transformers_attention.NAME):
        model.set_attn_implementation(name)
        with torch.inference_mode():
            results.append(function())
    check(calls >= len(model.model.layers), f"libqattn was called {calls} times")
    return results


def check_close(got, expected, bound, what):
    difference, size = (got.float() - expected.float()).abs().max().item(), expected.float().std().item()
    check(difference <= bound * size, f"{what}: differs by {difference:.2e}, standard deviation {size:.2e}")


def prompts(device, batch=2, length=40):
    return torch.randint(1, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(5)).to(device)


def check_logits(name, device, dtype, bound):
    model, reference = make_model(name, device, dtype)
    ids = prompts(device)
    check_close(*reversed(both(model, reference, lambda: model(ids).logits)), bound, "logits")


def check_tokens(name, device):
    """Prefill, then decode over a growing cache; with and without padding on the left."""
    model, reference = make_model(name, device)
    ids = prompts(device)
    padded = torch.ones_like(ids)
    padded[1, :9] = 0
    for mask in (torch.ones_like(ids), padded):
        expected, got = both(model, reference, lambda m=mask: model.generate(
            ids, attention_mask=m, max_new_tokens=24, do_sample=False, return_dict_in_generate=True,
            output_logits=True))
        check(torch.equal(got.sequences, expected.sequences), "other tokens")
        check_close(torch.stack(got.logits), torch.stack(expected.logits), 2e-4, "logits of the new tokens")


def check_parts(name, device):
    """A prompt in two parts: the second's queries see the cache of the first."""
    model, reference = make_model(name, device)
    ids = prompts(device)

    def run():
        first = model(ids[:, :25], use_cache=True)
        return model(ids[:, 25:], past_key_values=first.past_key_values).logits
    check_close(*reversed(both(model, reference, run)), 2e-4, "logits of the second part")


def check_additive(name, device):
    """A 4-D mask of numbers to add, as callers may pass."""
    model, reference = make_model(name, device)
    ids = prompts(device)
    hidden = torch.ones(ids.shape[1], ids.shape[1], device=device, dtype=torch.bool).triu(1)
    hidden[:, 3:6] |= ~torch.eye(ids.shape[1], device=device, dtype=torch.bool)[:, 3:6]
    mask = torch.zeros(2, 1, *hidden.shape, device=device).masked_fill_(hidden, torch.finfo(torch.float32).min)
    check_close(*reversed(both(model, reference, lambda: model(ids, attention_mask=mask).logits)), 2e-4, "logits")


def check_same_shapes_again(device):
    """The second call of the same shapes works on the second call's memory, and outputs are new each time."""
    def make():
        return [torch.randn(2, 4, 33, 16, device=device) for _ in range(3)]
    sinks = [torch.randn(4, device=device) for _ in range(2)]
    first, second = make(), make()
    results = [qattn.flash_forward(*x, mask=qattn.MASK_CAUSAL, sinks=s, lse=True)
               for x, s in zip((first, second), sinks)]
    for x, s, (o, lse) in zip((first, second), sinks, results):
        o2, lse2 = qattn.bind("flash_forward", *x, mask=qattn.MASK_CAUSAL, sinks=s, lse=True)()
        check(torch.equal(o, o2) and torch.equal(lse, lse2), "not what a bound call gives")
    out = torch.empty_like(first[0])
    for x in (first, second):
        given, lse = qattn.flash_forward(*x, out, mask=qattn.MASK_CAUSAL, lse=True)
        check(given is out, "out is not what was passed")
    check(torch.equal(out, qattn.flash_forward(*second, mask=qattn.MASK_CAUSAL)), "out holds another call's result")
    x = torch.randn(3, 5, 40, device=device)
    check(torch.allclose(qattn.softmax(x), torch.softmax(x, -1), atol=1e-6), "softmax")
    check(torch.allclose(qattn.softmax(2 * x), torch.softmax(2 * x, -1), atol=1e-6), "softmax again")
    try:
        qattn.flash_forward(*first, softcap=-1.0)
    except qattn.QattnError:
        pass
    else:
        check(False, "a negative softcap was taken")


def check_graph(device):
    """Captured in a CUDA graph and replayed with new data; decode too, whose scratch is then the graph's."""
    q, k, v = (torch.randn(2, h, s, 64, device=device, dtype=torch.bfloat16) for h, s in ((8, 1), (2, 3000), (2, 3000)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = qattn.flash_forward(q, k, v)
    for x in (q, k, v):
        x.copy_(torch.randn_like(x))
    graph.replay()
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), enable_gqa=True)
    check_close(o, expected, 3e-2, "replayed")


# ---------------------------------------------------------------- runner

def list_tests():
    """(name, function) of everything this machine can run."""
    for device in ("cpu", "cuda"):
        for name in MODELS:
            yield f"{name}_logits_f32_{device}", lambda d=device, n=name: check_logits(n, d, torch.float32, 2e-4)
            yield f"{name}_logits_bf16_{device}", lambda d=device, n=name: check_logits(n, d, torch.bfloat16, 0.15)
            yield f"{name}_tokens_{device}", lambda d=device, n=name: check_tokens(n, d)
            yield f"{name}_parts_{device}", lambda d=device, n=name: check_parts(n, d)
        yield f"qwen3_additive_{device}", lambda d=device: check_additive("qwen3", d)
        yield f"same_shapes_again_{device}", lambda d=device: check_same_shapes_again(d)
    yield "graph_cuda", lambda: check_graph("cuda")


def main(arguments):
    verbose, names = "-v" in arguments, [a for a in arguments if not a.startswith("-")]
    passed = failed = skipped = 0
    for name, function in list_tests():
        if names and not any(n in name for n in names):
            continue
        if name.endswith("_cuda") and not torch.cuda.is_available():
            skipped += 1
            continue
        try:
            function()
            passed += 1
            if verbose:
                print(f"ok   {name}", flush=True)
        except Skip as e:
            skipped += 1
            print(f"skip {name}: {e}")
        except Exception as e:
            failed += 1
            print(f"FAIL {name}: {type(e).__name__}: {e}", flush=True)
            if verbose and not isinstance(e, AssertionError):
                traceback.print_exc(file=sys.stdout)
    if not torch.cuda.is_available():
        print("skipped: the tests on CUDA, no device here")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
