#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""examples/python/qattn.py against include/qattn.h and against the library: layout, constants, prototypes, the
size-first rule, calls, wrong calls, DLPack. The library: QATTN_LIBRARY=path, else as qattn.py finds it.

    python3 tests/test_ctypes.py [-v] [name...]     # test functions whose name contains one of these

Needs the standard library only. What needs NumPy, ml_dtypes or torch is skipped where they are missing.
"""
import ctypes
import math
import os
import random
import re
import sys
import threading
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "examples", "python"))
import qattn  # noqa: E402


class Skip(Exception):
    pass


def need(module):
    try:
        return __import__(module)
    except ImportError:
        raise Skip(f"{module} is not installed") from None


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def check_equal(got, expected, what):
    check(got == expected, f"{what}: got {got!r}, expected {expected!r}")


def check_refused(status, call):
    """The call raises QattnError with that status, its name and a text."""
    try:
        call()
    except qattn.QattnError as e:
        check_equal(e.status, status, f"status ({e})")
        check_equal(e.name, qattn.status_name(status), "name")
        check(len(e.text) > 10, f"text too short: {e.text!r}")
        return e
    raise AssertionError(f"accepted; expected {qattn.status_name(status)}")


def check_raises(kind, call, word=""):
    """The call raises `kind` with `word` in its text, which is returned."""
    try:
        call()
    except kind as e:
        check(word in str(e), f"{word!r} is not in {e}")
        return str(e)
    raise AssertionError(f"accepted; expected {kind}")


# ---------------------------------------------------------------- the header

def read_header():
    with open(os.path.join(ROOT, "include", "qattn.h"), encoding="utf-8") as f:
        return re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)


HEADER = read_header()
STRUCTS = {"qattn_tensor": qattn.Tensor, "qattn_attn_params": qattn.AttnParams,
           "qattn_matmul_params": qattn.MatmulParams, "qattn_softmax_params": qattn.SoftmaxParams,
           "qattn_merge_params": qattn.MergeParams}
C_TYPES = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
           "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "float": ctypes.c_float, "void*": ctypes.c_void_p,
           "char*": ctypes.c_char_p, "qattn_stream": ctypes.c_void_p, "qattn_tensor": qattn.Tensor,
           "size_t*": ctypes.POINTER(ctypes.c_size_t), "int64_t*": ctypes.POINTER(ctypes.c_int64)}
C_TYPES.update({name + "*": ctypes.POINTER(struct) for name, struct in STRUCTS.items()})
C_SIZES = {"int32_t": 4, "uint32_t": 4, "float": 4, "qattn_tensor": 96}         # everything else has 8 bytes


def header_constants():
    return {n: int(v, 0) for n, v in re.findall(r"#define QATTN_(\w+)[ ]+(0x[0-9A-Fa-f]+|\d+)\s*\n", HEADER)}


def header_fields(struct):
    """[(name, C type without const, count)] of a struct, in order."""
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", HEADER, re.S).group(1)
    fields = []
    for declaration in body.split(";"):
        words = declaration.replace("*", "* ").replace("const", "").split()
        if words:
            kind, names = words[0], "".join(words[1:])
            if names.startswith("*"):
                kind, names = kind + "*", names[1:]
            for name in names.split(","):
                name, count = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", name).groups()
                fields.append((name, kind, int(count or 1)))
    return fields


def header_functions():
    """{name: (result, [argument types])} without const and argument names."""
    functions = {}
    for result, name, arguments in re.findall(r"QATTN_API\s+([\w\s*]+?)(qattn_\w+)\(([^)]*)\);", HEADER):
        types = []
        for argument in arguments.split(","):
            words = argument.replace("const", "").replace("*", "* ").split()
            if words != ["void"]:
                types.append("".join(words[:-1]))
        functions[name] = (result.replace("const", "").replace(" ", ""), types)
    return functions


def test_header_constants():
    constants = header_constants()
    check(len(constants) > 60, f"only {len(constants)} constants found in the header")
    for name, value in constants.items():
        check_equal(getattr(qattn, name, None), value, f"qattn.{name} against the header")
        check_equal(qattn.query("QATTN_" + name), value, f"library's QATTN_{name} against the header")
    groups = "VERSION|ABI_VERSION|DTYPE_|DEVICE_|FLAG_|MASK_|PRECISION_|LAYOUT_|OK$|ERR_"
    ours = [n for n in vars(qattn) if re.match(groups, n)]
    check_equal(sorted(set(ours) - set(constants)), [], "constants of qattn.py that the header does not have")


def test_header_structs():
    for c_name, struct in STRUCTS.items():
        offset = 0
        names = []
        for name, kind, count in header_fields(c_name):
            size = C_SIZES.get(kind, 8)
            offset = -(-offset // min(size, 8)) * min(size, 8)
            field = getattr(struct, name, None)
            check(field is not None, f"{struct.__name__} lacks {name}")
            expected_kind = ctypes.c_void_p if kind.endswith("*") else C_TYPES[kind]
            declared = dict(struct._fields_)[name]
            wanted = expected_kind if count == 1 else expected_kind * count
            check(declared is wanted, f"{c_name}.{name}: type {declared}")
            check_equal((field.offset, field.size), (offset, size * count), f"{c_name}.{name} against the header")
            check_equal(qattn.query(f"offsetof({c_name},{name})"), offset, f"library's offset of {c_name}.{name}")
            offset += size * count
            names.append(name)
        check_equal([n for n, _ in struct._fields_], names, f"fields of {c_name}")
        check_equal(ctypes.sizeof(struct), offset, f"size of {c_name} against the header")
        check_equal(qattn.query(f"sizeof({c_name})"), offset, f"library's size of {c_name}")


def test_header_functions():
    functions = header_functions()
    check_equal(sorted(functions), sorted("qattn_" + n for n in qattn._FUNCTIONS), "functions bound")
    for name, (result, arguments) in functions.items():
        bound = getattr(qattn.library(), name)
        check(bound.restype is C_TYPES[result], f"{name} returns {bound.restype}, the header says {result}")
        check_equal(bound.argtypes, [C_TYPES[a] for a in arguments], f"arguments of {name}")
    for name in qattn._OPERATIONS:
        for twin in ("", "_workspace", "_explain", "_prepare"):
            check(callable(getattr(qattn, name + twin, None)) and getattr(qattn, name + twin).__doc__, name + twin)


def test_versions_and_names():
    constants = header_constants()
    check_equal(qattn.version(), constants["VERSION"], "version of the library")
    check_equal(qattn.abi_version(), constants["ABI_VERSION"], "ABI version of the library")
    info = qattn.build_info()
    check("\n" not in info and len(info) > 10, f"build info {info!r}")
    for name, value in constants.items():
        if name.startswith("ERR_") or name == "OK":
            check_equal(qattn.status_name(value), "QATTN_" + name, f"name of {value}")
            check(len(qattn.status_string(value)) > 5, f"sentence of {name}")
    check_equal(qattn.status_name(77), "QATTN_ERR_UNKNOWN", "name of an unknown status")
    check_refused(qattn.ERR_UNKNOWN_NAME, lambda: qattn.query("QATTN_NO_SUCH_THING"))
    check_refused(qattn.ERR_UNKNOWN_NAME, lambda: qattn.query("sizeof(qattn_tensor"))


# ---------------------------------------------------------------- calls with the standard library alone

def floats(n, seed):
    r = random.Random(seed)
    return (ctypes.c_float * n)(*(r.uniform(-1, 1) for _ in range(n)))


def small_problem(hq=4, hkv=2, sq=5, sk=9, d=6, dv=3):
    """q, k, v, o as Tensors on ctypes arrays; o holds NaN."""
    q, k, v = floats(hq * sq * d, 1), floats(hkv * sk * d, 2), floats(hkv * sk * dv, 3)
    o = (ctypes.c_float * (hq * sq * dv))(*[math.nan] * (hq * sq * dv))
    return (qattn.view(q, (1, hq, sq, d)), qattn.view(k, (1, hkv, sk, d)), qattn.view(v, (1, hkv, sk, dv)),
            qattn.view(o, (1, hq, sq, dv)))


def element(t, h, s, x):
    return t.owner[h * t.stride[1] + s * t.stride[2] + x * t.stride[3]]


def naive_row(q, k, v, h, i, keys):
    """(O row, LSE) of query row i of head h over the first `keys` keys."""
    hk = h // (q.shape[1] // k.shape[1])
    d = q.shape[3]
    s = [sum(element(q, h, i, x) * element(k, hk, j, x) for x in range(d)) / math.sqrt(d) for j in range(keys)]
    total = sum(math.exp(x) for x in s)
    row = [sum(math.exp(s[j]) * element(v, hk, j, x) for j in range(keys)) / total for x in range(v.shape[3])]
    return row, math.log(total)


def check_against_naive(q, k, v, o, lse=None, causal=True, tolerance=2e-6):
    for h in range(q.shape[1]):
        for i in range(q.shape[2]):
            row, l = naive_row(q, k, v, h, i, i + 1 + k.shape[2] - q.shape[2] if causal else k.shape[2])
            for x, expected in enumerate(row):
                got = element(o, h, i, x)
                check(abs(got - expected) <= tolerance, f"o[{h},{i},{x}] is {got}, expected {expected}")
            if lse is not None:
                check(abs(element(lse, h, i, 0) - l) <= 4 * tolerance, f"lse[{h},{i}]")


def untouched(o):
    return all(math.isnan(x) for x in o.owner)


def test_flash_forward_plain():
    q, k, v, o = small_problem()
    lse = qattn.view((ctypes.c_float * 20)(), (1, 4, 5, 1))
    check(qattn.flash_forward(q, k, v, o, mask=qattn.MASK_CAUSAL, lse=lse) is o, "the result is out itself")
    check_against_naive(q, k, v, o, lse)


def test_gqa_forward_plain():
    q, k, v, o = small_problem()
    scores = qattn.view((ctypes.c_float * (4 * 5 * 9))(), (1, 4, 5, 9))
    qattn.gqa_forward(q, k, v, o, scores=scores, scores_stage=3)
    check_against_naive(q, k, v, o, causal=False)
    for h in range(4):
        for i in range(5):
            row = [element(scores, h, i, j) for j in range(9)]
            check(abs(sum(row) - 1) < 1e-6 and min(row) > 0, f"probabilities of row {i}: {row}")


def test_strided_plain():
    """q with the last axis reversed and v broadcast over heads: strides -1 and 0."""
    q, k, v, o = small_problem()
    flat = qattn.view((ctypes.c_float * len(q.owner))(*q.owner), tuple(q.shape))
    for row in range(0, len(q.owner), 6):
        q.owner[row:row + 6] = q.owner[row:row + 6][::-1]
    q.data += 5 * 4
    q.stride[3] = -1
    v.stride[1] = 0
    qattn.flash_forward(q, k, v, o, mask=qattn.MASK_CAUSAL)
    check_against_naive(flat, k, v, o)


def test_lists_as_arrays():
    """seqused_k from a Python list: what lies past it counts for nothing."""
    q, k, v, o = small_problem(sq=1)
    for x in range(6 * 6, 9 * 6):                    # keys 6.. of head 0
        k.owner[x] = math.nan
    qattn.flash_forward(q, k, v, o, seqused_k=[6])
    k.shape[2] = v.shape[2] = 6                      # strides stay
    check_against_naive(q, k, v, o, causal=False)


def test_nested_lists():
    """page_table and alibi_slopes as lists of rows: two sequences over pages of two keys, each call one by one."""
    q, o = (qattn.view((ctypes.c_float * 8)(*values), (2, 2, 1, 2)) for values in (floats(8, 1), [math.nan] * 8))
    k, v = (qattn.view(floats(4 * 2 * 2, seed), (4, 1, 2, 2)) for seed in (2, 3))      # [pages, 1, page_size, D]
    table, slopes = [[3, 1], [0, 2]], [[0.5, 0.25], [0.125, 2.0]]
    qattn.flash_forward(q, k, v, o, page_table=table, seqused_k=[3, 4], alibi_slopes=slopes, q_offset=3,
                        mask=qattn.MASK_CAUSAL | qattn.MASK_OFFSET)
    call = qattn.bind("flash_forward", q, k, v, o, page_table=(tuple(table[0]), table[1]), seqused_k=[3, 4])
    check_equal((call.params.max_pages, call.params.page_table_stride), (2, 2), "derived fields")
    none = qattn.bind("flash_forward", q, k, v, o, page_table=[0, 0], seqused_k=[3, 4], max_pages=0)
    check_equal(none.params.max_pages, 0, "a field that is given")
    for lengths, error in (([3, 1 << 31], ValueError), ([3, 4.5], TypeError)):
        check_raises(error, lambda: qattn.bind("flash_forward", q, k, v, o, page_table=table, seqused_k=lengths),
                     "seqused_k")
    for b, keys in ((0, 3), (1, 4)):
        at = [table[b][j // 2] * 4 + j % 2 * 2 for j in range(keys)]                   # of each key in k and v
        for h in range(2):
            x = 4 * b + 2 * h
            s = [(q.owner[x] * k.owner[a] + q.owner[x + 1] * k.owner[a + 1]) / math.sqrt(2) - slopes[b][h] * (3 - j)
                 for j, a in enumerate(at)]
            for d in range(2):
                expected = sum(math.exp(y) * v.owner[a + d] for y, a in zip(s, at)) / sum(math.exp(y) for y in s)
                check(abs(o.owner[x + d] - expected) < 2e-6, f"o[{b},{h},{d}] is {o.owner[x + d]}, not {expected}")


def test_matmul_and_softmax_plain():
    a, b = qattn.view(floats(6, 5), (1, 1, 2, 3)), qattn.view(floats(12, 6), (1, 1, 4, 3))
    c = qattn.view((ctypes.c_float * 8)(), (1, 1, 2, 4))
    qattn.matmul_nt(a, b, c, alpha=2)
    for i in range(2):
        for j in range(4):
            expected = 2 * sum(element(a, 0, i, x) * element(b, 0, j, x) for x in range(3))
            check(abs(element(c, 0, i, j) - expected) < 1e-6, f"c[{i},{j}]")
    x = list(c.owner)
    qattn.softmax(c, c, num_threads=1)               # in place
    for i in range(2):
        total = sum(math.exp(y) for y in x[4 * i:4 * i + 4])
        for j in range(4):
            check(abs(element(c, 0, i, j) - math.exp(x[4 * i + j]) / total) < 1e-6, f"softmax[{i},{j}]")


def test_merge_plain():
    """Two halves of the keys, merged, against all keys."""
    q, k, v, whole = small_problem(sk=10)
    qattn.flash_forward(q, k, v, whole)
    parts, lses = [], []
    for half in range(2):
        kk, vv = (qattn.view(ctypes.addressof(t.owner) + 5 * half * t.shape[3] * 4, (1, 2, 5, t.shape[3]),
                             tuple(t.stride)) for t in (k, v))
        o, lse = qattn.view((ctypes.c_float * 60)(), (1, 4, 5, 3)), qattn.view((ctypes.c_float * 20)(), (1, 4, 5, 1))
        qattn.flash_forward(q, kk, vv, o, lse=lse)
        parts.append(o)
        lses.append(lse)
    o = qattn.view((ctypes.c_float * 60)(), (1, 4, 5, 3))
    qattn.merge(parts, lses, o)
    check(max(abs(a - b) for a, b in zip(o.owner, whole.owner)) < 1e-6, "merged halves against the whole")


def test_twins():
    q, k, v, o = small_problem()
    q.data = k.data = v.data = o.data = None
    check(qattn.flash_forward_workspace(q, k, v, o) >= 0, "bytes")
    q, k, v, o = small_problem()
    first = qattn.flash_forward_explain(q, k, v, o).splitlines()[0]
    check(re.fullmatch(r"ref|cpu\.\w+(\.\w+)*", first), f"first line of explain: {first!r}")
    qattn.flash_forward_prepare(q, k, v, o)
    check(untouched(o), "a twin wrote to o")
    v.shape[2] = 4
    for twin in (qattn.flash_forward_workspace, qattn.flash_forward_explain, qattn.flash_forward_prepare):
        check("v.shape[2]" in check_refused(qattn.ERR_BAD_SHAPE, lambda: twin(q, k, v, o)).text, "the argument's name")
    buf = ctypes.create_string_buffer(b"\x7f" * 15, 16)
    status = qattn.library().qattn_flash_forward_explain(q, k, v, o, None, buf, 8)
    check_equal(status, qattn.ERR_BAD_SHAPE, "explain of a refused call")
    check(b"\0" in buf.raw[:8] and buf.raw[8:15] == b"\x7f" * 7, f"explain's buffer of 8: {buf.raw!r}")


def test_workspace_given():
    q, k, v, o = small_problem()
    size = qattn.gqa_forward_workspace(q, k, v, o)
    buf = (ctypes.c_byte * (size + 512))()
    start = -ctypes.addressof(buf) % 256
    scratch = (ctypes.c_byte * max(size, 256)).from_buffer(buf, start)
    qattn.gqa_forward(q, k, v, o, workspace=scratch, mask=qattn.MASK_CAUSAL)
    check_against_naive(q, k, v, o)
    if size:
        _, _, _, o = small_problem()
        small = (ctypes.c_byte * (size - 1)).from_buffer(buf, start) if size > 1 else None
        if small is not None:
            error = check_refused(qattn.ERR_WORKSPACE, lambda: qattn.gqa_forward(q, k, v, o, workspace=small))
            check(re.search(r"\d+", error.text), f"the text gives no bytes: {error.text}")
            check(untouched(o), "a refused call wrote")


def call_raw(size, edit=None):
    """flash_forward with a params struct of `size` bytes, the known part zero but for struct_size."""
    q, k, v, o = small_problem()
    raw = (ctypes.c_byte * max(size, 16))()
    ctypes.c_size_t.from_buffer(raw).value = size
    if edit:
        edit(raw)
    params = ctypes.cast(raw, ctypes.POINTER(qattn.AttnParams))
    status = qattn.library().qattn_flash_forward(q, k, v, o, params, None)
    if status:
        check(untouched(o), "a refused call wrote to o")
    else:
        check_against_naive(q, k, v, o, causal=False)
    return status


def test_size_first():
    known = ctypes.sizeof(qattn.AttnParams)
    check_equal(call_raw(known), qattn.OK, "exact size")
    check_equal(call_raw(known + 64), qattn.OK, "a newer caller, surplus zero")
    check_equal(call_raw(4096), qattn.OK, "the largest size, surplus zero")
    for size, at in ((known + 64, known), (known + 64, known + 40), (known + 8, known + 7), (4096, 4095)):
        status = call_raw(size, lambda raw: raw.__setitem__(at, 1))
        check_equal(status, qattn.ERR_PARAMS_TOO_NEW, f"{size} bytes, byte {at} set")
    for size in (0, 8, known - 8, known + 4, 4104):
        check_equal(call_raw(size), qattn.ERR_STRUCT_SIZE, f"struct_size {size}")
    reserved = qattn.AttnParams.reserved0.offset
    check_equal(call_raw(known, lambda raw: raw.__setitem__(reserved, 1)), qattn.ERR_RESERVED, "reserved0 set")


def test_refused_calls():
    q, k, v, o = small_problem()
    odd_k = qattn.view(floats(3 * 54, 8), (1, 3, 9, 6))
    wrong = [
        (qattn.ERR_UNKNOWN_BITS, dict(mask=1 << 20)),
        (qattn.ERR_UNKNOWN_BITS, dict(flags=1 << 40)),
        (qattn.ERR_BAD_VALUE, dict(scale=math.inf)),
        (qattn.ERR_BAD_VALUE, dict(softcap=-1.0)),
        (qattn.ERR_BAD_VALUE, dict(num_threads=-1)),
        (qattn.ERR_BAD_VALUE, dict(mask=qattn.MASK_WINDOW, window_left=-2)),
        (qattn.ERR_COMBINATION, dict(mask=qattn.MASK_TOP_LEFT | qattn.MASK_OFFSET)),
        (qattn.ERR_STREAM, dict(stream=8)),
    ]
    for status, fields in wrong:
        check_refused(status, lambda: qattn.flash_forward(q, k, v, o, **fields))
    check_refused(qattn.ERR_BAD_SHAPE, lambda: qattn.flash_forward(q, odd_k, v, o))
    wide_v = qattn.view(floats(2 * 54, 9), (1, 2, 9, 6))
    check_refused(qattn.ERR_ALIAS, lambda: qattn.flash_forward(q, k, wide_v, q))
    check_refused(qattn.ERR_NULL_POINTER, lambda: qattn.flash_forward(q, k, v, qattn.view(None, tuple(o.shape))))
    elsewhere = qattn.view(q.owner, tuple(q.shape), device_type=7)
    check_refused(qattn.ERR_BAD_DEVICE, lambda: qattn.flash_forward(elsewhere, k, v, o))
    check(untouched(o), "a refused call wrote to o")
    qattn.flash_forward(q, k, v, o)
    check(not untouched(o), "and the right call writes")


def test_binding_refuses():
    """What never reaches the library."""
    q, k, v, o = small_problem()
    for kind, fields, word in [
            (TypeError, dict(sclae=1.0), "sclae"), (TypeError, dict(reserved0=1), "reserved0"),
            (TypeError, dict(struct_size=8), "struct_size"), (TypeError, dict(num_threads=1.5), "float"),
            (ValueError, dict(num_threads=1 << 33), "num_threads"), (ValueError, dict(mask=-1), "mask"),
            (TypeError, dict(seqused_k="123"), "seqused_k"), (TypeError, dict(seqused_k=[1.5]), ""),
            (TypeError, dict(sinks=(ctypes.c_int32 * 4)()), "sinks"), (TypeError, dict(bias=object()), "bias: object"),
            (TypeError, dict(causal=True), "mask=qattn.MASK_CAUSAL"), (TypeError, dict(mask="causal"), "MASK_*"),
            (TypeError, dict(mask=(ctypes.c_bool * 45)()), "keep="), (TypeError, dict(scale="1"), "scale"),
            (TypeError, dict(page_table=[[0], 1]), "page_table"), (ValueError, dict(page_table=[[0, 1], [2]]), "rows"),
            (ValueError, dict(seqused_k=[[1], [2]]), "seqused_k")]:
        check_raises(kind, lambda: qattn.flash_forward(q, k, v, o, **fields), word)
    check_raises(TypeError, lambda: qattn.flash_forward(q, k, v), "out=")
    check_raises(TypeError, lambda: qattn.view(None, (1, 1, 1, 1), dtype="f64"), "f64")
    check(untouched(o), "o was written")


def test_binding_checks_lengths():
    """The library cannot see how long an array is; the binding does not hand it one that is too short."""
    q, k, v, o = small_problem()
    short = (ctypes.c_int32 * 3)(0, 1, 5)
    for fields, word in [(dict(seqused_k=[]), "seqused_k"), (dict(sinks=[0.5] * 3), "sinks"),
                         (dict(alibi_slopes=[0.5] * 3), "alibi_slopes"), (dict(q_offsets=[]), "q_offsets"),
                         (dict(cu_seqlens_q=short, num_seqs=3), "cu_seqlens_q"),
                         (dict(cu_seqlens_q=short, seqused_q=[1]), "seqused_q"),
                         (dict(page_table=[0, 1], max_pages=3, seqused_k=[9]), "page_table"),
                         (dict(page_table=[0, 1], seqused_k=[9]), "max_pages="),
                         (dict(alibi_slopes=[[0.5] * 3]), "alibi_slopes")]:
        check_raises(ValueError, lambda: qattn.flash_forward(q, k, v, o, **fields), word)
    check_raises(ValueError, lambda: qattn.softmax(o, o, seqused_q=[]), "seqused_q")
    check(untouched(o), "o was written")


def test_errors_are_per_thread():
    q, k, v, o = small_problem()
    bad, failures = [dict(softcap=-1.0), dict(num_splits=-3), dict(mask=1 << 30), dict(scale=math.nan)], []

    def work(fields, word):
        for _ in range(200):
            try:
                qattn.flash_forward(q, k, v, o, **fields)
                failures.append(f"{fields} accepted")
            except qattn.QattnError as e:
                if word not in e.text:
                    failures.append(f"{word!r} not in {e.text!r}")

    threads = [threading.Thread(target=work, args=(fields, next(iter(fields)))) for fields in bad]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check_equal(failures[:3], [], "texts of four threads")


def test_short_message_buffer():
    lib = qattn.library()
    check_refused(qattn.ERR_UNKNOWN_NAME, lambda: qattn.query("no such name"))
    buf = ctypes.create_string_buffer(b"\x7f" * 15, 16)
    check_equal(lib.qattn_last_error(buf, 8), qattn.ERR_UNKNOWN_NAME, "status of the last failure")
    check(buf.raw[7:8] == b"\0" and buf.raw[8:15] == b"\x7f" * 7, f"buffer of 8: {buf.raw!r}")


# ---------------------------------------------------------------- DLPack by hand

class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


def dl_tensor(shape, strides=None, device=1, code=2, bits=32, lanes=1, byte_offset=0, data=0x1000):
    n = len(shape)
    t = DLTensor(data, device, 0, n, code, bits, lanes, (ctypes.c_int64 * n)(*shape),
                 (ctypes.c_int64 * n)(*strides) if strides else None, byte_offset)
    return t


def import_dl(t, layout="BHSD"):
    out = qattn.Tensor()
    status = qattn.library().qattn_tensor_from_dlpack(ctypes.byref(out), ctypes.addressof(t), qattn._LAYOUTS[layout])
    return status, out


def test_dlpack_by_hand():
    status, t = import_dl(dl_tensor((2, 5, 3, 4), byte_offset=64), "BSHD")
    check_equal((status, t.data), (0, 0x1040), "byte_offset")
    check_equal((list(t.shape), list(t.stride)), ([2, 3, 5, 4], [60, 4, 12, 1]), "NULL strides")
    check_equal((t.dtype, t.device_type, t.device_id), (qattn.DTYPE_F32, qattn.DEVICE_CPU, 0), "type and device")
    status, t = import_dl(dl_tensor((7, 3, 4), (-12, 4, 1), device=3, code=4, bits=16), "THD")
    check_equal((status, list(t.shape), list(t.stride)[1:], t.dtype, t.device_type),
                (0, [1, 3, 7, 4], [4, -12, 1], qattn.DTYPE_BF16, qattn.DEVICE_CPU), "THD, pinned host memory")
    for device in (2, 13):
        status, t = import_dl(dl_tensor((1, 1, 1, 1), device=device))
        check_equal((status, t.device_type), (0, qattn.DEVICE_CUDA), f"device {device}")
    four = (1, 1, 1, 4)
    for what, t, layout in [("lanes", dl_tensor(four, lanes=4), "BHSD"), ("f64", dl_tensor(four, bits=64), "BHSD"),
                            ("ndim 3", dl_tensor((1, 1, 4)), "BHSD"), ("ndim 4", dl_tensor(four), "THD"),
                            ("opencl", dl_tensor(four, device=4), "BHSD"),
                            ("negative", dl_tensor((1, -1, 1, 4)), "BHSD")]:
        status, _ = import_dl(t, layout)
        check(1000 < status < 3000, f"{what}: status {status}")
    status, _ = import_dl(dl_tensor(four, code=2, bits=64))
    check_equal(status, qattn.ERR_UNSUPPORTED_DTYPE, "float64")


def make_capsule(address, name):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, name, None)


class VersionedTensor(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("dl_tensor", DLTensor)]


def test_dlpack_capsules():
    legacy, name = dl_tensor((1, 2, 3, 4)), b"dltensor"
    capsule = make_capsule(ctypes.addressof(legacy), name)
    t = qattn.from_dlpack(capsule)
    check_equal((t.data, list(t.shape)), (0x1000, [1, 2, 3, 4]), "legacy capsule")
    check(qattn._capsule_valid(capsule, name), "a borrowed capsule keeps its name")
    name_versioned = b"dltensor_versioned"
    rows = [(1, 0, True, True), (1, 1, True, False), (1, 2, True, False), (2, 0, False, False)]
    for major, flags, ok_in, ok_out in rows:
        versioned = VersionedTensor(major, 0, None, None, flags, dl_tensor((1, 2, 3, 4)))
        capsule = make_capsule(ctypes.addressof(versioned), name_versioned)
        for output, good in ((False, ok_in), (True, ok_out)):
            if good:
                check_equal(list(qattn.from_dlpack(capsule, output=output).shape), [1, 2, 3, 4], f"version {major}")
            else:
                check_raises((BufferError, ValueError), lambda: qattn.from_dlpack(capsule, output=output))
    used = b"used_dltensor"
    capsule = make_capsule(ctypes.addressof(legacy), used)
    check_raises(TypeError, lambda: qattn.from_dlpack(capsule))
    check_raises(ValueError, lambda: qattn.from_dlpack(make_capsule(ctypes.addressof(legacy), name), "NHWC"), "NHWC")


# ---------------------------------------------------------------- NumPy

def numpy_attention(np, q, k, v, causal):
    """float64; q, k, v [B, H, S, D]. Returns O and LSE."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    s = q @ k.repeat(group, 1).transpose(0, 1, 3, 2) / math.sqrt(q.shape[3])
    if causal:
        s = np.where(np.tri(s.shape[2], s.shape[3], s.shape[3] - s.shape[2], dtype=bool), s, -np.inf)
    m = s.max(-1, keepdims=True)
    p = np.exp(s - m)
    return p @ v.repeat(group, 1) / p.sum(-1, keepdims=True), (m + np.log(p.sum(-1, keepdims=True)))[..., 0]


def numpy_problem(np, dtype, b=2, hq=6, hkv=2, sq=33, sk=70, d=40, dv=24):
    g = np.random.default_rng(4)
    return [g.standard_normal(shape).astype(dtype) for shape in ((b, hq, sq, d), (b, hkv, sk, d), (b, hkv, sk, dv))]


def check_close(np, got, expected, tolerance, what):
    worst = np.abs(np.asarray(got, dtype=np.float64) - expected).max()
    check(worst <= tolerance, f"{what}: largest difference {worst:.2e}, allowed {tolerance:.0e}")


def test_numpy_layouts():
    np = need("numpy")
    q, k, v = numpy_problem(np, np.float32)
    expected, lse = numpy_attention(np, q, k, v, True)
    bits = None
    for layout, order in (("BHSD", (0, 1, 2, 3)), ("BSHD", (0, 2, 1, 3)), ("SBHD", (2, 0, 1, 3))):
        for copy in (True, False):                # packed in that order, and a transposed view of BHSD memory
            a = [x.transpose(order).copy() if copy else x.transpose(order) for x in (q, k, v)]
            o, l = qattn.flash_forward(*a, layout=layout, mask=qattn.MASK_CAUSAL, lse=True)
            o = o.transpose(np.argsort(order))
            check_close(np, o, expected, 5e-6, layout)
            check_close(np, l, lse, 5e-6, layout + " lse")
            bits = o.tobytes() if bits is None else bits
            check(o.tobytes() == bits, f"{layout}: other bits than BHSD")


def test_numpy_strides():
    np = need("numpy")
    q, k, v = numpy_problem(np, np.float32)
    expected, _ = numpy_attention(np, q, k, v, False)
    hidden = np.full((2, 6, 3 * 33, 2 * 24), np.nan, np.float32)
    out = hidden[:, ::-1, 1::3, ::-2]             # negative and wide strides in an output
    for name, view in [("reversed", lambda x: x[:, :, ::-1].copy()[:, :, ::-1]),
                       ("last axis", lambda x: x[..., ::-1].copy()[..., ::-1]),
                       ("every second", lambda x: np.repeat(x, 2, 2)[:, :, ::2]),
                       ("column order", np.asfortranarray)]:
        out[:] = np.nan
        check(qattn.flash_forward(view(q), view(k), view(v), out) is out, "result is out")
        check_close(np, out, expected, 5e-6, name)
    check_equal(int(np.isnan(hidden).sum()), hidden.size - out.size, "elements between out's that kept their NaN")
    k1, v1 = np.broadcast_to(k[:1, :1], k.shape), np.broadcast_to(v[:1, :1], v.shape)      # stride 0, read-only
    expected, _ = numpy_attention(np, q, k1, v1, False)
    check_close(np, qattn.flash_forward(q, k1, v1), expected, 5e-6, "broadcast")


def test_numpy_half():
    np = need("numpy")
    q, k, v = numpy_problem(np, np.float16)
    expected, _ = numpy_attention(np, q, k, v, True)
    o = qattn.flash_forward(q, k, v, mask=qattn.MASK_CAUSAL)
    check(o.dtype == np.float16, f"out is {o.dtype}")
    check_close(np, o, expected, 2e-3, "f16")
    o = qattn.flash_forward(q, k, v, np.empty(o.shape, np.float32), mask=qattn.MASK_CAUSAL)
    check_close(np, o, expected, 1.5e-3, "f16 into f32")


def test_numpy_bf16():
    np = need("numpy")
    q, k, v = numpy_problem(np, np.float32)
    half = [((x.view(np.uint32) + 0x8000) >> 16).astype(np.uint16) for x in (q, k, v)]
    wide = [(x.astype(np.uint32) << 16).view(np.float32) for x in half]
    expected, _ = numpy_attention(np, *wide, True)
    o = qattn.flash_forward(*half, dtype="bf16", mask=qattn.MASK_CAUSAL)
    check(o.dtype == np.uint16, f"out is {o.dtype}")
    check_close(np, (o.astype(np.uint32) << 16).view(np.float32), expected, 2e-2, "bf16 in uint16")
    check_raises(TypeError, lambda: qattn.flash_forward(*half), "uint16")
    check_raises(TypeError, lambda: qattn.flash_forward(q, k, v, dtype="bf16"), "float32")
    f32 = qattn.flash_forward(*half, np.empty(o.shape, np.float32), dtype="bf16", mask=qattn.MASK_CAUSAL)
    check_close(np, f32, expected, 1e-2, "bf16 into f32")
    ml = need("ml_dtypes")
    again = qattn.flash_forward(*(x.view(ml.bfloat16) for x in half), mask=qattn.MASK_CAUSAL)
    check(again.dtype == ml.bfloat16 and again.tobytes() == o.tobytes(), "ml_dtypes.bfloat16 gives the bits of uint16")


def test_numpy_8bit():
    np = need("numpy")
    ml = need("ml_dtypes")
    q, k, v = numpy_problem(np, np.float16)
    k8, v8 = k.astype(ml.float8_e4m3fn), v.astype(ml.float8_e4m3fn)
    scale_k, scale_v = (np.linspace(a, a + 1, 4, dtype=np.float32).reshape(2, 2) for a in (0.5, 2))
    wide = [x.astype(np.float32) * s[:, :, None, None] for x, s in ((k8, scale_k), (v8, scale_v))]
    expected, _ = numpy_attention(np, q, *wide, False)
    fields = dict(k_descale=scale_k, v_descale=scale_v)
    o = qattn.flash_forward(q, k8, v8, np.empty((2, 6, 33, 24), np.float32), **fields)
    check_close(np, o, expected, 1e-2, "e4m3fn k, v under f16 q")
    again = qattn.flash_forward(q, k8.view(np.uint8), v8.view(np.uint8), np.empty_like(o), kv_dtype="e4m3fn", **fields)
    check(again.tobytes() == o.tobytes(), "uint8 with kv_dtype gives the same bits")


def test_numpy_packed_and_paged():
    """The same five sequences packed and paged, against one call a sequence."""
    np = need("numpy")
    g = np.random.default_rng(9)
    len_q, len_k, hq, hkv, d, page = [1, 7, 0, 12, 1], [30, 7, 5, 29, 1], 4, 2, 16, 8
    cu_q, cu_k = (np.cumsum([0] + x).astype(np.int32) for x in (len_q, len_k))
    q = g.standard_normal((cu_q[-1], hq, d)).astype(np.float32)
    k, v = (g.standard_normal((cu_k[-1], hkv, d)).astype(np.float32) for _ in range(2))
    expected, lse = np.empty_like(q), np.empty((hq, len(q)), np.float32)
    for n in range(5):
        rows, keys = slice(cu_q[n], cu_q[n + 1]), slice(cu_k[n], cu_k[n + 1])
        if len_q[n]:
            o, l = numpy_attention(np, *(x.transpose(1, 0, 2)[None] for x in (q[rows], k[keys], v[keys])), True)
            expected[rows], lse[:, rows] = o[0].transpose(1, 0, 2), l[0]
    o, l = qattn.flash_forward(q, k, v, layout="THD", cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, mask=qattn.MASK_CAUSAL,
                               lse=True)
    check_close(np, o, expected, 5e-6, "packed")
    check_close(np, l, lse, 5e-6, "packed lse")

    pool_k, pool_v = (np.full((20, page, hkv, d), np.nan, np.float32) for _ in range(2))
    table, free = np.zeros((5, 4), np.int32), iter(g.permutation(20))
    for n in range(5):
        for j in range(len_k[n]):
            if j % page == 0:
                table[n, j // page] = next(free)
            pool_k[table[n, j // page], j % page] = k[cu_k[n] + j]
            pool_v[table[n, j // page], j % page] = v[cu_k[n] + j]
    wide = np.full((5, 7), 1 << 30, np.int32)
    wide[:, :4] = table
    call = qattn.bind("flash_forward", q, pool_k, pool_v, layout="THD", cu_seqlens_q=cu_q, seqused_k=len_k,
                      page_table=wide[:, :4], mask=qattn.MASK_CAUSAL)
    p = call.params
    check_equal((p.num_seqs, p.max_pages, p.page_table_stride), (5, 4, 7), "derived fields")
    check_close(np, call(), expected, 5e-6, "paged")


def test_numpy_mask_arrays():
    np = need("numpy")
    q, k, v = numpy_problem(np, np.float32, sq=70)
    expected, _ = numpy_attention(np, q, k, v, True)
    keep = np.tri(70, dtype=bool)
    check_close(np, qattn.flash_forward(q, k, v, keep=keep), expected, 5e-6, "keep [Sq, Sk]")
    bias = np.where(keep, 0, -np.inf).astype(np.float32)
    check_close(np, qattn.flash_forward(q, k, v, bias=bias[None, None]), expected, 5e-6, "bias [1, 1, Sq, Sk]")
    o, scores = qattn.gqa_forward(q, k, v, mask=qattn.MASK_CAUSAL, scores=True, scores_stage=2)
    check_close(np, o, expected, 5e-6, "gqa_forward")
    check(bool(np.all(np.isneginf(scores) == ~keep)), "stage 2 is -inf where hidden and only there")


def test_numpy_matmul_softmax():
    np = need("numpy")
    g = np.random.default_rng(5)
    a, b = g.standard_normal((17, 30)).astype(np.float32), g.standard_normal((30, 21)).astype(np.float32)
    c = qattn.matmul(a, b)
    check_equal(c.shape, (17, 21), "shape of a 2-D product")
    check_close(np, c, a.astype(np.float64) @ b, 2e-5, "matmul")
    check_close(np, qattn.matmul_nt(a, b.T), a.astype(np.float64) @ b, 2e-5, "matmul_nt of a transposed view")
    c0 = c.copy()
    expected = 0.5 * c0.astype(np.float64) - a.astype(np.float64) @ b
    check_close(np, qattn.matmul(a, b, c, beta=0.5, alpha=-1), expected, 3e-5, "beta")
    check_raises(ValueError, lambda: qattn.matmul(a, b, beta=1), "beta")
    x = g.standard_normal((2, 3, 8, 8)).astype(np.float32)
    p = np.exp(np.where(np.tri(8, dtype=bool), x.astype(np.float64), -np.inf))
    y, lse = qattn.softmax_causal(x, lse=True)
    check_close(np, y, p / p.sum(-1, keepdims=True), 1e-6, "softmax_causal")
    check_close(np, lse, np.log(p.sum(-1)), 1e-6, "lse")
    check(qattn.softmax_causal(x, x) is x and x.tobytes() == y.tobytes(), "in place gives the same bits")


def test_numpy_refused():
    np = need("numpy")
    q, k, v = numpy_problem(np, np.float32)
    fixed = np.empty((2, 6, 33, 24), np.float32)
    fixed.flags.writeable = False
    check_raises(ValueError, lambda: qattn.flash_forward(q, k, v, fixed), "read-only")
    for name, wide in (("q", (q.astype(np.float64), k, v)), ("v", (q, k, v.astype(np.float64)))):
        text = check_raises(TypeError, lambda: qattn.flash_forward(*wide), f"{name}: float64")
        check("dtype=" not in text, f"no hint about 16-bit types: {text}")
    check_raises(TypeError, lambda: qattn.flash_forward(q.astype(np.uint16), k, v), "dtype=\"bf16\"")
    check_raises(TypeError, lambda: qattn.flash_forward(q, k, v, mask=np.tri(33, 70, dtype=bool)), "keep=")
    check_raises(TypeError, lambda: qattn.flash_forward(q.astype(">f4"), k, v), "byte order")
    check_raises(ValueError, lambda: qattn.flash_forward(q, k, v, layout="HSD"), "HSD")
    check_raises(ValueError, lambda: qattn.flash_forward(q, k, v, layout="THD"), "axes")
    check_raises(TypeError, lambda: qattn.flash_forward(q, k, v, seqused_k=np.array([1, 2])), "int32")
    check_raises(ValueError, lambda: qattn.flash_forward(q, k, v, seqused_k=np.zeros(4, np.int32)[::2]), "side by side")
    table = np.broadcast_to(np.zeros((1, 3), np.int32), (2, 3))          # a stride of 0 would mean "the default"
    check_raises(ValueError, lambda: qattn.flash_forward(q, k, v, page_table=table, seqused_k=[1, 1]), "page_table")
    check_raises(ValueError, lambda: qattn.flash_forward(q, k, v, seqused_k=np.zeros((2, 2), np.int32)), "seqused_k")
    packed = np.zeros((2, 6, 33), np.dtype([("x", np.float32, 40), ("tag", np.int8)]))["x"]
    check_raises(ValueError, lambda: qattn.flash_forward(packed, k, v), "whole elements")
    k16, v16 = k.astype(np.float16), v.astype(np.float16)
    check_refused(qattn.ERR_UNSUPPORTED_DTYPE, lambda: qattn.flash_forward(q, k16, v16))
    folded = np.lib.stride_tricks.as_strided(np.empty(33 * 24, np.float32), (2, 6, 33, 24), (0, 0, 96, 4))
    check_refused(qattn.ERR_BAD_STRIDE, lambda: qattn.flash_forward(q, k, v, folded))


class OnlyDlpack:
    """An array that shows its DLPack side alone; version None: a producer older than DLPack 1.0."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned, self.exports = array, versioned, 0

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        if kwargs and not self.versioned:
            raise TypeError("unexpected keyword argument")
        capsule = self.array.__dlpack__(**kwargs)      # NumPy before 2.1 knows no keyword argument and raises
        self.exports += 1
        return capsule


def test_numpy_dlpack():
    np = need("numpy")
    base = np.arange(2 * 6 * 8 * 10, dtype=np.float32).reshape(2, 6, 8, 10)
    views = {"packed": base, "transposed": base.transpose(0, 2, 1, 3), "reversed": base[:, ::-1, ::2, ::-1],
             "sliced": base[1:, 2:5, :, 3:7], "f16": base.astype(np.float16), "i8": base.astype(np.int8),
             "u8": base.astype(np.uint8), "empty": base[:, :0]}
    try:
        (base > 9).__dlpack__()
        views["bool"] = base > 9
    except BufferError:                                # NumPy before 1.25 does not export booleans
        pass
    for name, x in views.items():
        for layout in ("BHSD", "BSHD", "SBHD"):
            for versioned in (False, True):
                shell = OnlyDlpack(x, versioned)
                a, b = qattn.tensor(x, layout), qattn.tensor(shell, layout)
                check_equal(shell.exports, 1, f"{name}: exports")
                what = f"{name} {layout} versioned={versioned}"
                check(x.size == 0 or a.data == b.data, f"{what}: another address (a copy)")
                for field in ("dtype", "device_type", "device_id", "reserved0", "reserved1"):
                    check_equal(getattr(b, field), getattr(a, field), f"{what}: {field}")
                check_equal(list(b.shape), list(a.shape), f"{what}: shape")
                for axis in range(4):
                    check(a.shape[axis] <= 1 or x.size == 0 or a.stride[axis] == b.stride[axis],
                          f"{what}: stride of axis {axis}")
    count = sys.getrefcount(base)
    t = qattn.from_dlpack(base)
    check(sys.getrefcount(base) > count, "a Tensor keeps the array alive")
    del t
    check_equal(sys.getrefcount(base), count, "references after the Tensor went (the capsule's deleter ran once)")


def test_numpy_dlpack_call():
    np = need("numpy")
    q, k, v = numpy_problem(np, np.float32)
    expected, _ = numpy_attention(np, q, k, v, False)
    out = np.full((2, 6, 33, 24), np.nan, np.float32)
    qattn.flash_forward(OnlyDlpack(q), OnlyDlpack(k, False), OnlyDlpack(v), OnlyDlpack(out))
    check_close(np, out, expected, 5e-6, "through DLPack")
    fixed = out.copy()
    fixed.flags.writeable = False
    before = fixed.tobytes()
    # As an output read-only memory is refused; NumPy itself refuses to export it without the flag of DLPack 1.0.
    check_raises((ValueError, BufferError), lambda: qattn.flash_forward(q, k, v, OnlyDlpack(fixed)))
    check(fixed.tobytes() == before, "read-only memory was written")
    q.flags.writeable = False
    try:
        OnlyDlpack(q).__dlpack__(max_version=(1, 0))
    except (TypeError, BufferError):
        raise Skip(f"NumPy {np.__version__} does not export read-only arrays") from None
    check_close(np, qattn.flash_forward(OnlyDlpack(q), k, v, out), expected, 5e-6, "read-only input through DLPack")


# ---------------------------------------------------------------- torch

def test_torch_cpu():
    torch = need("torch")
    np = need("numpy")
    for dtype, tolerance in ((torch.float32, 5e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        name = str(dtype)
        q, k, v = (torch.from_numpy(x).to(dtype) for x in numpy_problem(np, np.float32))
        expected, lse = numpy_attention(np, *(x.float().numpy() for x in (q, k, v)), True)
        o, l = qattn.flash_forward(q, k, v, mask=qattn.MASK_CAUSAL, lse=True)
        check(isinstance(o, torch.Tensor), "out is a torch tensor")
        check_equal((o.dtype, l.dtype), (dtype, torch.float32), "types of what is allocated")
        check_close(np, o.float().numpy(), expected, tolerance, name)
        check_close(np, l.numpy(), lse, 5e-6, name + " lse")
        bshd = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
        out = torch.full((2, 33, 6, 24), math.nan, dtype=dtype)
        qattn.flash_forward(*bshd, out, layout="BSHD", mask=qattn.MASK_CAUSAL)
        check(torch.equal(out.transpose(1, 2), o), f"{name}: BSHD gives the bits of BHSD")
        again = torch.empty_like(o)
        qattn.flash_forward(OnlyDlpack(q), OnlyDlpack(k), OnlyDlpack(v), OnlyDlpack(again), mask=qattn.MASK_CAUSAL)
        check(torch.equal(again, o), f"{name}: DLPack gives the same bits")
        shared = qattn.tensor(q[:, ::2, 3:])
        imported = qattn.from_dlpack(q[:, ::2, 3:])
        check_equal((imported.data, list(imported.shape), list(imported.stride), imported.dtype),
                    (shared.data, list(shared.shape), list(shared.stride), shared.dtype), f"{name}: DLPack import")


def test_torch_plans():
    """A call like one before it takes the same way on its own tensors, in place or not, in any order."""
    torch = need("torch")
    for softmax in (qattn.softmax, qattn.softmax_causal):
        for order in ("in place first", "out of place first"):
            shape = (1, 2, 5, 7 if order == "in place first" else 9)
            for turn in range(4):
                x = torch.randn(shape)
                corner = 1 + shape[3] - shape[2] if softmax is qattn.softmax_causal else shape[3]
                expected = torch.softmax(x - 1e9 * torch.triu(torch.ones(shape[2:]), corner), -1)
                name = f"{softmax.__name__}, {order}, call {turn}"
                if (turn % 2 == 0) == (order == "in place first"):
                    result, out = softmax(x, x), x
                else:
                    kept, out = x.clone(), torch.full(shape, math.nan)
                    result = softmax(x, out)
                    check(torch.equal(x, kept), f"{name}: the input is as it was")
                check(result is out, f"{name}: returns the output it was given")
                check(float((out - expected).abs().max()) < 1e-6, f"{name}: against torch")
                allocated = softmax(out)
                check(allocated is not out and torch.equal(allocated, softmax(out)), f"{name}: allocates")


def test_torch_refused():
    torch = need("torch")
    x = torch.zeros(1, 1, 4, 8)
    check_raises(TypeError, lambda: qattn.flash_forward(x.double(), x, x), "float64")
    check_raises(TypeError, lambda: qattn.flash_forward(x.to("meta"), x, x), "meta")
    check_raises(TypeError, lambda: qattn.flash_forward(x.to_sparse(), x, x), "sparse")
    check_raises(TypeError, lambda: qattn.flash_forward(x, x, x, seqused_k=torch.tensor([4])), "int32")


def test_torch_cuda():
    torch = need("torch")
    if not torch.cuda.is_available():
        raise Skip("no CUDA device")
    q, k, v = (torch.randn(2, 4, 64, 64, dtype=torch.float16, device="cuda") for _ in range(3))
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            o = qattn.flash_forward(q, k, v, mask=qattn.MASK_CAUSAL)
    except qattn.QattnError as e:
        check(e.status // 1000 in (2, 3), str(e))
        raise Skip(f"the library has no CUDA path here: {e.name}") from None
    torch.cuda.synchronize()
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    check(float((o.double() - expected).abs().max()) < 2e-3, "CUDA against torch in float64")


# ---------------------------------------------------------------- runner

def main(arguments):
    verbose = "-v" in arguments
    names = [a for a in arguments if not a.startswith("-")]
    passed = failed = skipped = 0
    qattn.library()
    for name, function in list(globals().items()):
        if not name.startswith("test_") or names and not any(n in name for n in names):
            continue
        try:
            function()
            passed += 1
            if verbose:
                print(f"ok   {name}")
        except Skip as e:
            skipped += 1
            print(f"skip {name}: {e}")
        except Exception as e:
            failed += 1
            print(f"FAIL {name}: {type(e).__name__}: {e}")
            if verbose or not isinstance(e, AssertionError):
                traceback.print_exc(file=sys.stdout)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
