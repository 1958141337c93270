# SPDX-License-Identifier: Apache-2.0
"""libdecode.h and libdecode_problem.h for ctypes: their enumerators, structs, functions. The one mirror of the headers; a test holds it
to the C compiler.

Enumerators have the headers' names without `LIBDECODE_`; fields have the headers' names. What a field means, and what 0 means in
it, stands there. Nothing here converts anything, and only that a number fits its field is checked: see `problem.py` and
`decode.py` for the rest.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from ctypes import (CFUNCTYPE, POINTER, c_char, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32,
                    c_uint64, c_void_p)
from typing import TYPE_CHECKING, Any

from libdecode import errors
from libdecode.number import integer, real

DTYPE_DEFAULT, DTYPE_BF16, DTYPE_FP16, DTYPE_E4M3, DTYPE_NVFP4, DTYPE_FP32, DTYPE_E5M2 = range(7)
OP_BATCH_DECODE, OP_MLA_DECODE = 1, 2
KV_HND, KV_NHD = 0, 1
SF_LINEAR, SF_V_INTERLEAVE4 = 0, 1
(FEATURE_WINDOW, FEATURE_SINKS, FEATURE_LSE, FEATURE_RAGGED_Q, FEATURE_DRAFT_MASK, FEATURE_V_PAGE_TABLE, FEATURE_QUERY_POSITIONS,
 FEATURE_SKIP_SOFTMAX, FEATURE_SOFT_CAP, FEATURE_ALIBI, FEATURE_ROPE, FEATURE_LSE_NATURAL,
 FEATURE_BATCH_INVARIANT, FEATURE_CONTIGUOUS_KV, FEATURE_QUERY_ROPE,
 FEATURE_SPARSE_TOP_K_LENS, FEATURE_HOST_SEQ_LENS, FEATURE_QUERY_OFFSETS, FEATURE_KV_OFFSETS,
 FEATURE_LSE_WITHOUT_SINK, FEATURE_LSE_EMPTY_INFINITY, FEATURE_LSE_ALIBI_FROM_ZERO) = (1 << bit for bit in range(22))
KV_ROW_PLAIN, KV_ROW_FP8_SCALED_656, KV_ROW_NVFP4_352 = range(3)
OPEN_IGNORE_ENVIRONMENT, OPEN_BUNDLES_ONLY, OPEN_STRICT = 1, 2, 4
LOG_DEFAULT, LOG_NONE, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG = range(6)
LAUNCH_PROGRAMMATIC, LAUNCH_HISTORY_FINAL = 1, 2
MERGE_LSE_NATURAL = 1
_LIMITS: dict[Any, tuple[int, int]] = {
    kind: (-(2 ** (bits - 1)) if is_signed else 0, 2 ** (bits - is_signed) - 1)
    for kind, bits, is_signed in ((c_int32, 32, True), (c_uint32, 32, False), (c_int64, 64, True),
                                  (c_size_t, 8 * ctypes.sizeof(c_size_t), False))}


class Sized(ctypes.Structure):
    """A struct whose first field is its own size, as the library wants it. What is assigned to a field must fit it: TypeError and
    ValueError name the field."""

    _kinds: dict[str, Any] = {}  # of its fields

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "_fields_" in vars(cls):
            cls._kinds = {field[0]: field[1] for field in cls._fields_}

    def __init__(self, **fields: Any):
        super().__init__(**fields)
        self.struct_size = ctypes.sizeof(self)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._kinds.get(name)
        limits = _LIMITS.get(kind)
        if limits is not None:
            if type(value) is not int or not limits[0] <= value <= limits[1]:  # most are right, and this is quick
                value = integer(name, value, *limits)
        elif kind is c_float:
            value = real(name, value)
        super().__setattr__(name, value)


def _strides(*names: str) -> list[tuple[str, Any]]:
    return [(name + "_stride", c_int64) for name in names]


class Problem(Sized):
    _fields_ = (
        [("struct_size", c_size_t), ("op", c_int32), ("query_dtype", c_int32), ("kv_dtype", c_int32), ("out_dtype", c_int32)]
        + [("features", c_uint32)]
        + [(name, c_int32) for name in ("batch_size", "num_qo_heads", "num_kv_heads", "head_dim", "page_size", "q_len")]
        + [(name, c_int32) for name in ("max_seq_len", "window_left", "position_stride", "position_offset")]
        + [("skip_softmax_threshold_scale_factor", c_float)]
        + [("num_pages", c_int64), ("kv_layout", c_int32), ("v_sf_layout", c_int32)]
        + _strides("query_token", "query_head", "out_token", "out_head", "lse_token", "lse_head")
        + _strides("k_page", "k_head", "k_token", "v_page", "v_head", "v_token")
        + _strides("k_sf_page", "k_sf_head", "k_sf_token", "v_sf_page", "v_sf_head", "v_sf_token")
        + _strides("page_table_request", "page_table_head")
        + [("page_table_v_offset", c_int64)]
        + _strides("seq_lens_request", "seq_lens_head")
        + [("total_kv_tokens", c_int64)]
        + [("logits_soft_cap", c_float), ("rope_scale", c_float), ("rope_theta", c_float), ("v_head_dim", c_int32)]
        + _strides("query_rope_token", "query_rope_head")
        + [("kv_capacity_tokens", c_int32), ("sparse_top_k", c_int32)]
        + _strides("sparse_token_ids")
        + [("kv_row_format", c_int32), ("reserved", c_uint32)]
    )


class Tensors(Sized):
    _fields_ = (
        [("struct_size", c_size_t)]
        + [(name, c_void_p) for name in ("query", "k_cache", "v_cache", "k_sf", "v_sf", "page_table", "seq_lens")]
        + [(name, c_void_p) for name in ("out", "out_sf", "lse", "sinks", "cum_seq_lens_q", "query_positions", "draft_mask")]
        + [(name, c_float) for name in ("bmm1_scale", "bmm2_scale", "o_scale", "out_sf_scale")]
        + [("out_sf_start_token", c_int32), ("launch_flags", c_uint32)]
        + [(name, c_void_p) for name in ("bmm1_scale_device", "bmm1_scale_log2_device", "bmm2_scale_device", "workspace")]
        + [("workspace_bytes", c_size_t), ("alibi_slopes", c_void_p), ("query_rope", c_void_p)]
        + [(name, c_void_p) for name in ("sparse_token_ids", "sparse_top_k_lens")]
        + [(name, c_void_p) for name in ("query_offsets", "out_offsets", "k_offsets", "v_offsets")]
    )


_STRUCT_CODES = {c_size_t: "N", c_void_p: "P", c_float: "f", c_int32: "i", c_uint32: "I"}
# The same bytes made at once, of a value for every field: a quarter of the time of setting the fields one by one.
TENSORS_STRUCT = struct.Struct("@" + "".join(_STRUCT_CODES[kind] for _, kind in Tensors._fields_))
TENSORS_BYTES = ctypes.sizeof(Tensors)


class MemoryBundle(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]


LOG_FUNCTION = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class OpenOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("flags", c_uint32), ("log_level", c_int32), ("log", LOG_FUNCTION), ("log_cookie", c_void_p),
        ("bundle_paths", POINTER(c_char_p)), ("num_bundle_paths", c_size_t), ("memory_bundles", POINTER(MemoryBundle)),
        ("num_memory_bundles", c_size_t), ("kernel_policy", c_char_p), ("root_hashes", c_void_p), ("num_root_hashes", c_size_t),
    ]


class Device(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("name", c_char * 64), ("compute_capability", c_int32), ("sm_count", c_int32),
        ("shared_bytes_per_sm", c_int32), ("max_shared_bytes_per_block", c_int32), ("memory_bandwidth_gbps", c_int32),
        ("driver_version", c_int32), ("resident_clusters_2", c_int32), ("resident_clusters_4", c_int32),
        ("resident_clusters_8", c_int32), ("resident_clusters_16", c_int32),
    ]


class PlanInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("kernel", c_char_p), ("bundle", c_char_p), ("reason", c_char_p),
        ("image_sha256", c_uint8 * 32), ("row_passes", c_int32), ("workers", c_int32), ("cluster_size", c_int32),
        ("predicted_ns", c_int32), ("workspace_bytes", c_size_t),
    ]


class KernelInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("name", c_char_p), ("bundle", c_char_p), ("op", c_int32), ("query_dtypes", c_uint32),
        ("kv_dtype", c_int32), ("head_dim", c_int32), ("row_tile", c_int32), ("cluster_size", c_int32), ("threads", c_int32),
        ("shared_bytes", c_int32), ("registers", c_int32), ("gpus", c_uint32), ("features", c_uint32), ("reserved0", c_uint32),
        ("image_bytes", c_uint64), ("compressed_bytes", c_uint64), ("image_sha256", c_uint8 * 32),
    ]


class BundleInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("path", c_char_p), ("gpus", c_uint32), ("num_kernels", c_uint32), ("num_images", c_uint32),
        ("reserved0", c_uint32), ("file_bytes", c_uint64), ("root_hash", c_uint8 * 32),
    ]


class Verdict(ctypes.Structure):
    _fields_ = [("kernel", c_char_p), ("reason", c_char_p), ("eligible", c_int32), ("chosen", c_int32), ("predicted_ns", c_int32),
                ("reserved0", c_uint32)]


class States(Sized):
    _fields_ = (
        [("struct_size", c_size_t), ("dtype", c_int32), ("out_dtype", c_int32), ("flags", c_uint32), ("launch_flags", c_uint32)]
        + [(name, c_int32) for name in ("num_states", "num_tokens", "num_heads", "head_dim")]
        + [(name, c_void_p) for name in ("partial_out", "partial_lse", "state_offsets", "token_mask", "out", "lse")]
        + _strides("partial_state", "partial_token", "partial_head")
        + _strides("partial_lse_state", "partial_lse_token", "partial_lse_head")
        + _strides("out_token", "out_head", "lse_token", "lse_head")
    )


VERDICT_FUNCTION = CFUNCTYPE(None, c_void_p, POINTER(Verdict))

C_NAMES = {
    Problem: "libdecode_problem", Tensors: "libdecode_tensors", MemoryBundle: "libdecode_memory_bundle",
    OpenOptions: "libdecode_open_options", Device: "libdecode_device", PlanInfo: "libdecode_plan_info",
    KernelInfo: "libdecode_kernel_info", BundleInfo: "libdecode_bundle_info", Verdict: "libdecode_verdict",
    States: "libdecode_states",
}

# Every function of libdecode.h: what it returns, and what it takes. A status is an int.
PROTOTYPES = {
    "libdecode_status_name": (c_char_p, [c_int]),
    "libdecode_error_message": (c_char_p, []),
    "libdecode_error_cuda_result": (c_int, []),
    "libdecode_version": (c_char_p, []),
    "libdecode_open": (c_int, [POINTER(OpenOptions), POINTER(c_void_p)]),
    "libdecode_close": (None, [c_void_p]),
    "libdecode_device_current": (c_int, [c_void_p, POINTER(Device)]),
    "libdecode_device_preset": (c_int, [c_char_p, POINTER(Device)]),
    "libdecode_plan_create": (c_int, [c_void_p, POINTER(Problem), POINTER(Device), POINTER(c_void_p)]),
    "libdecode_plan_destroy": (None, [c_void_p]),
    "libdecode_plan_get_info": (c_int, [c_void_p, POINTER(PlanInfo)]),
    "libdecode_plan_workspace_bytes": (c_size_t, [c_void_p]),
    "libdecode_workspace_init": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "libdecode_prepare": (c_int, [c_void_p, POINTER(c_void_p), c_size_t]),
    "libdecode_plan_launch": (c_int, [c_void_p, POINTER(Tensors), c_void_p]),
    "libdecode_decode": (c_int, [c_void_p, POINTER(Problem), POINTER(Tensors), c_void_p]),
    "libdecode_decode_workspace_bytes": (c_int, [c_void_p, POINTER(Problem), POINTER(c_size_t)]),
    "libdecode_kernel_count": (c_size_t, [c_void_p]),
    "libdecode_kernel_get_info": (c_int, [c_void_p, c_size_t, POINTER(KernelInfo)]),
    "libdecode_bundle_count": (c_size_t, [c_void_p]),
    "libdecode_bundle_get_info": (c_int, [c_void_p, c_size_t, POINTER(BundleInfo)]),
    "libdecode_verify": (c_int, [c_void_p]),
    "libdecode_explain": (c_int, [c_void_p, POINTER(Problem), POINTER(Device), VERDICT_FUNCTION, c_void_p]),
    "libdecode_reference": (c_int, [POINTER(Problem), POINTER(Tensors)]),
    "libdecode_merge_states": (c_int, [c_void_p, POINTER(States), c_void_p]),
    "libdecode_merge_states_reference": (c_int, [POINTER(States)]),
}


class Library:
    """The functions of one libdecode.so.0, as attributes without their prefix: `library.plan_launch(...)` returns the status.

    `path` is a file, or a name for the dynamic linker. Raises OSError if it cannot be loaded or lacks a function. Calls release
    the interpreter's lock while they run.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        loaded = ctypes.CDLL(self.path)
        for name, (result, arguments) in PROTOTYPES.items():
            try:
                function = getattr(loaded, name)
            except AttributeError:
                raise OSError(f"{self.path} has no function {name}: it is not the libdecode that this package is for") from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("libdecode_"), function)
        # The same functions for tensors that are the bytes of TENSORS_STRUCT.
        self.plan_launch_packed = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)(("libdecode_plan_launch", loaded))
        self.decode_packed = CFUNCTYPE(c_int, c_void_p, c_void_p, c_char_p, c_void_p)(("libdecode_decode", loaded))
        self.reference_packed = CFUNCTYPE(c_int, POINTER(Problem), c_char_p)(("libdecode_reference", loaded))

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def error(self, status: int) -> errors.LibdecodeError:
        """The exception for what the calling thread's last call returned, with the library's own words."""
        return errors.from_status(status, self.error_message().decode(errors="replace"), self.error_cuda_result())

    def check(self, status: int) -> None:
        """Raises unless `status` is OK."""
        if status != 0:
            raise self.error(status)
