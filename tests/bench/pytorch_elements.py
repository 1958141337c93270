# SPDX-License-Identifier: Apache-2.0
"""Elements as PyTorch has them, for pytorch_*check.py: what raw bytes of a dtype are in float64, and how far a result is from one of them."""

import math

import torch

from libdecode.abi import DTYPE_BF16, DTYPE_E4M3, DTYPE_E5M2, DTYPE_FP16, DTYPE_NVFP4

FRACTION_BITS = {DTYPE_BF16: 7, DTYPE_FP16: 10, DTYPE_E4M3: 3}
MIN_EXPONENT = {DTYPE_BF16: -126, DTYPE_FP16: -14, DTYPE_E4M3: -6}
E2M1_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def e4m3_decode(codes):
    return codes.view(torch.float8_e4m3fn).double()


def e5m2_decode(codes):
    return codes.view(torch.float8_e5m2).double()


def check_e4m3():
    """PyTorch's e4m3 against the textbook formula: the two sides must not share a mistake."""
    code = torch.arange(256)
    exponent, fraction = (code >> 3) & 15, (code & 7).double() / 8
    value = torch.where(exponent == 0, 2.0**-6 * fraction, 2.0 ** (exponent.double() - 7) * (1 + fraction))
    value = torch.where(code & 127 == 127, math.nan, torch.where(code >= 128, -value, value))
    theirs = e4m3_decode(code.to(torch.uint8))
    assert torch.equal(theirs.nan_to_num(1e9), value.nan_to_num(1e9)), "PyTorch's e4m3 is another format"


def check_e5m2():
    """PyTorch's e5m2 against the textbook formula: with infinities, and NaN behind them."""
    code = torch.arange(256)
    exponent, fraction = (code >> 2) & 31, (code & 3).double() / 4
    value = torch.where(exponent == 0, 2.0**-14 * fraction, 2.0 ** (exponent.double() - 15) * (1 + fraction))
    value = torch.where(exponent == 31, torch.where(fraction == 0, math.inf, math.nan), value)
    value = torch.where(code >= 128, -value, value)
    theirs = e5m2_decode(code.to(torch.uint8))
    assert torch.equal(theirs.nan_to_num(1e9), value.nan_to_num(1e9)), "PyTorch's e5m2 is another format"


def nvfp4_decode(raw, sf):
    """[..., D/2] bytes, even elements in the low nibble, and [..., D/16] scales: [..., D] values."""
    codes = torch.stack([raw & 15, raw >> 4], -1).flatten(-2)
    return E2M1_VALUES.to(raw.device)[codes.long()] * e4m3_decode(sf).repeat_interleave(16, -1)


def decode(dtype, raw, sf=None):
    if dtype == DTYPE_NVFP4:
        return nvfp4_decode(raw, sf)
    if dtype in (DTYPE_E4M3, DTYPE_E5M2):
        return e4m3_decode(raw) if dtype == DTYPE_E4M3 else e5m2_decode(raw)
    return raw.double()


def unswizzled(scales, rows, columns):
    """128x4 tiles back into a matrix: a tile is 32 rows of 16 bytes, 4 for each of the rows r, r + 32, r + 64, r + 96."""
    tiles = scales.view(rows // 128, columns // 4, 32, 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).reshape(rows, columns)


def half_units(actual, expected, dtype, tolerance):
    """By how much more than the tolerance they differ, in halves of the unit in the last place: rounding gives at most 1."""
    fraction_bits, min_exponent = (23, -126) if dtype is None else (FRACTION_BITS[dtype], MIN_EXPONENT[dtype])
    exponent = torch.frexp(expected.abs() + tolerance)[1].double() - 1
    half = 2.0 ** (exponent.clamp(min=min_exponent) - fraction_bits - 1)
    same = actual == expected  # infinities
    return torch.where(same, torch.zeros_like(expected), ((actual - expected).abs() - tolerance) / half)


def nearest(values, numbers):
    """The nearest of sorted `numbers` for each value, the lower of two."""
    index = torch.bucketize(values, (numbers[1:] + numbers[:-1]) / 2)
    return numbers[index]
