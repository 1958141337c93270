# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's calls that merge partial results of attention over disjoint parts of the KV tokens, by its names.

Each takes v, results of attention in bf16, fp16 or f32, and s, their lse in f32 and base 2, as `return_lse` gives it. The formula,
and what is at the edges, is that of libdecode_states in libdecode.h. Tensors on a GPU: one kernel on the current stream, which may
be captured once the same call was made outside. Tensors on the host: the same in float64.

Errors: as those of `libdecode.decode`.
"""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING, Any, Optional, Union

from libdecode import abi
from libdecode.arrays import (View, address_of, empty_like, require_contiguous, require_dense_rows, require_device, require_dtype,
                              require_rank, require_shape, require_writable, view)
from libdecode.call import launch_at
from libdecode.context import Context, default_context
from libdecode.errors import InvalidArgumentError
from libdecode.indices import require_bounds
from libdecode.library import library

if TYPE_CHECKING:
    import torch

    Tensor = Union[torch.Tensor, Any]

_DTYPES = {"bf16": abi.DTYPE_BF16, "fp16": abi.DTYPE_FP16, "f32": abi.DTYPE_FP32}


def merge_states(v: Tensor, s: Tensor, *, stream: Optional[int] = None, context: Optional[Context] = None) -> tuple[Any, Any]:
    """As many partial results of every token.

    v   [tokens, states, heads, head_dim]
    s   [tokens, states, heads]

    Returns (v, s) merged: [tokens, heads, head_dim] of v's dtype, and [tokens, heads].
    """
    partial, lse = _see(v, s, 4, "[tokens, states, heads, head_dim]")
    tokens, count, heads, head_dim = partial.shape
    states = _states(partial, heads, head_dim, tokens)
    states.num_states = count
    states.partial_token_stride, states.partial_state_stride, states.partial_head_stride = map(partial.stride, range(3))
    states.partial_lse_token_stride, states.partial_lse_state_stride, states.partial_lse_head_stride = map(lse.stride, range(3))
    return _merged(states, partial, lse, [], stream, context)


def merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor, *, stream: Optional[int] = None,
                context: Optional[Context] = None) -> tuple[Any, Any]:
    """Two partial results of every token.

    v_a, v_b   [tokens, heads, head_dim], of one dtype and equal strides
    s_a, s_b   [tokens, heads], of equal strides

    Returns (v, s) merged, of the same shapes and dtypes.
    """
    (partial, lse), (other, other_lse) = _see(v_a, s_a, 3, _ROWS), _see(v_b, s_b, 3, _ROWS)
    states = _pair(partial, lse, other, other_lse, ("v_a", "v_b", "s_a", "s_b"))
    return _merged(states, partial, lse, [other, other_lse], stream, context)


def merge_state_in_place(v: Tensor, s: Tensor, v_other: Tensor, s_other: Tensor, mask: Optional[Tensor] = None, *,
                         stream: Optional[int] = None, context: Optional[Context] = None) -> None:
    """Two partial results of every token; the merged ones replace v and s.

    v, v_other   [tokens, heads, head_dim], of one dtype and equal strides
    s, s_other   [tokens, heads], of equal strides
    mask         bool or u8 [tokens]: where it is 0, v and s stay as they are; None: all are merged
    """
    (partial, lse), (other, other_lse) = _see(v, s, 3, _ROWS), _see(v_other, s_other, 3, _ROWS)
    states = _pair(partial, lse, other, other_lse, ("v", "v_other", "s", "s_other"))
    views = [partial, lse, other, other_lse]
    for seen in (partial, lse):
        require_writable(seen)
    if mask is not None:
        seen = view(mask, "mask")
        require_dtype(seen, "u8")
        require_shape(seen, (partial.shape[0],), "[tokens]")
        require_contiguous(seen)
        states.token_mask = seen.address
        views.append(seen)
    states.out, states.lse = partial.address, lse.address
    states.out_token_stride, states.out_head_stride = partial.stride(0), partial.stride(1)
    states.lse_token_stride, states.lse_head_stride = lse.stride(0), lse.stride(1)
    _run(states, views, stream, context)


def variable_length_merge_states(v: Tensor, s: Tensor, indptr: Tensor, *, stream: Optional[int] = None,
                                 context: Optional[Context] = None) -> tuple[Any, Any]:
    """Of every token as many partial results as it has.

    v        [states of all tokens, heads, head_dim]
    s        [states of all tokens, heads]
    indptr   i32 [tokens + 1]: the states of token t are indptr[t] to indptr[t + 1] - 1; none give 0 and -infinity

    Returns (v, s) merged: [tokens, heads, head_dim] of v's dtype, and [tokens, heads].
    """
    partial, lse = _see(v, s, 3, "[states, heads, head_dim]")
    offsets = view(indptr, "indptr")
    require_dtype(offsets, "i32")
    require_rank(offsets, 1, "[tokens + 1]")
    require_contiguous(offsets)
    if offsets.shape[0] < 1:
        raise InvalidArgumentError("indptr is empty: it must be [tokens + 1]")
    count, heads, head_dim = partial.shape
    require_bounds(offsets, count, "states of v", from_zero=False)
    states = _states(partial, heads, head_dim, offsets.shape[0] - 1)
    states.state_offsets = offsets.address
    states.partial_state_stride, states.partial_head_stride = partial.stride(0), partial.stride(1)
    states.partial_lse_state_stride, states.partial_lse_head_stride = lse.stride(0), lse.stride(1)
    return _merged(states, partial, lse, [offsets], stream, context)


_ROWS = "[tokens, heads, head_dim]"


def _see(v: Any, s: Any, rank: int, meaning: str) -> tuple[View, View]:
    partial, lse = view(v, "v"), view(s, "s")
    require_dtype(partial, *_DTYPES)
    require_dtype(lse, "f32")
    require_rank(partial, rank, meaning)
    require_dense_rows(partial)
    require_shape(lse, partial.shape[:-1], "the shape of v without its last axis")
    return partial, lse


def _states(partial: View, heads: int, head_dim: int, tokens: int) -> abi.States:
    return abi.States(dtype=_DTYPES[partial.dtype], num_heads=heads, head_dim=head_dim, num_tokens=tokens)


def _pair(partial: View, lse: View, other: View, other_lse: View, names: tuple[str, str, str, str]) -> abi.States:
    """Two tensors are two states: the stride from one to the other is the difference of their addresses."""
    tokens, heads, head_dim = partial.shape
    for first, second, first_name, second_name in ((partial, other, *names[:2]), (lse, other_lse, *names[2:])):
        steps = [[stride for stride, extent in zip(seen.strides, seen.shape) if extent > 1] for seen in (first, second)]
        if first.shape != second.shape or first.dtype != second.dtype or steps[0] != steps[1]:
            raise InvalidArgumentError(f"{second_name} is {second.dtype} of shape {second.shape} and strides {second.strides}: it must be "
                                       f"as {first_name}, {first.dtype} of {first.shape} and {first.strides}")
    states = _states(partial, heads, head_dim, tokens)
    states.num_states = 2
    states.partial_token_stride, states.partial_head_stride = partial.stride(0), partial.stride(1)
    states.partial_lse_token_stride, states.partial_lse_head_stride = lse.stride(0), lse.stride(1)
    states.partial_state_stride = (other.address - partial.address) // partial.item_bytes
    states.partial_lse_state_stride = (other_lse.address - lse.address) // lse.item_bytes
    for seen in (other, other_lse):
        if seen.address % 16 and seen is other or seen.address % 4:
            raise InvalidArgumentError(f"{names[1] if seen is other else names[3]} begins at {seen.address:#x}: it must be aligned to "
                                       f"{16 if seen is other else 4} bytes")
    return states


def _merged(states: abi.States, partial: View, lse: View, others: list[View], stream: Optional[int],
            context: Optional[Context]) -> tuple[Any, Any]:
    out = empty_like(partial, (states.num_tokens, states.num_heads, states.head_dim), partial.dtype, "v")
    merged_lse = empty_like(partial, (states.num_tokens, states.num_heads), "f32", "s")
    states.out, states.lse = view(out, "v").address, view(merged_lse, "s").address
    _run(states, [partial, lse, *others], stream, context)
    return out, merged_lse


def _run(states: abi.States, views: list[View], stream: Optional[int], context: Optional[Context]) -> None:
    states.partial_out, states.partial_lse = (address_of(seen, views) for seen in views[:2])
    if require_device(views)[0] == "cpu":
        library().check(library().merge_states_reference(byref(states)))
        return
    handle = (context or default_context()).handle
    launch_at(views[0], stream, lambda place: library().check(library().merge_states(handle, byref(states), place.stream)))
