# SPDX-License-Identifier: Apache-2.0
"""A caller's number in; the same out if a field of the library can hold it, else an error that names it. ctypes takes what fits of an
integer and drops the rest."""

from __future__ import annotations

import operator
from ctypes import c_float
from numbers import Real
from typing import Any

from libdecode.errors import InvalidArgumentError

LEAST_I32, MOST_I32 = -(2**31), 2**31 - 1


def integer(name: str, value: Any, least: int = LEAST_I32, most: int | None = MOST_I32) -> int:
    """Raises TypeError for what is no integer, ValueError for one that is out of range; `most` None: there is no largest."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {text_of(value)}: it must be an integer") from None
    if number < least or most is not None and number > most:
        raise InvalidArgumentError(f"{name} is {number}: it must be {least}{' or more' if most is None else f' to {most}'}")
    return number


def real(name: str, value: Any) -> float:
    """Raises TypeError for what is no number, ValueError for one other than 0 that is 0 in 32 bits, which the library takes for a
    default."""
    try:
        number = float(value) if isinstance(value, Real) else None
    except OverflowError:
        raise InvalidArgumentError(f"{name} is {value}: no float32 is as large") from None
    if number is None:
        raise TypeError(f"{name} is {text_of(value)}: it must be a number")
    if number != 0 and c_float(number).value == 0:
        raise InvalidArgumentError(f"{name} is {number}: no float32 but 0 is as small")
    return number


def text_of(value: Any) -> str:
    """For messages; of a tensor its type alone."""
    return repr(value) if isinstance(value, (type(None), bool, int, float, str)) else f"a {type(value).__name__}"
