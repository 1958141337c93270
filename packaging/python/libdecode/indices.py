# SPDX-License-Identifier: Apache-2.0
"""Indices on the host, which the reference follows: those that would lead outside a caller's memory are refused by name. On a GPU nobody
can look at them before the kernel runs."""

from __future__ import annotations

import ctypes
from itertools import product

from libdecode.arrays import HOST, View
from libdecode.errors import InvalidArgumentError

_INTEGERS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64}


def on_host(seen: View) -> list[int] | None:
    """All elements, the last axis the quickest; None: they are not on the host."""
    if seen.device != HOST:
        return None
    kind = _INTEGERS[seen.dtype]
    return [kind.from_address(seen.address + seen.item_bytes * sum(map(int.__mul__, at, seen.strides))).value
            for at in product(*map(range, seen.shape))]


def require_bounds(seen: View, most: int, of_what: str, *, from_zero: bool) -> int:
    """What begins at each element and ends before the next one must be among `most`. Returns what there is between two at most."""
    bounds = on_host(seen)
    if not bounds:
        return most
    if bounds[0] < 0 or from_zero and bounds[0] != 0:
        raise InvalidArgumentError(f"{seen.name} begins with {bounds[0]}: it must be 0{'' if from_zero else ' or more'}")
    for at, (first, end) in enumerate(zip(bounds, bounds[1:])):
        if end < first:
            raise InvalidArgumentError(f"{seen.name} has {end} behind {first} at {at + 1}: it must not run backwards")
    if bounds[-1] > most:
        raise InvalidArgumentError(f"{seen.name} ends with {bounds[-1]}: it must be at most the {most} {of_what}")
    return max((end - first for first, end in zip(bounds, bounds[1:])), default=0)


def require_lengths_in_rows(lens: View, table: View, page_size: int) -> None:
    """The library cuts a length to what a row of the page table has room for, and takes the rows' distance for what it has."""
    width = table.shape[-1]
    distances = [stride for stride, extent in zip(table.strides[:-1], table.shape) if extent > 1]
    lengths = on_host(lens) if any(distance > width for distance in distances) and table.device == HOST else None
    if lengths and max(lengths) > width * page_size:
        raise InvalidArgumentError(f"{lens.name} has {max(lengths)}: a row of {table.name}, which is a part of a wider one, has {width} pages "
                                   f"of {page_size} tokens")


def require_pages_inside(seen: View, offsets: View, table: View, lens: View | None, most_tokens: int) -> None:
    """The live pages of every request, counted from its offset, must lie inside the cache, [pages, num_kv_heads, page_size, head_dim]."""
    begins, ids = on_host(offsets), on_host(table)
    lengths = [most_tokens] * table.shape[0] if lens is None else on_host(lens)
    if begins is None or ids is None or lengths is None:
        return
    (pages, heads, page_size, head_dim), (page, head, token, _) = seen.shape, seen.strides
    width = table.shape[1]
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(seen.shape, seen.strides))
    for request, (begin, length) in enumerate(zip(begins, lengths)):
        for number in range(min(-(-length // page_size), width)):
            at = ids[request * width + number]
            last = (heads - 1) * head + (min(page_size, length - number * page_size) - 1) * token + head_dim
            if 0 <= at < pages and not (begin + at * page >= 0 and begin + at * page + last <= size):
                raise InvalidArgumentError(f"{offsets.name} has {begin} for request {request}: its page {at} then leaves {seen.name}, which "
                                           f"has {size} elements")
