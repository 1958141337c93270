# SPDX-License-Identifier: Apache-2.0
"""K and V, or their scales, as a caller has them in: a pair or one tensor, pages or a request. Pages of each, and where they lie, out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libdecode.arrays import TypedArray, View
from libdecode.errors import InvalidArgumentError

ROW_STEP, SCALES_STEP = 32, 4  # strides of NVFP4 rows, and of their scales, are multiples of these, in elements of the library


def pair(both: Any, name: str, see: Callable[[Any, str], View]) -> tuple[View, View]:
    """K's and V's, of a pair of tensors or of one [pages, 2 or 1, ...]."""
    if isinstance(both, (tuple, list)) and type(both) not in (TypedArray, View):
        if len(both) != 2:
            raise InvalidArgumentError(f"{name} is a {type(both).__name__} of {len(both)}: it must be a pair, K's and V's")
        return see(both[0], f"{name}[0]"), see(both[1], f"{name}[1]")
    whole = see(both, name)
    if len(whole.shape) != 5 or whole.shape[1] not in (1, 2):
        raise InvalidArgumentError(f"{name} has shape {whole.shape}: one tensor must be [pages, 2, ...] (K, then V) or "
                                   "[pages, 1, ...] (K and V the same), of five axes; else give the pair (K, V)")
    shape, strides = (whole.shape[0], *whole.shape[2:]), (whole.strides[0], *whole.strides[2:])
    k = whole._replace(name=f"{name}[:, 0]", shape=shape, strides=strides)
    if whole.shape[1] == 1:
        return k, k
    return k, k._replace(name=f"{name}[:, 1]", address=whole.address + whole.strides[1] * whole.item_bytes)


def batch_of_one(seen: View) -> View:
    """A request as a page."""
    return seen._replace(shape=(1, *seen.shape), strides=(0, *seen.strides))


def page_axes(kv_layout: str, last: str) -> str:
    """For messages."""
    return f"[pages, num_kv_heads, page_size, {last}]" if kv_layout == "HND" else f"[pages, page_size, num_kv_heads, {last}]"


def page_strides(seen: View, head: int, token: int, per_element: int = 1, step: int = 1) -> tuple[int, int, int]:
    """Of pages, heads and tokens, in elements of the library, of which one of `seen` has `per_element`; `head` and `token` are axes.

    An axis of one step may have any number for its stride (PyTorch's unsqueeze leaves the length of a row, without the gap behind it), and
    where there is no element every axis may. Nothing is found by such a stride, yet the library checks it like others. So it is not passed
    on: the inner one of heads and tokens gets the length of a row, rounded up to a multiple of `step`, and others one rounded up to
    ROW_STEP, which is a multiple of every step."""
    row, inner = seen.shape[3] * per_element, max(head, token)

    def stride(axis: int) -> int:
        least = step if axis == inner else ROW_STEP
        return seen.stride(axis) * per_element or -(-row // least) * least

    return stride(0), stride(head), stride(token)
