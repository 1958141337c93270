# SPDX-License-Identifier: Apache-2.0
"""A result in NVFP4: the elements, and the scales of blocks of 16."""

from __future__ import annotations

from typing import Any

from libdecode.arrays import require_contiguous, require_dtype, require_rank, view
from libdecode.errors import InvalidArgumentError


class FP4Tensor:
    """Two tensors that are one, as in FlashInfer, whose own FP4Tensor any function here takes as well.

    data               uint8 [tokens, heads, head_dim / 2]: element 2i in the low half of byte i, 2i + 1 in the high half
    scale              e4m3 (or its bits in uint8) [rows, columns], rows a multiple of 128, columns heads * head_dim / 16 rounded
                       up to a multiple of 4. The scale of row r, column c lies at byte
                       ((r / 128) * (columns / 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4
    scale_start_index  the row of `scale` of the first token of `data`
    original_shape     None, or that of the elements: data's with a last axis of twice as many

    An element is worth code * scale / o_sf_scale. Raises ValueError.
    """

    dtype = "nvfp4"

    def __init__(self, data: Any, scale: Any, scale_start_index: int = 0, original_shape: tuple[int, ...] | None = None):
        seen, scales = view(data, "data"), view(scale, "scale")
        require_dtype(seen, "u8", "nvfp4")
        require_dtype(scales, "e4m3", "u8")
        require_rank(scales, 2, "[rows, columns]")
        require_contiguous(scales)
        rows = scales.shape[0]
        if rows % 128 != 0:
            raise InvalidArgumentError(f"scale has {rows} rows: they must be a multiple of 128")
        if not 0 <= scale_start_index <= rows - max(seen.shape[0], 1):
            raise InvalidArgumentError(f"scale_start_index is {scale_start_index}: it must be 0 to {rows - max(seen.shape[0], 1)}, "
                                       f"so that {seen.shape[0]} tokens lie within the {rows} rows of scale")
        if original_shape is not None and tuple(original_shape) != (*seen.shape[:-1], 2 * seen.shape[-1]):
            raise InvalidArgumentError(f"original_shape is {tuple(original_shape)}: with data of {seen.shape} it must be "
                                       f"{(*seen.shape[:-1], 2 * seen.shape[-1])}")
        self.data, self.scale, self.scale_start_index, self.original_shape = data, scale, scale_start_index, original_shape


def is_fp4(value: Any) -> bool:
    """Ours or FlashInfer's."""
    return isinstance(value, FP4Tensor) or (getattr(value, "dtype", None) == "nvfp4" and hasattr(value, "scale_start_index"))
