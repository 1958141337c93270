# SPDX-License-Identifier: Apache-2.0
"""Offsets of requests, as cuDNN's call has them, in; a tensor that begins at the first, with their distance as its stride, out.

The library knows one distance for all requests of a tensor, so offsets must be evenly spaced, and their values must be at hand when
the call is made: on the host.
"""

from __future__ import annotations

import ctypes
from typing import Any

from libdecode.arrays import HOST, View, require_contiguous, require_dtype, require_rank, view
from libdecode.errors import InvalidArgumentError, UnsupportedError

_INTEGERS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64}


def at_offsets(function: str, seen: View, offsets: Any, name: str, batch: int, rows_per_request: int = 1) -> View:
    """`seen` with request b at element offsets[b] of it, and rows_per_request rows of its first axis to each. offsets are i32 or i64
    [batch] or [batch + 1], where the last one, which says where the last request ends, is not looked at. None: `seen` itself.

    Raises ValueError for what is not such a tensor or leaves `seen`; NotImplementedError for offsets on a GPU, or unevenly spaced.
    """
    if offsets is None:
        return seen
    begins = _values(function, view(offsets, name), batch)
    steps = {later - earlier for earlier, later in zip(begins, begins[1:])}
    if len(steps) > 1 or (rows_per_request > 1 and steps and steps != {rows_per_request * seen.strides[0]}):
        raise UnsupportedError(f"{function}: {name} is {_text(begins)}: libdecode has one distance between the "
                               f"{'rows' if rows_per_request > 1 else 'requests'} of {seen.name}, so offsets must be evenly spaced"
                               + (f", {rows_per_request * seen.strides[0]} apart" if rows_per_request > 1 else ""))
    if any(step <= 0 for step in steps):
        raise InvalidArgumentError(f"{name} is {_text(begins)}: each offset must be more than the one before it")
    per_row = steps.pop() // rows_per_request if steps else seen.strides[0]
    moved = seen._replace(shape=(batch * rows_per_request, *seen.shape[1:]), strides=(per_row, *seen.strides[1:]))
    first = begins[0] if begins else 0
    if first < 0 or first + _elements(moved) > _elements(seen):
        raise InvalidArgumentError(f"{name} is {_text(begins)}: the requests must lie inside {seen.name}, which has "
                                   f"{_elements(seen)} elements")
    return moved._replace(address=seen.address + first * seen.item_bytes)


def refuse_offsets(function: str, offsets: Any, name: str) -> None:
    """With pages, whose places the page table says, offsets must say nothing: None, or 0 for each request."""
    if offsets is not None:
        seen = view(offsets, name)
        values = _values(function, seen, None)
        if any(values):
            raise UnsupportedError(f"{function}: {name} is {_text(values)} with block_tables: libdecode finds pages by their ids alone; "
                                   "leave it None, or add the offsets to the ids")


def _values(function: str, seen: View, batch: int | None) -> list[int]:
    if seen.device != HOST:
        raise UnsupportedError(f"{function}: libdecode does not read {seen.name} on a GPU (kernels have one distance for all requests): "
                               "give it on the host")
    require_dtype(seen, *_INTEGERS)
    require_rank(seen, 1, "[batch] or [batch + 1]")
    require_contiguous(seen)
    if batch is not None and seen.shape[0] not in (batch, batch + 1):
        raise InvalidArgumentError(f"{seen.name} has shape {seen.shape}: it must be [batch] or [batch + 1] with batch {batch}")
    values = list((_INTEGERS[seen.dtype] * seen.shape[0]).from_address(seen.address)) if seen.shape[0] else []
    return values[:batch]


def _elements(seen: View) -> int:
    """From the first to behind the last."""
    if 0 in seen.shape:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(seen.shape, seen.strides))


def _text(values: list[int]) -> str:
    return f"[{', '.join(map(str, values[:4]))}{', ...' if len(values) > 4 else ''}]"
