# SPDX-License-Identifier: Apache-2.0
"""Offsets of requests, as cuDNN's call has them, in; where the requests of a tensor then begin out: at one distance from each other, or
each where the library reads its offset.

One distance is better: every kernel knows it. It can be seen of offsets on the host alone, whose values are at hand when the call is made.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from libdecode.arrays import HOST, View, require_contiguous, require_dtype, require_rank, view
from libdecode.errors import InvalidArgumentError, UnsupportedError

_INTEGERS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64}
_ROW_BYTES = 16  # which rows are aligned to, where no kernel that knows others is asked for


class Placed(NamedTuple):
    """A tensor with as many rows or requests along its first axis as there are, and i64 [batch] of the elements at which requests
    begin, where that is not their distance. `is_odd`: requests begin where only kernels that know such places let them."""

    seen: View
    offsets: View | None
    is_odd: bool = False


def at_offsets(function: str, seen: View, offsets: Any, name: str, batch: int, rows_per_request: int = 1, *,
               any_element: bool = False) -> Placed:
    """`seen` with request b at element offsets[b] of it, and rows_per_request rows of its first axis to each. offsets are i32 or i64
    [batch] or [batch + 1], on a GPU i64; the last one of batch + 1, which says where the last request ends, is not looked at. None:
    `seen` itself. Unless `any_element` they are multiples of 16 bytes.

    Raises ValueError for what is not such a tensor or, on the host, leaves `seen` or is not aligned; NotImplementedError for i32 on a GPU,
    and for offsets on the host that are not evenly spaced, of a tensor on a GPU.
    """
    if offsets is None:
        return Placed(seen, None)
    given = _checked(view(offsets, name), batch)
    placed = seen._replace(shape=(batch * rows_per_request, *seen.shape[1:]))
    if given.device != HOST:
        _require_wide(function, given)
        return Placed(placed, given)
    begins = _values(given, batch)
    if not begins:
        return Placed(placed, None)
    steps = {later - earlier for earlier, later in zip(begins, begins[1:])}
    step = steps.pop() if len(steps) == 1 else 0
    if step > 0 and (rows_per_request == 1 or step == rows_per_request * seen.strides[0]) or len(begins) == 1:
        placed = placed._replace(strides=(step // rows_per_request or seen.strides[0], *seen.strides[1:]))
        _require_inside(begins, [begins[0] + _elements(placed)], seen, name)
        is_odd = not _are_aligned(begins, seen, name, any_element)
        return Placed(placed._replace(address=seen.address + begins[0] * seen.item_bytes), None, is_odd)
    request = _elements(seen._replace(shape=(rows_per_request, *seen.shape[1:])))
    _require_inside(begins, [begin + request for begin in begins], seen, name)
    _are_aligned(begins, seen, name, any_element)
    return Placed(placed, _for_the_library(function, begins, seen, name))


def of_pages(function: str, seen: View, offsets: Any, name: str, batch: int) -> Placed:
    """The same of a cache with pages: what is added to where those of a request lie. Zeros on the host are as good as None."""
    if offsets is None:
        return Placed(seen, None)
    given = _checked(view(offsets, name), batch)
    if given.device != HOST:
        _require_wide(function, given)
        return Placed(seen, given)
    values = _values(given, batch)
    return Placed(seen, _for_the_library(function, values, seen, name) if any(values) else None)


def _checked(seen: View, batch: int) -> View:
    require_dtype(seen, *_INTEGERS)
    require_rank(seen, 1, "[batch] or [batch + 1]")
    require_contiguous(seen)
    if seen.shape[0] not in (batch, batch + 1):
        raise InvalidArgumentError(f"{seen.name} has shape {seen.shape}: it must be [batch] or [batch + 1] with batch {batch}")
    return seen


def _require_wide(function: str, seen: View) -> None:
    if seen.dtype != "i64":
        raise UnsupportedError(f"{function}: {seen.name} is {seen.dtype} on a GPU, where kernels read i64 alone: convert it")


def _values(seen: View, batch: int) -> list[int]:
    values = list((_INTEGERS[seen.dtype] * seen.shape[0]).from_address(seen.address)) if seen.shape[0] else []
    return values[:batch]


def _for_the_library(function: str, values: list[int], seen: View, name: str) -> View:
    if seen.device != HOST:
        raise UnsupportedError(f"{function}: {name} is {_text(values)} on the host, with {seen.name} on a GPU: offsets that are not evenly "
                               "spaced are read where the kernel runs, so give them on the GPU, as i64")
    wide = (ctypes.c_int64 * len(values))(*values)
    return View(name, ctypes.addressof(wide), (len(values),), (1,), "i64", HOST, wide)


def _require_inside(begins: list[int], ends: list[int], seen: View, name: str) -> None:
    if min(begins) < 0 or max(ends) > _elements(seen):
        raise InvalidArgumentError(f"{name} is {_text(begins)}: the requests must lie inside {seen.name}, which has "
                                   f"{_elements(seen)} elements")


def _are_aligned(begins: list[int], seen: View, name: str, any_element: bool) -> bool:
    """A ValueError where they are not and must be."""
    if all(begin * seen.item_bytes % _ROW_BYTES == 0 for begin in begins):
        return True
    if not any_element:
        raise InvalidArgumentError(f"{name} is {_text(begins)}: requests begin at multiples of {_ROW_BYTES // seen.item_bytes} elements of "
                                   f"{seen.name}, which are {_ROW_BYTES} bytes")
    return False


def _elements(seen: View) -> int:
    """From the first to behind the last."""
    if 0 in seen.shape:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(seen.shape, seen.strides))


def _text(values: list[int]) -> str:
    return f"[{', '.join(map(str, values[:4]))}{', ...' if len(values) > 4 else ''}]"
