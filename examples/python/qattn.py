# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""libqattn from Python: one file, ctypes only. Copy it into your project.

    import numpy as np, qattn
    q = np.random.rand(1, 512, 16, 128).astype(np.float32)          # [B, S, H, D]
    k = np.random.rand(1, 512, 8, 128).astype(np.float32)
    v = np.random.rand(1, 512, 8, 128).astype(np.float32)
    o = qattn.flash_forward(q, k, v, layout="BSHD", mask=qattn.MASK_CAUSAL)

Tensors may be NumPy arrays, torch tensors (CPU, CUDA), anything with __dlpack__, or a Tensor made by view().
They are passed as they lie in memory, whatever their strides; nothing is copied. NumPy has no bfloat16: use
ml_dtypes, or uint16 arrays with dtype="bf16" (8-bit floats: ml_dtypes, or uint8 arrays with dtype="e4m3fn").

Constants have the header's names without QATTN_: MASK_CAUSAL, DTYPE_BF16, FLAG_LSE_BASE2, ERR_BAD_SHAPE.
Operations: flash_forward, gqa_forward, matmul, matmul_nt, softmax, softmax_causal, merge. Each has the twins
NAME_workspace (bytes), NAME_explain (text), NAME_prepare, which take the same arguments; bind(NAME, ...) makes a
Call that can be run many times. Keyword arguments are the fields of the header's params struct, 0 or None
meaning the default; qattn.h says what each means.

A call the library refuses raises QattnError (status, name, text). What cannot be handed to the library at all
(an unknown element type, a stride that is no whole number of elements, a read-only output) raises TypeError or
ValueError before it is called.

There is no autograd: results carry no gradient.

CUDA tensors run on torch's current stream of their device, unless stream= (a cudaStream_t as int) is given;
scratch comes from torch's allocator; calls may be captured in a CUDA graph. A function called again with torch
tensors of the same shapes, strides and options reuses what it worked out the first time.

The library is looked for in the environment variable QATTN_LIBRARY (a path), in lib/ and build/ of the source
tree this file lies in, then by the loader as libqattn.so.0.
"""
import ctypes
import functools
import glob
import operator
import os
import sys
import threading
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

# ---------------------------------------------------------------- constants

VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH = 0, 1, 0
VERSION = 100
ABI_VERSION = 0

DTYPE_NONE = 0
DTYPE_F32 = 0x022001
DTYPE_F16 = 0x021001
DTYPE_BF16 = 0x041001
DTYPE_E4M3FN = 0x0A0801
DTYPE_E5M2 = 0x0C0801
DTYPE_I8 = 0x000801
DTYPE_U8 = 0x010801
DTYPE_BOOL = 0x060801

DEVICE_CPU, DEVICE_CUDA = 1, 2

FLAG_SCALE_AS_GIVEN, FLAG_BATCH_INVARIANT, FLAG_LSE_BASE2, FLAG_NO_FALLBACK = 1, 2, 4, 8

MASK_CAUSAL, MASK_WINDOW, MASK_TOP_LEFT, MASK_OFFSET = 1, 2, 4, 8

PRECISION_IEEE, PRECISION_3XTF32, PRECISION_TF32 = 0, 1, 2

LAYOUT_BHSD, LAYOUT_BSHD, LAYOUT_SBHD, LAYOUT_THD = 1, 2, 3, 4

OK = 0
ERR_NULL_POINTER = 1001
ERR_STRUCT_SIZE = 1002
ERR_PARAMS_TOO_NEW = 1003
ERR_RESERVED = 1004
ERR_UNKNOWN_BITS = 1005
ERR_BAD_DTYPE = 1006
ERR_BAD_DEVICE = 1007
ERR_BAD_SHAPE = 1008
ERR_BAD_STRIDE = 1009
ERR_ALIAS = 1010
ERR_BAD_VALUE = 1011
ERR_ALIGNMENT = 1012
ERR_DEVICE_MISMATCH = 1013
ERR_COMBINATION = 1014
ERR_STREAM = 1015
ERR_UNKNOWN_NAME = 1016
ERR_UNSUPPORTED_DTYPE = 2001
ERR_UNSUPPORTED_SHAPE = 2002
ERR_UNSUPPORTED = 2003
ERR_NOT_BUILT = 2004
ERR_NO_IMPLEMENTATION = 2005
ERR_NO_DRIVER = 3001
ERR_DRIVER_TOO_OLD = 3002
ERR_NO_DEVICE = 3003
ERR_DEVICE_BUSY = 3004
ERR_NO_KERNEL_IMAGE = 3005
ERR_FORKED = 3006
ERR_CAPTURE_INVALID = 3007
ERR_CUDA = 3008
ERR_WORKSPACE = 4001
ERR_OUT_OF_MEMORY = 4002
ERR_INTERNAL = 5001

# ---------------------------------------------------------------- structs

class _Struct(ctypes.Structure):
    """Adds what ctypes leaves out: a slot for the objects whose memory the struct points into."""
    owner = None


class Tensor(_Struct):
    """qattn_tensor: a strided view, axes B, H, S, D, strides in elements. All zero: absent."""
    _fields_ = [("data", c_void_p), ("shape", c_int64 * 4), ("stride", c_int64 * 4), ("dtype", c_int32),
                ("device_type", c_int32), ("device_id", c_int32), ("reserved0", c_int32), ("reserved1", c_uint64)]


class _Params(_Struct):
    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


_HEAD = [("struct_size", c_size_t), ("flags", c_uint64), ("workspace", c_void_p), ("workspace_bytes", c_size_t)]


class AttnParams(_Params):
    """qattn_attn_params"""
    _fields_ = _HEAD + [
        ("scale", c_float), ("softcap", c_float), ("mask", c_uint32), ("precision", c_int32),
        ("num_splits", c_int32), ("num_threads", c_int32), ("scores_stage", c_int32), ("reserved0", c_int32),
        ("window_left", c_int64), ("window_right", c_int64), ("q_offset", c_int64), ("q_offsets", c_void_p),
        ("cu_seqlens_q", c_void_p), ("cu_seqlens_k", c_void_p), ("seqused_q", c_void_p), ("seqused_k", c_void_p),
        ("num_seqs", c_int64), ("max_seqlen_q", c_int64), ("max_seqlen_k", c_int64),
        ("page_table", c_void_p), ("page_table_stride", c_int64), ("max_pages", c_int64),
        ("sinks", c_void_p), ("alibi_slopes", c_void_p), ("alibi_batch_stride", c_int64),
        ("lse", Tensor), ("bias", Tensor), ("keep", Tensor), ("scores", Tensor),
        ("q_descale", Tensor), ("k_descale", Tensor), ("v_descale", Tensor)]


class MatmulParams(_Params):
    """qattn_matmul_params"""
    _fields_ = _HEAD + [("alpha", c_float), ("beta", c_float), ("precision", c_int32), ("num_threads", c_int32)]


class SoftmaxParams(_Params):
    """qattn_softmax_params"""
    _fields_ = _HEAD + [
        ("scale", c_float), ("softcap", c_float), ("mask", c_uint32), ("num_threads", c_int32),
        ("window_left", c_int64), ("window_right", c_int64), ("q_offset", c_int64), ("q_offsets", c_void_p),
        ("seqused_q", c_void_p), ("seqused_k", c_void_p), ("sinks", c_void_p), ("alibi_slopes", c_void_p),
        ("alibi_batch_stride", c_int64), ("lse", Tensor), ("bias", Tensor), ("keep", Tensor)]


class MergeParams(_Params):
    """qattn_merge_params"""
    _fields_ = _HEAD + [("num_threads", c_int32), ("reserved0", c_int32)]


# ---------------------------------------------------------------- the library

_T, _STREAM = POINTER(Tensor), c_void_p
_OPERATIONS = {                     # name: (tensor arguments, params struct)
    "matmul": ([_T] * 3, MatmulParams),
    "matmul_nt": ([_T] * 3, MatmulParams),
    "softmax": ([_T] * 2, SoftmaxParams),
    "softmax_causal": ([_T] * 2, SoftmaxParams),
    "gqa_forward": ([_T] * 4, AttnParams),
    "flash_forward": ([_T] * 4, AttnParams),
    "merge": ([c_int64] + [_T] * 4, MergeParams),
}
_FUNCTIONS = {                      # name: (result, arguments)
    "tensor_init": (c_int32, [_T, c_void_p] + [c_int32] * 4 + [c_int64] * 4),
    "tensor_from_dlpack": (c_int32, [_T, c_void_p, c_int32]),
    "version": (c_int32, []),
    "abi_version": (c_int32, []),
    "build_info": (c_int32, [c_char_p, c_size_t]),
    "query": (c_int32, [c_char_p, POINTER(c_int64)]),
    "status_name": (c_char_p, [c_int32]),
    "status_string": (c_char_p, [c_int32]),
    "last_error": (c_int32, [c_char_p, c_size_t]),
}
for _name, (_tensors, _params) in _OPERATIONS.items():
    _FUNCTIONS[_name] = (c_int32, _tensors + [POINTER(_params), _STREAM])
    _FUNCTIONS[_name + "_workspace"] = (c_int32, _tensors + [POINTER(_params), POINTER(c_size_t)])
    _FUNCTIONS[_name + "_explain"] = (c_int32, _tensors + [POINTER(_params), c_char_p, c_size_t])
    _FUNCTIONS[_name + "_prepare"] = (c_int32, _tensors + [POINTER(_params)])

_library = None


def _candidates():
    if os.environ.get("QATTN_LIBRARY"):
        return [os.environ["QATTN_LIBRARY"]]
    soname = f"libqattn.so.{ABI_VERSION}"
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = []
    if os.path.exists(os.path.join(tree, "include", "qattn.h")):
        for pattern in ("lib", "build/c*/lib"):                   # not the sanitizers' builds
            paths += sorted(glob.glob(os.path.join(tree, pattern, soname)), key=os.path.getmtime, reverse=True)
    return paths + [soname]


def library():
    """The loaded library, a ctypes.CDLL with every prototype set. Found at the first use; see the top."""
    global _library
    if _library is not None:
        return _library
    tried = []
    for path in _candidates():
        try:
            lib = ctypes.CDLL(path)
            break
        except OSError as e:
            tried.append(str(e))
    else:
        raise ImportError("libqattn not found (set QATTN_LIBRARY to its path): " + "; ".join(tried))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(lib, "qattn_" + name)
        function.restype, function.argtypes = result, arguments
    if lib.qattn_abi_version() != ABI_VERSION:
        raise ImportError(f"{path} has ABI {lib.qattn_abi_version()}, this binding {ABI_VERSION}")
    _library = lib
    return lib


@functools.lru_cache(maxsize=None)
def _untyped(name):
    """qattn_NAME without a prototype: it takes what byref() and from_param() give, and converts nothing."""
    function = getattr(library(), "qattn_" + name)
    return ctypes.CFUNCTYPE(c_int32)(ctypes.cast(function, c_void_p).value)


class QattnError(Exception):
    """A call the library refused: .status (ERR_*), .name ("QATTN_ERR_BAD_SHAPE"), .text (argument, value, rule)."""

    def __init__(self, status, name, text):
        super().__init__(f"{name} ({status}): {text}")
        self.status, self.name, self.text = status, name, text


def _check(status):
    if status:
        buf = ctypes.create_string_buffer(1024)
        library().qattn_last_error(buf, len(buf))
        raise QattnError(status, status_name(status), buf.value.decode())


def version():
    """QATTN_VERSION of the loaded library: 10000*major + 100*minor + patch."""
    return library().qattn_version()


def abi_version():
    """QATTN_ABI_VERSION of the loaded library."""
    return library().qattn_abi_version()


def build_info():
    """One line about the build: version, compiler, CPU and CUDA parts."""
    buf = ctypes.create_string_buffer(1024)
    _check(library().qattn_build_info(buf, len(buf)))
    return buf.value.decode()


def query(name):
    """The library's value of a name of qattn.h in its C spelling: "sizeof(qattn_attn_params)"."""
    value = c_int64()
    _check(library().qattn_query(name.encode(), ctypes.byref(value)))
    return value.value


def status_name(status):
    """ "QATTN_ERR_BAD_SHAPE" """
    return library().qattn_status_name(status).decode()


def status_string(status):
    """One sentence about a status."""
    return library().qattn_status_string(status).decode()


# ---------------------------------------------------------------- tensors

_DTYPES = {"float32": DTYPE_F32, "float16": DTYPE_F16, "bfloat16": DTYPE_BF16, "float8_e4m3fn": DTYPE_E4M3FN,
           "float8_e5m2": DTYPE_E5M2, "int8": DTYPE_I8, "uint8": DTYPE_U8, "bool": DTYPE_BOOL,
           "f32": DTYPE_F32, "f16": DTYPE_F16, "bf16": DTYPE_BF16, "e4m3fn": DTYPE_E4M3FN, "e5m2": DTYPE_E5M2,
           "i8": DTYPE_I8, "u8": DTYPE_U8}
_STORAGE = {"uint16": 2, "int16": 2, "uint8": 1, "int8": 1}     # may be read as another type of that many bytes
_LAYOUTS = {"BHSD": LAYOUT_BHSD, "BSHD": LAYOUT_BSHD, "SBHD": LAYOUT_SBHD, "THD": LAYOUT_THD}
# Where the axes B, H, S, D of a qattn_tensor stand in an array of that layout. THD has no B.
_AXES = {"BHSD": (0, 1, 2, 3), "BSHD": (0, 2, 1, 3), "SBHD": (1, 2, 0, 3), "THD": (None, 1, 0, 2)}


def _dtype_code(dtype):
    if isinstance(dtype, int):
        return dtype
    if dtype not in _DTYPES:
        raise TypeError(f"{dtype!r} is no element type of libqattn (one of {', '.join(_DTYPES)})")
    return _DTYPES[dtype]


def dtype_size(code):
    """Bytes of one element of a DTYPE_*."""
    return (code >> 8 & 0xff) // 8


class _Memory:
    """What the binding needs to know of an array, whoever made it. strides in elements."""
    __slots__ = ("address", "shape", "strides", "dtype", "device", "writable", "owner")


@functools.lru_cache(maxsize=None)
def _dtype_name(dtype):
    """ "bfloat16" of NumPy's or torch's dtype object. """
    return getattr(dtype, "name", None) or str(dtype).split(".")[-1]


def _is_torch(x):
    return type(x).__module__.split(".")[0] == "torch" and hasattr(x, "data_ptr")


def _inspect(x):
    """_Memory of a NumPy array or torch tensor, None of anything else."""
    m = _Memory()
    m.owner, m.device = x, (DEVICE_CPU, 0)
    if _is_torch(x):
        if x.is_neg():
            raise TypeError("a lazily negated torch tensor: call resolve_neg() first")
        device = x.device
        if x.layout is not sys.modules["torch"].strided or device.type not in ("cpu", "cuda"):
            raise TypeError(f"a torch tensor must be strided and on cpu or cuda, not {x.layout} on {device}")
        m.address, m.shape, m.strides = x.data_ptr(), tuple(x.shape), x.stride()
        m.dtype, m.writable = _dtype_name(x.dtype), True
        if device.type == "cuda":
            m.device = (DEVICE_CUDA, device.index or 0)
        return m
    interface = getattr(x, "__array_interface__", None)
    if interface is None or not hasattr(x, "strides") or not hasattr(x, "dtype"):
        return None
    if not x.dtype.isnative:
        raise TypeError("arrays must have the machine's byte order")
    m.address, readonly = interface["data"]
    m.shape, m.dtype, m.writable = x.shape, _dtype_name(x.dtype), not readonly
    size, strides = x.dtype.itemsize, x.strides
    for stride, n in zip(strides, m.shape):
        if n > 1 and stride % size:
            raise ValueError(f"strides {strides} in bytes are no whole elements of {size} bytes")
    m.strides = [stride // size for stride in strides]
    return m


def view(data, shape, stride=None, dtype=DTYPE_F32, device_type=DEVICE_CPU, device_id=0):
    """A Tensor over raw memory. data: an address, a ctypes array, or None; shape: B, H, S, D; stride: in
    elements, None for packed; dtype: DTYPE_* or a name ("bf16")."""
    t = Tensor(dtype=_dtype_code(dtype), device_type=device_type, device_id=device_id)
    t.owner = data
    t.data = data if data is None or isinstance(data, int) else ctypes.addressof(data)
    t.shape[:] = shape
    t.stride[:] = stride or (shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1)
    return t


def tensor(x, layout="BHSD", dtype=None, output=False, stream=None):
    """The Tensor of an array, for calls that mix layouts or types: a Tensor passes through every function.

    layout  order of the array's axes: "BHSD", "BSHD", "SBHD", or "THD" (3 axes, packed sequences). With BHSD,
            fewer than 4 axes are taken as the last ones
    dtype   read uint16 or int16 elements as "bf16" or "f16", uint8 or int8 elements as "e4m3fn", "e5m2", "i8", "u8"
    output  refuse read-only memory
    stream  the CUDA stream it will be used on, for objects that come through DLPack
    """
    if isinstance(x, Tensor):
        return x
    if x is None:
        return Tensor()
    m = _inspect(x)
    if m is None:
        t = from_dlpack(x, layout, output, stream)
        t.dtype = _read_as({DTYPE_I8: "int8", DTYPE_U8: "uint8"}.get(t.dtype), t.dtype, dtype)
        return t
    if output and not m.writable:
        raise ValueError("the output array is read-only")
    return _place(m, layout, _read_as(m.dtype, _DTYPES.get(m.dtype), dtype))


def _argument(name, x, *options):
    """tensor(), with the argument's name in what it raises."""
    try:
        return tensor(x, *options)
    except (TypeError, ValueError) as e:
        e.args = (f"{name}: {e}",)
        raise


def _read_as(stored, code, dtype):
    """The DTYPE_* of elements stored as `stored` (its own code: `code`) and to be read as `dtype`, if given."""
    if dtype is not None and _dtype_code(dtype) != code:
        code = _dtype_code(dtype)
        if _STORAGE.get(stored) != dtype_size(code):
            raise TypeError(f"elements of type {stored} cannot be read as {dtype}")
    if code is None:
        hint = "say what they are: dtype=\"bf16\", \"f16\"" if stored in _STORAGE else "convert it, say to float32"
        raise TypeError(f"{stored} is no element type of libqattn: {hint}")
    return code


def _place(m, layout, code):
    axes = _AXES.get(layout)
    if axes is None:
        raise ValueError(f"layout {layout!r} is none of {', '.join(_AXES)}")
    shape, strides = m.shape, m.strides
    if layout == "BHSD" and len(shape) < 4:
        shape, strides = (1,) * (4 - len(shape)) + tuple(shape), (0,) * (4 - len(shape)) + tuple(strides)
    if len(shape) != (3 if layout == "THD" else 4):
        raise ValueError(f"layout {layout} needs {3 if layout == 'THD' else 4} axes, the array has {len(shape)}")
    t = Tensor(m.address, dtype=code, device_type=m.device[0], device_id=m.device[1])
    t.shape[:] = [1 if a is None else shape[a] for a in axes]
    t.stride[:] = [0 if a is None else strides[a] for a in axes]
    t.owner = m.owner
    return t


# DLPack. The library reads the DLTensor; what wraps it is this file's business.
_pythonapi = ctypes.pythonapi
_capsule_valid = _pythonapi.PyCapsule_IsValid
_capsule_valid.restype, _capsule_valid.argtypes = ctypes.c_int, [ctypes.py_object, c_char_p]
_capsule_pointer = _pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]


class _ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack 1.x. (The older DLManagedTensor starts with the DLTensor.)"""
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager_ctx", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("dl_tensor", ctypes.c_byte * 48)]
    READ_ONLY, IS_COPIED = 1, 2


def from_dlpack(x, layout="BHSD", output=False, stream=None):
    """The Tensor of an object with __dlpack__, or of a DLPack capsule. layout: as in tensor(), all axes present.
    stream: the CUDA stream it will be used on (the producer orders its pending work before it).

    The capsule is borrowed, not consumed: it keeps its name, the Tensor keeps it alive, and its own destructor
    calls the producer's deleter when the Tensor goes."""
    capsule = x
    if hasattr(x, "__dlpack__"):
        on_cuda = x.__dlpack_device__()[0] in (2, 13)
        wait = {"stream": stream or 1} if on_cuda else {}         # 1: the legacy default stream, libqattn's NULL
        try:
            capsule = x.__dlpack__(max_version=(1, 0), **wait)
        except TypeError:                                         # a producer older than DLPack 1.0
            capsule = x.__dlpack__(**wait)
    if _capsule_valid(capsule, b"dltensor_versioned"):
        address = _capsule_pointer(capsule, b"dltensor_versioned")
        managed = _ManagedVersioned.from_address(address)
        if managed.major != 1:
            raise BufferError(f"DLPack {managed.major}.{managed.minor} is not understood, only 1.x")
        if output and managed.flags & (managed.READ_ONLY | managed.IS_COPIED):
            raise ValueError("the output array is read-only, or was copied for DLPack")
        address += _ManagedVersioned.dl_tensor.offset
    elif _capsule_valid(capsule, b"dltensor"):
        address = _capsule_pointer(capsule, b"dltensor")
    else:
        raise TypeError(f"{type(x).__name__} is no array: needs NumPy's or DLPack's interface, torch, or view()")
    if layout not in _LAYOUTS:
        raise ValueError(f"layout {layout!r} is none of {', '.join(_LAYOUTS)}")
    t = Tensor()
    _check(library().qattn_tensor_from_dlpack(ctypes.byref(t), address, _LAYOUTS[layout]))
    t.owner = (x, capsule)
    return t


def _empty(like, shape, dtype=None):
    """An uninitialised array from the library `like` came from; dtype None: like's own, else a name."""
    if _is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype) if dtype else like.dtype, device=like.device)
    if type(like).__module__.split(".")[0] == "numpy":
        numpy = sys.modules["numpy"]
        return numpy.empty(shape, dtype=dtype or like.dtype)
    raise TypeError(f"pass out= (and arrays instead of True): nothing to allocate like {type(like).__name__}")


# ---------------------------------------------------------------- calls

# Fields that are arrays on the tensors' device, and what they hold.
_ARRAYS = {"q_offsets": "int32", "cu_seqlens_q": "int32", "cu_seqlens_k": "int32", "seqused_q": "int32",
           "seqused_k": "int32", "page_table": "int32", "sinks": "float32", "alibi_slopes": "float32"}
_C_TYPES = {"int32": c_int32, "float32": c_float}


def _array(name, x, device):
    """(address, shape, strides, owner) of a length, page or slope array. Lists (of lists) are taken for CPU calls."""
    dtype = _ARRAYS[name]
    if isinstance(x, (list, tuple)):
        if device[0] != DEVICE_CPU:
            raise TypeError(f"{name} must be an array on the tensors' device")
        shape, strides = (len(x),), (1,)
        if x and all(isinstance(row, (list, tuple)) for row in x):
            shape, strides = (len(x), len(x[0])), (len(x[0]), 1)
            if any(len(row) != shape[1] for row in x):
                raise ValueError(f"{name}: rows of different lengths")
            x = [value for row in x for value in row]
        try:
            numbers = (_C_TYPES[dtype] * len(x))(*x)
        except TypeError:
            raise TypeError(f"{name} must hold {dtype} numbers") from None
        if dtype == "int32" and list(numbers) != list(x):
            raise ValueError(f"{name}: a number that int32 does not hold")
        return ctypes.addressof(numbers), shape, strides, numbers
    if isinstance(x, ctypes.Array):
        if x._type_ is not _C_TYPES[dtype]:
            raise TypeError(f"{name} must be an array of {dtype}")
        return ctypes.addressof(x), (len(x),), (1,), x
    m = _inspect(x)
    if m is None:
        raise TypeError(f"{name} must be a list, a NumPy array or a torch tensor, not {type(x).__name__}")
    if m.dtype != dtype:
        raise TypeError(f"{name} must hold {dtype}, not {m.dtype}")
    if m.device != device:
        raise TypeError(f"{name} must be on the tensors' device")
    if not m.shape or m.strides[-1] != 1 and m.shape[-1] > 1:
        raise ValueError(f"{name}: the elements of a row must lie side by side")
    return m.address, m.shape, m.strides, m.owner


class Call:
    """One operation with its arguments, ready to run: call it as often as you like, it works on the same memory
    each time. Made by bind(). .result: what the operation returns.

    The stream of a CUDA call is chosen here, and its scratch comes from torch: do not run one Call on two streams
    at a time."""

    def __init__(self, name, tensors, params, result, stream, workspace):
        """tensors: the C function's arguments before params (Tensors, arrays of Tensor, a count, None)."""
        self.name, self.tensors, self.params, self.result = name, tensors, params, result
        self._arguments = [ctypes.byref(t) if isinstance(t, Tensor) else t for t in tensors]
        self._arguments.append(ctypes.byref(params))
        self._run = _untyped(name)
        self._converted = [c_int64.from_param(x) if isinstance(x, int) else x for x in self._arguments]
        self._use_stream(stream)
        first = next(t for t in reversed(tensors) if isinstance(t, Tensor))
        if workspace is not None:
            m = _inspect(workspace)
            self._use(workspace, m.address if m else ctypes.addressof(workspace),
                      workspace.nbytes if m else ctypes.sizeof(workspace))
        elif first.device_type == DEVICE_CUDA and _is_torch(first.owner):
            self._use_torch(first.device_id)

    def _use(self, owner, address, size):
        self.scratch = owner
        self.params.workspace, self.params.workspace_bytes = address, size

    def _use_stream(self, stream):
        """Every argument is converted here, once, and not at each run: that is most of what ctypes costs."""
        self._stream = stream
        self._ready = (*self._converted, c_void_p.from_param(stream))

    def _use_torch(self, device_id):
        """Torch's current stream, unless one was given, and scratch from its allocator."""
        torch = sys.modules["torch"]
        current = torch.cuda.current_stream(device_id)
        if self._stream is None:
            self._use_stream(current.cuda_stream)
        size = self.workspace()
        if size:
            with torch.cuda.stream(torch.cuda.ExternalStream(self._stream, device=device_id)
                                   if self._stream != current.cuda_stream else current):
                scratch = torch.empty(size + 256, dtype=torch.uint8, device=f"cuda:{device_id}")
            self._use(scratch, (scratch.data_ptr() + 255) // 256 * 256, size)

    def __call__(self):
        """Runs the operation and returns .result."""
        status = self._run(*self._ready)
        if status:
            _check(status)
        return self.result

    def workspace(self):
        """Bytes of workspace that suffice."""
        size = c_size_t()
        _check(getattr(library(), f"qattn_{self.name}_workspace")(*self._arguments, ctypes.byref(size)))
        return size.value

    def explain(self):
        """First line: the id of the implementation that runs; then why each faster one does not."""
        buf = ctypes.create_string_buffer(4096)
        status = getattr(library(), f"qattn_{self.name}_explain")(*self._arguments, buf, len(buf))
        if status:
            raise QattnError(status, status_name(status), buf.value.decode())
        return buf.value.decode()

    def prepare(self):
        """Makes the first run cost what the second does."""
        _check(getattr(library(), f"qattn_{self.name}_prepare")(*self._arguments))


def _fill_params(cls, first, fields):
    """The params struct of keyword arguments. Tensor fields are Tensors by now; None is the default. first: the
    call's first tensor, which gives the device and, for the lengths of arrays, B and H."""
    types = dict(cls._fields_)
    params, owners, shapes = cls(), [], {}
    device = (first.device_type, first.device_id)
    for name, value in fields.items():
        if name not in types or name in ("struct_size", "reserved0", "workspace", "workspace_bytes"):
            hint = "; causal is mask=qattn.MASK_CAUSAL" if name in ("causal", "is_causal") and "mask" in types else ""
            raise TypeError(f"{cls.__name__} has no field {name!r}{hint}")
        if value is None:
            continue
        if name in _ARRAYS:
            address, shapes[name], strides, owner = _array(name, value, device)
            owners.append(owner)
            setattr(params, name, address)
            _derive(params, name, shapes[name], strides, fields)
        elif isinstance(value, Tensor):
            setattr(params, name, value)
            owners.append(value.owner)
        else:
            _set_number(params, name, value, types[name] is c_float)
    if shapes:
        _check_lengths(params, shapes, first.shape[0], first.shape[1])
    params.owner = owners
    return params


def _set_number(params, name, value, real):
    try:
        setattr(params, name, value if real else operator.index(value))
    except TypeError:
        hint = ": MASK_* joined by |; an array that says which keys are seen is keep=" if name == "mask" else ""
        raise TypeError(f"{name} must be {'a number' if real else 'an integer'}, "
                        f"not {type(value).__name__}{hint}") from None
    if not real and getattr(params, name) != value:    # ctypes would cut a number that does not fit
        raise ValueError(f"{name}={value} does not fit the field")


def _check_lengths(params, shapes, batch, heads):
    """The library sees addresses alone: whether the arrays are long enough is checked here."""
    n = params.num_seqs if "cu_seqlens_q" in shapes else batch
    needed = {"q_offsets": n, "seqused_q": n, "seqused_k": n, "sinks": heads, "alibi_slopes": heads}
    if isinstance(params, AttnParams):
        needed.update(cu_seqlens_q=params.num_seqs + 1, cu_seqlens_k=params.num_seqs + 1)
        row = params.page_table_stride or params.max_pages
        needed["page_table"] = (n - 1) * row + params.max_pages if n else 0
    for name, shape in shapes.items():
        rows = (n, params.max_pages if name == "page_table" else heads)
        if len(shape) == 2 and name in ("page_table", "alibi_slopes"):
            good = shape[0] >= rows[0] and shape[1] >= rows[1]
        else:
            good, rows = len(shape) == 1 and shape[0] >= needed[name], (needed[name],)
        if not good:
            raise ValueError(f"{name} has shape {tuple(shape)}, at least {rows} is needed")


def _derive(params, name, shape, strides, fields):
    """Fields that follow from an array's shape, unless given."""
    def default(field, value):
        if fields.get(field) is None:
            setattr(params, field, value)
    if name in ("cu_seqlens_q", "cu_seqlens_k"):
        default("num_seqs", shape[0] - 1)
    elif name == "page_table" and len(shape) == 1:
        if fields.get("max_pages") is None:
            raise ValueError("page_table has one axis: give it two, [sequences, pages], or max_pages=")
    elif name == "page_table" and len(shape) == 2:
        default("max_pages", shape[1])
        if shape[0] > 1:
            if strides[0] <= 0:
                raise ValueError(f"page_table: rows {strides[0]} elements apart; copy it")
            default("page_table_stride", strides[0])
    elif name == "alibi_slopes" and len(shape) == 2 and shape[0] > 1:
        default("alibi_batch_stride", strides[0])


def _option(name, x, stream, output=False):
    """An optional tensor in the order B, H, S, D; None stays None."""
    return None if x is None else _argument(name, x, "BHSD", None, output, stream)


def _lse_tensor(x, stream, name="lse", output=True):
    """An LSE array [B, H, S], [B, H, S, 1], or packed [H, T], as [B, H, S, 1]."""
    if x is None or isinstance(x, Tensor):
        return x
    t = _option(name, x, stream, output)
    if len(getattr(x, "shape", t.shape)) in (2, 3):
        t.shape[:] = list(t.shape[1:]) + [1]
        t.stride[:] = list(t.stride[1:]) + [0]
    return t


def _descale_tensor(name, x, stream):
    """A descale array [N, H] or four axes."""
    if x is None or isinstance(x, Tensor):
        return x
    t = _option(name, x, stream)
    if len(getattr(x, "shape", t.shape)) == 2:
        t.shape[:] = list(t.shape[2:]) + [1, 1]
        t.stride[:] = list(t.stride[2:]) + [0, 0]
    return t


def _from_axes(layout, b, h, s, d):
    """The array shape, in `layout`, of a tensor [b, h, s, d]."""
    return {"BHSD": (b, h, s, d), "BSHD": (b, s, h, d), "SBHD": (s, b, h, d), "THD": (s, h, d)}[layout]


def _bind_attention(name, q, k, v, out=None, *, layout="BHSD", kv_layout=None, dtype=None, kv_dtype=None,
                    lse=None, scores=None, bias=None, keep=None, q_descale=None, k_descale=None, v_descale=None,
                    workspace=None, stream=None, **fields):
    tq = _argument("q", q, layout, dtype, False, stream)
    if kv_layout is None:
        four = not isinstance(k, Tensor) and hasattr(k, "shape") and len(k.shape) == 4
        kv_layout = "BSHD" if layout == "THD" and four else layout
    tk, tv = (_argument(n, x, kv_layout, kv_dtype or dtype, False, stream) for n, x in (("k", k), ("v", v)))
    b, hq, sq, _ = tq.shape
    result = []
    if out is None:
        # 8-bit floats are no output type: f32 then
        wide = dtype_size(tq.dtype) == 1
        out = _empty(q, _from_axes(layout, b, hq, sq, tv.shape[3]), "float32" if wide else None)
    to = _argument("out", out, layout, None if _own_type(out) else dtype, True, stream)
    result.append(out)
    if lse is True:
        lse = _empty(q, (hq, sq) if layout == "THD" else (b, hq, sq), "float32")
        result.append(lse)
    if scores is True:
        scores = _empty(q, (b, hq, sq, tk.shape[2]), "float32")
        result.append(scores)
    fields.update(lse=_lse_tensor(lse, stream), scores=_option("scores", scores, stream, True),
                  bias=_option("bias", bias, stream), keep=_option("keep", keep, stream),
                  q_descale=_descale_tensor("q_descale", q_descale, stream),
                  k_descale=_descale_tensor("k_descale", k_descale, stream),
                  v_descale=_descale_tensor("v_descale", v_descale, stream))
    params = _fill_params(AttnParams, tq, fields)
    return Call(name, (tq, tk, tv, to), params, result[0] if len(result) == 1 else tuple(result), stream, workspace)


def _own_type(x):
    """Whether an output array says its element type itself (and dtype= does not speak of it)."""
    m = None if isinstance(x, Tensor) else _inspect(x)
    return m is None or m.dtype not in _STORAGE


def _bind_matmul(name, a, b, c=None, *, layout="BHSD", dtype=None, workspace=None, stream=None, **fields):
    ta, tb = (_argument(n, x, layout, dtype, False, stream) for n, x in (("a", a), ("b", b)))
    if c is None:
        if fields.get("beta"):
            raise ValueError("beta needs c=")
        shape = _from_axes(layout, *ta.shape[:3], tb.shape[3 if name == "matmul" else 2])
        c = _empty(a, shape[len(shape) - len(a.shape):])
    tc = _argument("c", c, layout, None if _own_type(c) else dtype, True, stream)
    params = _fill_params(MatmulParams, ta, fields)
    return Call(name, (ta, tb, tc), params, c, stream, workspace)


def _bind_softmax(name, x, out=None, *, layout="BHSD", dtype=None, lse=None, bias=None, keep=None, workspace=None,
                  stream=None, **fields):
    tx = _argument("x", x, layout, dtype, False, stream)
    if out is None:
        out = _empty(x, tuple(getattr(x, "shape", ())))
    ty = _argument("out", out, layout, None if _own_type(out) else dtype, True, stream)
    result = out
    if lse is True:
        lse = _empty(x, tuple(tx.shape[:3]), "float32")
        result = (out, lse)
    fields.update(lse=_lse_tensor(lse, stream), bias=_option("bias", bias, stream), keep=_option("keep", keep, stream))
    params = _fill_params(SoftmaxParams, tx, fields)
    return Call(name, (tx, ty), params, result, stream, workspace)


def _bind_merge(name, o_parts, lse_parts, out=None, lse=None, *, layout="BHSD", dtype=None, workspace=None,
                stream=None, **fields):
    if len(o_parts) != len(lse_parts):
        raise ValueError(f"{len(o_parts)} o_parts, {len(lse_parts)} lse_parts")
    n = len(o_parts)
    to_parts, tl_parts = (Tensor * n)(), (Tensor * n)()
    owners = []
    for i in range(n):
        to = _argument(f"o_parts[{i}]", o_parts[i], layout, dtype, False, stream)
        tl = _lse_tensor(lse_parts[i], stream, f"lse_parts[{i}]", False)
        to_parts[i], tl_parts[i] = to, tl
        owners += [to.owner, tl.owner]
    first = to_parts[0] if n else Tensor()
    if out is None:
        out = _empty(o_parts[0], tuple(getattr(o_parts[0], "shape", ())))
    to = _argument("out", out, layout, None if _own_type(out) else dtype, True, stream)
    result = out
    if lse is True:
        lse = _empty(o_parts[0], (first.shape[1], first.shape[2]) if layout == "THD" else tuple(first.shape[:3]),
                     "float32")
        result = (out, lse)
    params = _fill_params(MergeParams, first, fields)
    params.owner = owners
    return Call(name, (n, to_parts, tl_parts, to, _lse_tensor(lse, stream)), params, result, stream, workspace)


_BINDERS = {"matmul": _bind_matmul, "matmul_nt": _bind_matmul, "softmax": _bind_softmax,
            "softmax_causal": _bind_softmax, "gqa_forward": _bind_attention, "flash_forward": _bind_attention,
            "merge": _bind_merge}


def bind(name, *args, **kwargs):
    """The Call of operation `name` with the arguments its function takes: run it many times, ask it why."""
    return _BINDERS[name](name, *args, **kwargs)


# ---------------------------------------------------------------- torch: the same call with other memory

_ARGUMENTS = {"flash_forward": ("q", "k", "v", "out"), "gqa_forward": ("q", "k", "v", "out"),
              "matmul": ("a", "b", "c"), "matmul_nt": ("a", "b", "c"),
              "softmax": ("x", "out"), "softmax_causal": ("x", "out")}
_PLAIN = frozenset((int, float, str, bool, type(None)))
_MAX_PLANS = 512
_plans = threading.local()                 # .table; per thread, since ctypes lets go of the GIL in a call


class _Plan:
    """A Call whose addresses are filled in anew each time: a layer of a model does what the layer before it did,
    on other memory. Outputs and scratch come from torch's allocator at each run, so any stream may be current, and
    what is captured in a CUDA graph lies in the graph's own pool. It keeps nothing of the call it was made from."""

    def __init__(self, call, named, torch):
        self.call, self.empty = call, torch.empty
        self.slots = [self._slot(name) for name, x in named.items() if isinstance(x, torch.Tensor)]
        given = [x for x in named.values() if isinstance(x, torch.Tensor)]
        results = call.result if isinstance(call.result, tuple) else (call.result,)
        names = [_ARGUMENTS[call.name][-1]] + [name for name in ("lse", "scores") if named.get(name) is True]
        self.results = []                  # (index among the given tensors, None) or (what to write, how to make it)
        for name, x in zip(names, results):
            # the last one: in place it is the output among equals, and another call may give two
            index = next((i for i in reversed(range(len(given))) if given[i] is x), None)
            make = {"size": x.shape, "dtype": x.dtype, "device": x.device}
            self.results.append((index, None) if index is not None else (self._slot(name), make))
        self.device = given[0].device if given[0].is_cuda else None
        self.scratch = {"size": (call.params.workspace_bytes + 256,), "dtype": torch.uint8, "device": self.device}
        for t in (*call.tensors, call.params):
            t.owner = None
        call.result = call.scratch = None

    def _slot(self, name):
        """The struct and field an argument's address goes to."""
        names = _ARGUMENTS[self.call.name]
        if name in names:
            return self.call.tensors[names.index(name)], "data"
        field = getattr(self.call.params, name)
        return (field, "data") if isinstance(field, Tensor) else (self.call.params, name)

    def run(self, given):
        call, results = self.call, []
        for (struct, field), x in zip(self.slots, given):
            setattr(struct, field, x.data_ptr())
        for where, make in self.results:
            x = self.empty(**make) if make else given[where]
            if make:
                where[0].data = x.data_ptr()
            results.append(x)
        if self.device is not None:
            stream = _torch_stream(self.device.index)
            if stream != call._stream:
                call._use_stream(stream)
            if call.params.workspace_bytes:
                scratch = self.empty(**self.scratch)       # given back, in stream order, when run() returns
                call.params.workspace = (scratch.data_ptr() + 255) & -256
        call()
        return results[0] if len(results) == 1 else tuple(results)


def _torch_stream(index):
    """The cudaStream_t of torch's current stream."""
    torch = sys.modules["torch"]
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(index) if raw else torch.cuda.current_stream(index).cuda_stream


def _run(name, *args, **kwargs):
    """bind() and run; torch tensors of shapes and options seen before skip what bind() does."""
    torch = sys.modules.get("torch")
    own = kwargs.get("stream") is not None or kwargs.get("workspace") is not None
    if own or torch is None or not isinstance(args[0], torch.Tensor):
        return bind(name, *args, **kwargs)()
    values = args + tuple(kwargs.values()) if kwargs else args
    key, given = [name, *kwargs], []
    for x in values:
        if isinstance(x, torch.Tensor):
            key += (x.shape, x.stride() if x.layout is torch.strided else None, x.dtype, x.device, x.is_neg())
            given.append(x)
        elif type(x) in _PLAIN:
            key.append(x)
        else:
            return bind(name, *args, **kwargs)()
    key = tuple(key)
    table = _plans.__dict__.setdefault("table", {})
    plan = table.get(key)
    if plan is not None:
        return plan.run(given)
    call = bind(name, *args, **kwargs)
    result = call()
    if len(table) >= _MAX_PLANS:
        table.clear()
    table[key] = _Plan(call, dict(zip(_ARGUMENTS[name], args), **kwargs), torch)
    return result


# ---------------------------------------------------------------- operations

def flash_forward(q, k, v, out=None, **kwargs):
    """Attention in one pass over the keys, O(Sq) memory. Returns out, or a tuple with what was asked for by True.

    q, out  [B, Hq, Sq, D] and [B, Hq, Sq, Dv] in the order of `layout`; "THD": [T, Hq, D]
    k, v    [B, Hkv, Sk, D], [B, Hkv, Sk, Dv]; Hkv divides Hq and query head h reads KV head h // (Hq // Hkv)
    out     q's type or float32; None: allocated with q's library and type (8-bit q: float32)
    types   q / k, v: float32, float16, bfloat16 alike; or 16-bit q with 8-bit k, v; or all 8-bit of one type

    layout, kv_layout   "BHSD" (default), "BSHD", "SBHD", "THD"; kv_layout: k and v's, if another. Under THD
                        k and v with 4 axes are taken as BSHD: pages [num_pages, page_size, Hkv, D] as they lie
    dtype, kv_dtype     what uint16 or uint8 arrays of q, k, v, out (of k, v) stand for: "bf16", "e4m3fn"
    lse                 True: allocate and also return it; or a float32 array [B, Hq, Sq] (packed [Hq, T])
    bias, keep          [B, Hq, Sq, Sk] always in this order, each axis full or 1, leading ones may be left out
    *_descale           float32 [N, Hkv], or four axes
    q_offsets, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table (int32), sinks, alibi_slopes (float32):
                        arrays on the tensors' device, on CPU lists too, nested ones for the two that may have rows:
                        page_table [sequences, pages] and alibi_slopes [B, Hq]. num_seqs, max_pages,
                        page_table_stride and alibi_batch_stride follow from them
    scale, softcap, mask, precision, num_splits, num_threads, window_left, window_right, q_offset, num_seqs,
    max_seqlen_q, max_seqlen_k, flags: numbers, as in qattn_attn_params
    workspace           scratch of your own, 256-byte aligned; None: torch's on CUDA, else the library's
    stream              a cudaStream_t as int; None: torch's current stream

    Raises QattnError for what the library refuses, TypeError and ValueError for what cannot be handed to it.
    """
    return _run("flash_forward", q, k, v, out, **kwargs)


def gqa_forward(q, k, v, out=None, **kwargs):
    """The same attention by three kernels, O(Sq*Sk) memory, and the scores if wanted. As flash_forward, and:

    scores         True: allocate float32 and also return them; or an array [B, Hq, Sq, Sk], float32 or q's type
    scores_stage   what they are: 0 after scale, 1 after softcap, 2 after bias and every mask, 3 after softmax
    """
    return _run("gqa_forward", q, k, v, out, **kwargs)


def matmul(a, b, c=None, **kwargs):
    """C = alpha A B + beta C for every (B, H). a [B, H, M, K], b [B, Hb, K, N], c [B, H, M, N]; Hb divides H.
    With layout BHSD (default) leading axes may be left out. One type of float32, float16, bfloat16; c that or
    float32, allocated like a if None. alpha, beta, precision, num_threads, flags, workspace, stream, dtype:
    as in flash_forward. Returns c."""
    return _run("matmul", a, b, c, **kwargs)


def matmul_nt(a, b, c=None, **kwargs):
    """C = alpha A B^T + beta C: as matmul with b [B, Hb, N, K], read in place."""
    return _run("matmul_nt", a, b, c, **kwargs)


def softmax(x, out=None, **kwargs):
    """Softmax over the last axis of x [B, H, Sq, Sk] (leading axes may be left out). out: x's type or float32,
    may be x itself; None: allocated. Fields of qattn_softmax_params: scale, softcap, mask, window_left,
    window_right, q_offset, q_offsets, seqused_q, seqused_k, sinks, alibi_slopes, lse, bias, keep, num_threads,
    flags, with lse=True as in flash_forward. Rows that see no key get 0. Returns out, or (out, lse)."""
    return _run("softmax", x, out, **kwargs)


def softmax_causal(x, out=None, **kwargs):
    """softmax with MASK_CAUSAL added to mask."""
    return _run("softmax_causal", x, out, **kwargs)


def merge(o_parts, lse_parts, out=None, lse=None, **kwargs):
    """Merges partial results over disjoint keys, in order. o_parts: 1 to 64 arrays [B, H, S, Dv] (order of
    `layout`) of one type; lse_parts: as many float32 [B, H, S]. out: the parts' type or float32; None:
    allocated. lse: True to allocate and also return it, or an array. flags, num_threads, workspace, stream,
    dtype: as in flash_forward. Returns out, or (out, lse)."""
    return _bind_merge("merge", o_parts, lse_parts, out, lse, **kwargs)()


def _make_twins(name):
    def workspace(*args, **kwargs):
        return bind(name, *args, **kwargs).workspace()

    def explain(*args, **kwargs):
        return bind(name, *args, **kwargs).explain()

    def prepare(*args, **kwargs):
        bind(name, *args, **kwargs).prepare()

    workspace.__doc__ = f"Bytes of workspace that suffice for {name} with these arguments, whatever their strides."
    explain.__doc__ = f"Which implementation {name} would run with these arguments, and why no faster one. Text."
    prepare.__doc__ = f"Does {name}'s once-only work: loads kernels, starts threads."
    for suffix, function in (("workspace", workspace), ("explain", explain), ("prepare", prepare)):
        function.__name__ = function.__qualname__ = f"{name}_{suffix}"
        globals()[function.__name__] = function


for _name in _OPERATIONS:
    _make_twins(_name)
