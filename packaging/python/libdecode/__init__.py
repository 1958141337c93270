# SPDX-License-Identifier: Apache-2.0
"""libdecode for Python: LLM decode attention by kernels compiled ahead of time. Pure Python over libdecode.so.0; torch is
optional.

    trtllm_batch_decode_with_kv_cache   FlashInfer's call, and three more of its names
    merge_states                        partial results merged, and three more of its names for that
    Plan                                a kernel chosen once and launched many times, for engines
    Problem                             what a plan is made of
    Context, open, default_context      bundles and policy
    explain, kernels, device_preset     which kernel, why; what there is. No GPU needed
    Workspace                           memory that launches need
    typed, FP4Tensor                    bits as bf16, e4m3, e5m2, NVFP4; results in NVFP4
    LibdecodeError and its kind         errors

`python -m libdecode doctor` says what is there and what is missing.
"""

from __future__ import annotations

from typing import Any

from libdecode import abi
from libdecode.arrays import TypedArray, typed
from libdecode.context import (Bundle, Context, Explanation, Kernel, Verdict, default_context, device_preset)
from libdecode.decode import (cudnn_batch_decode_with_kv_cache, single_decode_with_kv_cache, trtllm_batch_decode_with_kv_cache,
                              trtllm_batch_decode_with_kv_cache_mla)
from libdecode.errors import (BundleDamagedError, BundleError, BundleNotFoundError, BundleReadError, BundleVersionError,
                              ColdInCaptureError, CudaError, DriverError, DriverTooOldError, ForkedError, InternalError,
                              InvalidArgumentError, LibdecodeError, NoDeviceError, NoDriverError, NoGpuImageError, NotInBundleError,
                              OutOfMemoryError, OverrideError, StateError, StrictError, StructSizeError, UnsupportedError,
                              WorkspaceTooSmallError, WrongDeviceError)
from libdecode.fp4 import FP4Tensor
from libdecode.library import library
from libdecode.merge import merge_state, merge_state_in_place, merge_states, variable_length_merge_states
from libdecode.plan import Plan, PlanInfo
from libdecode.problem import Problem
from libdecode.workspace import Workspace

# All but `open`, so that `import *` leaves Python's.
__all__ = [
    "Bundle", "BundleDamagedError", "BundleError", "BundleNotFoundError", "BundleReadError", "BundleVersionError",
    "ColdInCaptureError", "Context", "CudaError", "DriverError", "DriverTooOldError", "Explanation", "FP4Tensor", "ForkedError",
    "InternalError", "InvalidArgumentError", "Kernel", "LibdecodeError", "NoDeviceError", "NoDriverError", "NoGpuImageError",
    "NotInBundleError", "OutOfMemoryError", "OverrideError", "Plan", "PlanInfo", "Problem", "StateError", "StrictError",
    "StructSizeError", "TypedArray", "UnsupportedError", "Verdict", "Workspace", "WorkspaceTooSmallError", "WrongDeviceError",
    "abi", "cudnn_batch_decode_with_kv_cache", "default_context", "device_preset", "explain", "kernels", "library", "merge_state",
    "merge_state_in_place", "merge_states", "reference",
    "single_decode_with_kv_cache", "trtllm_batch_decode_with_kv_cache", "trtllm_batch_decode_with_kv_cache_mla", "typed",
    "variable_length_merge_states", "version",
]

__version__ = "0.1.0"  # of the C library that this is for; the build checks that they agree


def open(*arguments: Any, **options: Any) -> Context:  # pylint: disable=redefined-builtin
    """A context: `Context(...)` under the name that the C library has for it."""
    return Context(*arguments, **options)


def version() -> str:
    """Of libdecode.so.0."""
    return str(library().version(), "ascii")


def kernels() -> list[Kernel]:
    """Every kernel of the default context."""
    return default_context().kernels()


def explain(problem: abi.Problem, device: str | abi.Device | None = None) -> Explanation:
    """`Context.explain` of the default context."""
    return default_context().explain(problem, device)


def reference(problem: abi.Problem, **tensors: Any) -> None:
    """`libdecode_reference`: the operation in float64 on the host; `tensors` as of `Plan.run`."""
    Plan(problem, device="cpu").run(**tensors)
