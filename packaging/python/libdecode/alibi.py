# SPDX-License-Identifier: Apache-2.0
"""The slopes of ALiBi for calls that name it and take none, as FlashInfer's single decode: those of its authors (Press et al.,
"Train Short, Test Long", 2021), a geometric series of the heads."""

from __future__ import annotations

import threading
from ctypes import Array, c_float
from typing import Any

from libdecode import driver
from libdecode.errors import ColdInCaptureError
from libdecode.workspace import Place

_lock = threading.Lock()
_on_gpu: dict[tuple[int, int], tuple[Any, int]] = {}  # of a GPU and a number of heads: what keeps them, their address. Graphs may have it


def slopes(num_heads: int) -> list[float]:
    """Of n heads 2^(-8 / n), its square and so on, n a power of two. Of a number between two such, those of the smaller first, then every
    other one of the larger."""
    if num_heads < 1:
        return []
    power = 1 << (num_heads.bit_length() - 1)
    return ([2.0 ** (-8 * (head + 1) / power) for head in range(power)]
            + [2.0 ** (-4 * (2 * head + 1) / power) for head in range(num_heads - power)])


def on_host(num_heads: int) -> Array[c_float]:
    """For the reference."""
    return (c_float * num_heads)(*slopes(num_heads))


def on_gpu(place: Place, num_heads: int) -> int:
    """Their address, the same for all launches of a GPU: they are put there once and stay. Raises ColdInCaptureError; a DriverError."""
    key = place.ordinal, num_heads
    with _lock:
        if key not in _on_gpu:
            if place.is_capturing:
                raise ColdInCaptureError("the slopes of ALiBi would be copied to the GPU inside a stream capture: make this call once "
                                         "before capturing")
            made = driver.torch_floats(slopes(num_heads), place.ordinal) if place.use_torch else driver.floats(on_host(num_heads))
            _on_gpu[key] = made
        return _on_gpu[key][1]
