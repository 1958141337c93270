# SPDX-License-Identifier: Apache-2.0
"""Finds libdecode.so.0, once a process, and the bundles that came with this package."""

from __future__ import annotations

import os
import pathlib
import threading

from libdecode.abi import Library

SONAME = "libdecode.so.0"
VARIABLE = "LIBDECODE_LIBRARY"  # a file, instead of every other place; of this package alone, the C library knows nothing of it
_FOLDER = pathlib.Path(__file__).resolve().parent
_lock = threading.Lock()
_library: Library | None = None


def packaged_bundles() -> list[str]:
    """The folder of bundles inside this package, if it was built with one (`packaging/run wheel`)."""
    folder = _FOLDER / "bundles"
    return [str(folder)] if folder.is_dir() else []


def library() -> Library:
    """The library of this process: of LIBDECODE_LIBRARY, else of this package, else where the dynamic linker looks.

    Raises ImportError that names the places.
    """
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def _load() -> Library:
    named, packaged = os.environ.get(VARIABLE), _FOLDER / "lib" / SONAME
    path = named or (str(packaged) if packaged.exists() else SONAME)
    try:
        return Library(path)
    except OSError as error:
        where = f"{VARIABLE} says {named}" if named else f"there is no {packaged}, and the dynamic linker was asked"
        raise ImportError(f"libdecode: {error} ({where}); install libdecode, or set {VARIABLE} to its {SONAME}") from error


def loaded_file() -> str:
    """The file that `library()` came from."""
    path = library().path
    if "/" in path:
        return os.path.realpath(path)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = [line.split(maxsplit=5)[-1].strip() for line in maps if f"/{SONAME}" in line]
    return found[0] if found else path
