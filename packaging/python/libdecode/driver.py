# SPDX-License-Identifier: Apache-2.0
"""The few things that are asked of CUDA: which stream, is it capturing, memory for a workspace. Of PyTorch where the tensors are
PyTorch's, so that its allocator and its streams are used; else of the driver, through ctypes."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from ctypes import byref, c_char, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, NamedTuple

from libdecode.errors import CudaError, NoDriverError

_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR, _MULTIPROCESSOR_COUNT = 75, 76, 16  # CUdevice_attribute


@functools.cache
def _libcuda() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoDriverError(f"libcuda.so.1 cannot be loaded ({error}); install the NVIDIA driver") from error


def _call(name: str, *arguments: Any) -> None:
    result = getattr(_libcuda(), name)(*arguments)
    if result != 0:
        error = CudaError(f"{name} answers CUresult {result}")
        error.cuda_result = result
        raise error


# --------------------------------------------------------------------------------------------------------- with PyTorch


def torch_has_gpu() -> bool:
    """Whether PyTorch is imported and sees a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available()


class TorchQuick(NamedTuple):
    """What is asked of PyTorch at every launch, once it has made a context. Of the functions that its own compiler calls in the code that it
    makes, where they are: 0.1 us instead of 1."""

    stream: Callable[[int], int]
    current_ordinal: Callable[[], int]
    is_capturing: Callable[[], bool]
    # (tensors): what says of as many tensors whether each has type, dtype, device, shape and strides of its counterpart
    check_of: Callable[[list[Any]], Callable[..., bool]]
    # (tensor): what allocates one of its shape, strides and dtype, on its GPU while that is the current one
    allocator_of: Callable[[Any], Callable[[], Any]]


@functools.cache
def torch_quick() -> TorchQuick:
    """Those of this process."""
    torch = sys.modules["torch"]
    quick = torch._C  # pylint: disable=protected-access
    guards = getattr(getattr(quick, "_dynamo", None), "guards", None)
    return TorchQuick(
        getattr(quick, "_cuda_getCurrentRawStream", None) or (lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream),
        getattr(quick, "_cuda_getDevice", None) or torch.cuda.current_device,
        getattr(quick, "_cuda_isCurrentStreamCapturing", None) or torch.cuda.is_current_stream_capturing,
        _guard_of if hasattr(guards, "TensorGuards") else _plain_check_of,
        _allocator_of)


def _guard_of(tensors: list[Any]) -> Callable[..., bool]:
    """By the guards of PyTorch's compiler: one call for all, in half the time. They also tell inference mode, autocast and
    requires_grad from calls without: what is taken for another is only slower."""
    guards = sys.modules["torch"]._C._dynamo.guards  # pylint: disable=protected-access
    try:
        check: Callable[..., bool] = guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return check if check(*tensors) else _plain_check_of(tensors)
    except (RuntimeError, TypeError, ValueError):  # of another release, where they are made in another way
        return _plain_check_of(tensors)


def _allocator_of(made: Any) -> Callable[[], Any]:
    """What the code that PyTorch's compiler makes allocates with: the same memory of the same pool, in half the time."""
    torch = sys.modules["torch"]
    layout = tuple(made.shape), made.stride(), made.dtype
    plain = functools.partial(torch.empty_strided, *layout[:2], dtype=made.dtype, device=made.device)
    try:
        quick = getattr(torch._C._dynamo.guards, f"_empty_strided_{made.device.type}")  # pylint: disable=protected-access
        return functools.partial(quick, *layout) if _layout(quick(*layout)) == _layout(made) else plain
    except (AttributeError, RuntimeError, TypeError):  # of another release, where it is made in another way
        return plain


def _plain_check_of(tensors: list[Any]) -> Callable[..., bool]:
    wanted = list(map(_layout, tensors))
    return lambda *others: list(map(_layout, others)) == wanted


def _layout(tensor: Any) -> tuple[Any, ...]:
    return type(tensor), tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride()


def torch_stream(ordinal: int) -> int:
    """The handle of PyTorch's current stream on this GPU."""
    return torch_quick().stream(ordinal)


def torch_is_capturing() -> bool:
    """Whether PyTorch's current stream is recording a graph."""
    return bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def torch_allocate(size_bytes: int, ordinal: int) -> tuple[Any, int]:
    """(what keeps it, its address)."""
    torch = sys.modules["torch"]
    buffer = torch.empty(size_bytes, dtype=torch.uint8, device=torch.device("cuda", ordinal))
    return buffer, buffer.data_ptr()


def torch_floats(elements: list[float], ordinal: int) -> tuple[Any, int]:
    """f32 on a GPU, there when this returns: (what keeps them, their address)."""
    torch = sys.modules["torch"]
    tensor = torch.tensor(elements, dtype=torch.float32, device=torch.device("cuda", ordinal))
    return tensor, tensor.data_ptr()


def torch_current_ordinal() -> int:
    """PyTorch's current GPU."""
    return int(sys.modules["torch"].cuda.current_device())


def torch_make_current(ordinal: int) -> None:
    """PyTorch makes a context current at a thread's first CUDA call, which a launch of ours may precede."""
    sys.modules["torch"].cuda.set_device(ordinal)


# ------------------------------------------------------------------------------------------------------ with the driver


def current_ordinal() -> int:
    """The GPU of the calling thread's current context."""
    device = c_int()
    _call("cuCtxGetDevice", byref(device))
    return device.value


def make_primary_current(ordinal: int) -> None:
    """For a program that has no context of its own: the GPU's primary one, for the calling thread. Raises a DriverError."""
    device, context = c_int(), c_void_p()
    _call("cuInit", 0)
    _call("cuDeviceGet", byref(device), ordinal)
    _call("cuDevicePrimaryCtxRetain", byref(context), device)
    _call("cuCtxSetCurrent", context)


def is_capturing(stream: int) -> bool:
    """Whether this stream is recording a graph."""
    status = c_int()
    _call("cuStreamIsCapturing", c_void_p(stream), byref(status))
    return status.value != 0


def synchronize(stream: int) -> None:
    """Waits until everything on this stream is done."""
    _call("cuStreamSynchronize", c_void_p(stream))


class _DriverMemory:
    """Device memory that lives as long as this object."""

    def __init__(self, size_bytes: int):
        self.address = c_uint64()
        _call("cuMemAlloc_v2", byref(self.address), c_size_t(size_bytes))
        self._free = _libcuda().cuMemFree_v2

    def __del__(self) -> None:
        if self.address.value:
            self._free(self.address)


def allocate(size_bytes: int) -> tuple[Any, int]:
    """Memory of the current context: (what keeps it, its address)."""
    memory = _DriverMemory(size_bytes)
    return memory, memory.address.value


def floats(elements: ctypes.Array[ctypes.c_float]) -> tuple[Any, int]:
    """f32 in the current context, there when this returns: (what keeps them, their address)."""
    memory, address = allocate(ctypes.sizeof(elements))
    _call("cuMemcpyHtoD_v2", c_uint64(address), elements, c_size_t(ctypes.sizeof(elements)))
    return memory, address


def gpus() -> tuple[int, list[dict[str, Any]]]:
    """The driver's CUDA version, 13000 for 13.0, and name, compute_capability and sm_count of every GPU. Raises a DriverError."""
    version, count = c_int(), c_int()
    _call("cuInit", 0)
    _call("cuDriverGetVersion", byref(version))
    _call("cuDeviceGetCount", byref(count))
    return version.value, [_facts(ordinal) for ordinal in range(count.value)]


def _facts(ordinal: int) -> dict[str, Any]:
    device, name = c_int(), (c_char * 128)()
    _call("cuDeviceGet", byref(device), ordinal)
    _call("cuDeviceGetName", name, 128, device)
    values = []
    for attribute in (_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR, _MULTIPROCESSOR_COUNT):
        value = c_int()
        _call("cuDeviceGetAttribute", byref(value), attribute, device)
        values.append(value.value)
    major, minor, sm_count = values
    return {"name": name.value.decode(errors="replace"), "compute_capability": 10 * major + minor, "sm_count": sm_count}


def compute_capability(ordinal: int) -> int:
    """90 for sm_90; asked once a GPU."""
    if ordinal not in _capabilities:
        _capabilities[ordinal] = _facts(ordinal)["compute_capability"]
    return _capabilities[ordinal]


_capabilities: dict[int, int] = {}
