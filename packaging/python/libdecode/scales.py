# SPDX-License-Identifier: Apache-2.0
"""Scales in a caller's tensors in; as the library reads them out."""

from __future__ import annotations

import ctypes
from typing import Any

from libdecode.arrays import HOST, View, is_torch, require_dtype
from libdecode.errors import InvalidArgumentError, UnsupportedError
from libdecode.number import real


def heads_together(seen: View) -> tuple[View, bool]:
    """[pages, page_size, num_kv_heads, S] of V, interleaved by four tokens, as [pages, num_kv_heads, page_size, S] of which those of a
    page and head lie side by side, and whether that is a copy: the interleaving mixes the axes of tokens and scales, so strides do not say
    where one is. A page of one head, and what lies like that already, is not copied. Raises NotImplementedError for a tensor on a GPU that is
    not PyTorch's."""
    pages, page_size, heads, per_row = seen.shape
    shape = (pages, heads, page_size, per_row)
    turned = seen._replace(shape=shape, strides=tuple(seen.strides[axis] for axis in (0, 2, 1, 3)))
    if page_size == 1 or turned.strides[2] == per_row or 0 in shape:
        return turned, False
    owner: Any
    if seen.device == HOST:
        owner = (ctypes.c_uint8 * (pages * heads * page_size * per_row))()
        address = ctypes.addressof(owner)
        for page in range(pages):
            for head in range(heads):
                for token in range(page_size):
                    row = ((page * heads + head) * page_size + token) * per_row
                    ctypes.memmove(address + row, seen.address + page * turned.strides[0] + head * turned.strides[1]
                                   + token * turned.strides[2], per_row)
    elif is_torch(seen.owner):
        first = seen.owner.storage_offset() + seen.address - seen.owner.data_ptr()  # in elements, which are bytes
        owner = seen.owner.as_strided(shape, turned.strides, first).contiguous()
        address = owner.data_ptr()
    else:
        raise UnsupportedError(f"{seen.name} is a {type(seen.owner).__name__} of interleaved scales in NHD, which are copied, and only tensors of "
                               "PyTorch are on a GPU: give it with the scales of a page and head side by side, or with kv_layout HND")
    strides = (heads * page_size * per_row, page_size * per_row, per_row, 1)
    return turned._replace(address=address, strides=strides, owner=owner, memory=None), True


def first_float(seen: View, *, alone: bool = False) -> View:
    """A tensor whose first element is the scale, as FlashInfer reads it, in f32; `alone`: it has no other."""
    require_dtype(seen, "f32")
    if 0 in seen.shape or alone and any(extent != 1 for extent in seen.shape):
        raise InvalidArgumentError(f"{seen.name} has shape {seen.shape}: {'it must be one element' if alone else 'a scale is the first element'}")
    return seen


def product_of(factors: dict[str, Any]) -> Any:
    """Of a logit scale, by the names that the caller knows them by: floats, or tensors, which multiply as their library says. None is 1."""
    product: Any = 1.0
    for name, factor in factors.items():
        if factor is None:
            continue
        if not hasattr(factor, "__len__") or isinstance(factor, str):
            factor = real(name, factor)
            if factor == 0:
                raise InvalidArgumentError(f"{name} is 0: the library takes a scale of 0 for 1")
        product = product * factor
    return product
