# SPDX-License-Identifier: Apache-2.0
"""A problem of libdecode_problem.h from Python's words: names for dtypes and layouts, features that follow from the fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from libdecode import abi
from libdecode.arrays import dtype_name
from libdecode.errors import InvalidArgumentError
from libdecode.number import integer

DTYPES = {"bf16": abi.DTYPE_BF16, "fp16": abi.DTYPE_FP16, "e4m3": abi.DTYPE_E4M3, "nvfp4": abi.DTYPE_NVFP4, "e5m2": abi.DTYPE_E5M2}
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
KV_LAYOUTS = {"HND": abi.KV_HND, "NHD": abi.KV_NHD}
SF_LAYOUTS = {"linear": abi.SF_LINEAR, "v_interleave4": abi.SF_V_INTERLEAVE4}
OPERATIONS = {"batch_decode": abi.OP_BATCH_DECODE, "mla_decode": abi.OP_MLA_DECODE}
FEATURES = {name.removeprefix("FEATURE_").lower(): bit for name, bit in vars(abi).items() if name.startswith("FEATURE_")}
_FIELDS = {name for name, _ in abi.Problem._fields_} - {"struct_size", "reserved"}
_WORDS = {"op": OPERATIONS, "query_dtype": DTYPES, "kv_dtype": DTYPES, "out_dtype": DTYPES, "kv_layout": KV_LAYOUTS,
          "v_sf_layout": SF_LAYOUTS}
# A field that means nothing without a feature brings it along.
_IMPLIED = {"skip_softmax_threshold_scale_factor": abi.FEATURE_SKIP_SOFTMAX, "logits_soft_cap": abi.FEATURE_SOFT_CAP,
            "rope_scale": abi.FEATURE_ROPE, "rope_theta": abi.FEATURE_ROPE, "page_table_v_offset": abi.FEATURE_V_PAGE_TABLE,
            "query_rope_token_stride": abi.FEATURE_QUERY_ROPE, "query_rope_head_stride": abi.FEATURE_QUERY_ROPE}


def choice(name: str, value: Any, choices: dict[str, int]) -> int:
    """The enumerator of a word; a ValueError names the others."""
    if value in choices:
        return choices[value]
    raise InvalidArgumentError(f"{name} is {value!r}: accepted are {', '.join(map(repr, choices))}")


class Problem(abi.Problem):
    """Shapes, dtypes and options of a decode, without pointers: `libdecode_problem`, whose fields it has by name.

    query_dtype, num_qo_heads, num_kv_heads, head_dim, page_size and one of max_seq_len and page_table_request_stride have no
    default (contiguous KV has kv_capacity_tokens instead of pages); every other field may be left out. Strides count elements.

    op            "batch_decode" (default) or "mla_decode"
    dtypes        "bf16", "fp16", "e4m3", "nvfp4", of the KV cache "e5m2", or PyTorch's and numpy's of these
    kv_layout     "HND" or "NHD"
    v_sf_layout   "linear" or "v_interleave4"
    features      names of LIBDECODE_FEATURE_*, in small letters ("sinks", "lse", "ragged_q", "draft_mask", ...), or their bits.
                  What another field says need not be named: window_left >= 0, skip_softmax_threshold_scale_factor,
                  logits_soft_cap, rope_scale, rope_theta, page_table_v_offset, the strides of query_rope, and kv_capacity_tokens
                  without page_size

    Raises ValueError for a word that is none and a number that the field has no room for, TypeError for a field that is none and for
    another type than the field's. What does not hang together is refused by whoever gets the problem: `Plan`, `explain`.
    """

    def __init__(self, *, features: int | Iterable[str] = 0, **fields: Any):
        unknown = fields.keys() - _FIELDS
        if unknown:
            raise TypeError(f"Problem() has no field {', '.join(sorted(unknown))}; it has {', '.join(sorted(_FIELDS))}")
        bits = features if isinstance(features, int) else _bits(features)
        for name, value in fields.items():
            if name in _WORDS and not hasattr(value, "__index__"):
                fields[name] = choice(name, dtype_name(value) if name.endswith("dtype") else value, _WORDS[name])
            elif name in _IMPLIED and value:
                bits |= _IMPLIED[name]
        if integer("window_left", fields.get("window_left", -1)) >= 0:
            bits |= abi.FEATURE_WINDOW
        if fields.get("kv_capacity_tokens") and not fields.get("page_size"):
            bits |= abi.FEATURE_CONTIGUOUS_KV
        super().__init__(features=bits, **fields)

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name, _ in abi.Problem._fields_[1:] if getattr(self, name)}
        return f"Problem({', '.join(f'{name}={value}' for name, value in given.items())})"


def require_problem(problem: Any) -> None:
    """A TypeError that says what it is instead."""
    if not isinstance(problem, abi.Problem):
        raise TypeError(f"problem is a {type(problem).__name__}: it must be a libdecode.Problem")


def _bits(names: Iterable[str]) -> int:
    if not isinstance(names, Iterable):
        raise TypeError(f"features is {names!r}: it must be names, or their bits as an integer")
    bits = 0
    for name in [names] if isinstance(names, str) else names:
        bits |= choice("features", name, FEATURES)
    return bits
