# SPDX-License-Identifier: Apache-2.0
"""A caller's word for what FlashInfer chooses among and libdecode has one of: nothing follows from it, but a word that FlashInfer does not
know is refused, as it refuses it."""

from __future__ import annotations

from typing import Any

from libdecode.errors import InvalidArgumentError
from libdecode.number import text_of


def require_word(name: str, value: Any, *accepted: str | None) -> None:
    """Raises ValueError for another word, TypeError for what is none."""
    message = f"{name} is {text_of(value)}: accepted are {', '.join(map(repr, accepted))}"
    if isinstance(value, str):
        if value not in accepted:
            raise InvalidArgumentError(message)
    elif value is not None or None not in accepted:
        raise TypeError(message)
