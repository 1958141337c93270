# SPDX-License-Identifier: Apache-2.0
"""Other people's tensors: an object in; its address, shape, strides, dtype and device out. Nothing is ever copied.

Understood are PyTorch's tensors, numpy's arrays, and whatever has `__cuda_array_interface__`, `__array_interface__` or
`__dlpack__`. Neither torch nor numpy is imported unless the caller's object is of it.

Dtypes have libdecode's names: "bf16", "fp16", "e4m3", "e5m2", "nvfp4", and "f32", "i32", "u16", "u8" for the rest. numpy has neither
bf16 nor e4m3 nor e5m2: their bits in a uint16 or uint8 array are named by `typed(array, "bf16")`. Two NVFP4 elements are one uint8.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

from libdecode import driver
from libdecode.errors import InvalidArgumentError, UnsupportedError

HOST = ("cpu", 0)
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "e4m3": 1, "e5m2": 1, "nvfp4": 1, "f32": 4, "f64": 8, "i32": 4, "i64": 8, "u16": 2, "u8": 1}
_SAME_BITS = {"bf16": "u16", "fp16": "u16", "e4m3": "u8", "e5m2": "u8", "nvfp4": "u8"}  # what a dtype may be carried in

# What PyTorch, numpy and ml_dtypes call them.
_NAMES = {
    "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float4_e2m1fn_x2": "nvfp4",
    "float32": "f32", "float64": "f64",
    "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64", "int16": "u16", "uint16": "u16", "uint8": "u8", "int8": "u8", "bool": "u8",
}
_known_dtypes: dict[Any, str] = {}  # dtype objects that were seen


class View(NamedTuple):
    """One tensor, as the library sees it."""

    name: str  # of the argument, for messages
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements of `dtype`; of nvfp4 in bytes of two
    dtype: str
    device: tuple[str, int]  # ("cpu", 0) or ("cuda", ordinal)
    owner: Any  # the tensor
    memory: Any = None  # what keeps its memory, where it does not itself

    @property
    def item_bytes(self) -> int:
        """Bytes of a step of 1."""
        return ELEMENT_BYTES[self.dtype]

    def stride(self, axis: int) -> int:
        """Of an axis, and 0, which the library takes as dense, where the axis has one step at most, or the tensor no element, and so no
        stride that counts."""
        if self.shape[axis] == 1 or 0 in self.shape:
            return 0
        stride = self.strides[axis]
        if stride <= 0:
            raise InvalidArgumentError(
                f"{self.name} has stride {stride} along axis {axis} of shape {self.shape}: it must be more than 0, which an "
                "expanded or reversed tensor has not")
        return stride


class TypedArray(NamedTuple):
    """An array and the dtype that its bits are in."""

    array: Any
    dtype: str


def typed(array: Any, dtype: str) -> TypedArray:
    """Says that the bits in `array` are `dtype`: "bf16" or "fp16" in elements of 16 bits, "e4m3" or "e5m2" in elements of 8,
    "nvfp4" in bytes that hold two elements each, the even one in the low half. Any function of this package takes the result
    for the array."""
    if dtype not in _SAME_BITS:
        raise InvalidArgumentError(f"dtype is {dtype!r}: accepted are {', '.join(_SAME_BITS)}")
    return TypedArray(array, dtype)


def dtype_name(dtype: Any) -> str:
    """libdecode's name of a dtype of PyTorch, numpy or ml_dtypes, or of a string."""
    try:
        return _known_dtypes[dtype]
    except (KeyError, TypeError):
        # numpy's and ml_dtypes' types stand for their dtypes
        text = dtype.__name__ if isinstance(dtype, type) else str(getattr(dtype, "name", dtype)).removeprefix("torch.")
        name = _NAMES.get(text, text)
        if name not in ELEMENT_BYTES:
            raise InvalidArgumentError(f"dtype {text} is not known: accepted are {', '.join(ELEMENT_BYTES)} and PyTorch's "
                                       "and numpy's names of these") from None
        if not isinstance(dtype, str):
            _known_dtypes[dtype] = name
        return name


def is_torch(array: Any) -> bool:
    """Whether this is one of PyTorch's tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def view(array: Any, name: str) -> View:
    """Reads a tensor; a View stays as it is. Raises TypeError where it is none, a ValueError where its dtype is unknown or is not
    what `typed` says."""
    if type(array) is View:
        return array
    if type(array) is TypedArray:
        seen = _view(array.array, name)
        if seen.dtype not in (array.dtype, _SAME_BITS[array.dtype]):
            raise InvalidArgumentError(f"{name} is {seen.dtype} and said to be {array.dtype}: its elements must be "
                                       f"{array.dtype} or {_SAME_BITS[array.dtype]}")
        return seen._replace(dtype=array.dtype)
    return _view(array, name)


def _view(array: Any, name: str) -> View:
    if is_torch(array):
        place = array.device
        device = HOST if place.type == "cpu" else (place.type, place.index or 0)
        return View(name, array.data_ptr(), tuple(array.shape), array.stride(), dtype_name(array.dtype), device, array)
    for protocol, device in (("__cuda_array_interface__", ("cuda", 0)), ("__array_interface__", HOST)):
        interface = getattr(array, protocol, None)
        if interface is not None:
            return _view_of_interface(array, name, interface, device)
    if hasattr(array, "__dlpack__"):
        return _view_of_dlpack(array, name)
    raise TypeError(f"{name} is a {type(array).__name__}: a PyTorch tensor, a numpy array or another object with "
                    "__cuda_array_interface__, __array_interface__ or __dlpack__ is needed")


# ---------------------------------------------------------------------------------------------------- array interfaces

_TYPE_STRINGS = {"f2": "fp16", "f4": "f32", "f8": "f64", "i2": "u16", "u2": "u16", "i4": "i32", "u4": "i32", "i8": "i64", "u8": "i64",
                 "u1": "u8", "i1": "u8", "b1": "u8"}


def _view_of_interface(array: Any, name: str, interface: dict[str, Any], device: tuple[str, int]) -> View:
    text = interface["typestr"]
    if text[0] == ">":
        raise InvalidArgumentError(f"{name} is big-endian: its bytes must lie in the order of the processor")
    # ml_dtypes hide behind "V2" and "V1": the dtype object knows
    dtype = dtype_name(array.dtype) if text[1] == "V" and hasattr(array, "dtype") else _TYPE_STRINGS.get(text[1:])
    if dtype is None:
        raise InvalidArgumentError(f"{name} has elements of type {text}: accepted are {', '.join(_TYPE_STRINGS)}")
    shape, size = tuple(interface["shape"]), ELEMENT_BYTES[dtype]
    in_bytes = interface.get("strides")
    if in_bytes is not None and any(stride % size for stride in in_bytes):
        raise InvalidArgumentError(f"{name} has strides of {in_bytes} bytes: they must be whole elements of {size}")
    strides = _dense_strides(shape) if in_bytes is None else tuple(stride // size for stride in in_bytes)
    if device != HOST:
        ordinal = getattr(getattr(array, "device", None), "id", None)  # CuPy says it; others mean the current GPU
        device = ("cuda", driver.current_ordinal() if ordinal is None else ordinal)
    return View(name, interface["data"][0] or 0, shape, strides, dtype, device, array)


def _is_read_only(seen: View) -> bool:
    """Whether its owner lets nobody write; where it does not say, somebody may."""
    for protocol in ("__cuda_array_interface__", "__array_interface__"):
        interface = None if is_torch(seen.owner) else getattr(seen.owner, protocol, None)
        if interface is not None:
            return bool(interface["data"][1])
    return False


# --------------------------------------------------------------------------------------------------------------- DLPack


class _DLTensor(ctypes.Structure):
    """Of DLPack's dlpack.h, as it has been since its first version."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DL_DTYPES = {(0, 8): "u8", (1, 8): "u8", (6, 8): "u8", (0, 16): "u16", (1, 16): "u16", (0, 32): "i32", (1, 32): "i32", (0, 64): "i64", (1, 64): "i64",
              (2, 16): "fp16", (2, 32): "f32", (2, 64): "f64", (4, 16): "bf16", (10, 8): "e4m3", (12, 8): "e5m2"}  # (code, bits)
_DL_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}  # 3: pinned, 13: managed


def _view_of_dlpack(array: Any, name: str) -> View:
    kind, _ = array.__dlpack_device__()
    # -1: the producer is not to wait; whoever calls orders the work, as with every other tensor
    capsule = array.__dlpack__(stream=-1) if _DL_DEVICES.get(kind) == "cuda" else array.__dlpack__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = ctypes.cast(get_pointer(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    dtype, place = _DL_DTYPES.get((tensor.code, tensor.bits)), _DL_DEVICES.get(tensor.device_type)
    if dtype is None or tensor.lanes != 1 or place is None:
        raise InvalidArgumentError(f"{name} has DLPack's dtype ({tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes) on "
                                   f"device type {tensor.device_type}: it must be one of {', '.join(sorted(set(_DL_DTYPES.values())))}, of the "
                                   "host or of CUDA")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim))
    else:
        strides = _dense_strides(shape)
    device = HOST if place == "cpu" else (place, tensor.device_id)
    # The capsule, not renamed, gives the memory back when it goes: it must live as long as the view.
    return View(name, (tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, device, array, capsule)


def size_bytes_of(seen: View) -> int:
    """Of a contiguous tensor."""
    return _product(seen.shape) * seen.item_bytes


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_product(shape[axis + 1 :]) for axis in range(len(shape)))


def _product(extents: tuple[int, ...]) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product


# --------------------------------------------------------------------------------------------------------------- checks


def require_dtype(seen: View, *accepted: str) -> None:
    """A ValueError that names what is accepted."""
    if seen.dtype not in accepted:
        hint = "; name the dtype of bits by libdecode.typed(array, dtype)" if seen.dtype in ("u16", "u8") else ""
        raise InvalidArgumentError(f"{seen.name} is {seen.dtype}: it must be {' or '.join(accepted)}{hint}")


def require_rank(seen: View, rank: int, meaning: str) -> None:
    """A ValueError that names the axes."""
    if len(seen.shape) != rank:
        raise InvalidArgumentError(f"{seen.name} has shape {seen.shape}: it must be {meaning}")


def require_shape(seen: View, shape: tuple[int, ...], meaning: str) -> None:
    """A ValueError that names the axes and the numbers that follow from the other arguments."""
    if seen.shape != shape:
        raise InvalidArgumentError(f"{seen.name} has shape {seen.shape}: it must be {meaning} = {shape}")


def require_dense_rows(seen: View) -> None:
    """The library has strides for every axis but the last."""
    if seen.shape[-1] > 1 and seen.strides[-1] != 1 and 0 not in seen.shape:
        raise InvalidArgumentError(f"{seen.name} has stride {seen.strides[-1]} along its last axis: it must be 1")


def require_contiguous(seen: View) -> None:
    """Where the library has no strides at all."""
    step = 1
    for extent, stride in zip(reversed(seen.shape), reversed(seen.strides)):
        if extent > 1 and stride != step and 0 not in seen.shape:
            raise InvalidArgumentError(f"{seen.name} has strides {seen.strides} with shape {seen.shape}: it must be contiguous")
        step *= extent


def require_writable(seen: View) -> None:
    """Where its owner says that it is not, as numpy's flag does."""
    if _is_read_only(seen):
        raise InvalidArgumentError(f"{seen.name} is read-only: it is written")


def require_device(views: list[View]) -> tuple[str, int]:
    """The one device that all of them are on."""
    first = views[0]
    for other in views[1:]:
        if other.device != first.device:
            raise InvalidArgumentError(f"{other.name} is on {_device_text(other.device)}, {first.name} on "
                                       f"{_device_text(first.device)}: all tensors of a call must be on one device")
    if first.device[0] not in ("cpu", "cuda"):
        raise UnsupportedError(f"{first.name} is on {first.device[0]}: libdecode has kernels for CUDA, and the reference for the host")
    return first.device


def _device_text(device: tuple[str, int]) -> str:
    return device[0] if device == HOST else f"{device[0]}:{device[1]}"


def address_of(seen: View, others: list[View]) -> int:
    """Its own, or of a tensor without elements, which may have none, where the library wants one: that of one of the others, which are on
    its device, down to a multiple of 16 bytes. Nobody reads or writes there by it."""
    if seen.address != 0 or 0 not in seen.shape:
        return seen.address
    return next((other.address & -16 for other in others if other.address != 0), 0)


def empty_like(like: View, shape: tuple[int, ...], dtype: str, name: str) -> Any:
    """A new tensor beside another: of PyTorch where that is, else of numpy, where bf16 becomes uint16, e4m3 and nvfp4 uint8."""
    query = like.owner
    if is_torch(query):
        torch = sys.modules["torch"]
        names = {"bf16": torch.bfloat16, "fp16": torch.float16, "e4m3": torch.float8_e4m3fn, "nvfp4": torch.uint8,
                 "f32": torch.float32}
        return torch.empty(shape, dtype=names[dtype], device=query.device)
    if hasattr(query, "__array_interface__") and not hasattr(query, "__cuda_array_interface__"):
        import numpy  # only here: whoever has such an array has numpy
        return numpy.empty(shape, {"bf16": "u2", "fp16": "f2", "e4m3": "u1", "nvfp4": "u1", "f32": "f4"}[dtype])
    raise InvalidArgumentError(f"{name} is None with {like.name} a {type(query).__name__}: only tensors of PyTorch and numpy are "
                               f"allocated here, so give {name}")
