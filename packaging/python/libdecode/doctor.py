# SPDX-License-Identifier: Apache-2.0
"""`python -m libdecode doctor`: this machine in; what is there, what is missing and what to do about it out."""

from __future__ import annotations

import os
import platform
from typing import Any

import libdecode
from libdecode import driver
from libdecode.library import VARIABLE, loaded_file

PASSED, FAILED, NO_GPU = 0, 1, 77  # exit codes, those of the command `libdecode`
_VARIABLES = (VARIABLE, "LIBDECODE_KERNEL", "LIBDECODE_BUNDLE_PATH", "LIBDECODE_BUNDLE_ONLY", "LIBDECODE_LOG", "LIBDECODE_STRICT")


def examine() -> tuple[dict[str, Any], int]:
    """Everything that is found, as JSON takes it, and the exit code. Its "advice" says what to do."""
    advice: list[str] = []
    found: dict[str, Any] = {
        "package": {"version": libdecode.__version__, "folder": os.path.dirname(libdecode.__file__)},
        "python": platform.python_version(), "library": None, "driver": None, "gpus": [], "bundles": [], "passed_over": [], "verified": False,
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ}, "advice": advice,
    }
    for name in ("torch", "numpy"):
        found[name] = _version_of(name)
    broken = not _examine_library(found, advice) or not _examine_bundles(found, advice)
    has_gpu, is_served = _examine_gpus(found, advice)
    broken = broken or not is_served
    found["well"] = not broken
    return found, FAILED if broken else PASSED if has_gpu else NO_GPU


def _version_of(name: str) -> str | None:
    from importlib import metadata
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _examine_library(found: dict[str, Any], advice: list[str]) -> bool:
    """Whether it is there."""
    try:
        found["library"] = {"version": libdecode.version(), "file": loaded_file()}
    except ImportError as error:
        advice.append(str(error))
        return False
    if libdecode.version() != libdecode.__version__:
        advice.append(f"the package is of libdecode {libdecode.__version__}, the library of {libdecode.version()}: install the "
                      "two of one release")
    return True


def _examine_bundles(found: dict[str, Any], advice: list[str]) -> bool:
    """Whether there are some, and all of them whole."""
    try:
        with libdecode.Context(log_level="warn", log=lambda _, message: _heed(message, found["passed_over"], advice)) as context:
            return _examine_context(context, found, advice)
    except libdecode.LibdecodeError as error:
        advice.append(str(error))
        return False


def _heed(warning: str, passed_over: list[str], advice: list[str]) -> None:
    """What the library says of files that it cannot use, and of variables that nobody reads."""
    reason = warning.removeprefix("passed over: ")
    (advice if reason == warning else passed_over).append(reason)


def _examine_context(context: libdecode.Context, found: dict[str, Any], advice: list[str]) -> bool:
    found["bundles"] = [bundle._asdict() for bundle in context.bundles()]
    if not found["bundles"]:
        usable = " that can be used" if found["passed_over"] else ""
        advice.append(f"no bundle{usable} was found, so there are no kernels: install libdecode's, take a wheel that has them, or name "
                      "a folder of *.bundle in LIBDECODE_BUNDLE_PATH")
        return False
    context.verify()
    count = len(found["passed_over"])
    if count > 0:
        advice.append("a bundle that cannot be used was passed over: replace it, or take it away" if count == 1 else
                      f"{count} bundles that cannot be used were passed over: replace them, or take them away")
    found["verified"] = count == 0
    return count == 0


def _examine_gpus(found: dict[str, Any], advice: list[str]) -> tuple[bool, bool]:
    """(there is a GPU, and each is served by a bundle)."""
    try:
        version, gpus = driver.gpus()
    except libdecode.LibdecodeError as error:
        advice.append(f"{error}: no kernel can run here; tensors on the host and explain() work all the same")
        return False, True
    found["driver"] = {"cuda": f"{version // 1000}.{version % 1000 // 10}"}
    is_served = True
    for ordinal, gpu in enumerate(gpus):
        name = f"sm_{gpu['compute_capability']}"
        gpu["kernels"] = sum(bundle["num_kernels"] for bundle in found["bundles"] if name in bundle["gpus"])
        found["gpus"].append(gpu)
        if gpu["kernels"] == 0 and found["bundles"]:
            is_served = False
            advice.append(f"no bundle here serves GPU {ordinal} ({gpu['name']}, {name})")
    return bool(gpus), is_served


def show(found: dict[str, Any]) -> None:
    """What `examine` has found, for people."""
    package, library = found["package"], found["library"]
    print(f"package    {package['version']}, {package['folder']}")
    print(f"python     {found['python']}, torch {found['torch'] or 'none'}, numpy {found['numpy'] or 'none'}")
    print(f"library    {library['version']}, {library['file']}" if library else "library    none")
    print(f"driver     {'for CUDA ' + found['driver']['cuda'] if found['driver'] else 'none'}")
    for ordinal, gpu in enumerate(found["gpus"]):
        print(f"GPU {ordinal:<6} {gpu['name']}, sm_{gpu['compute_capability']}, {gpu['sm_count']} SMs; {gpu['kernels']} kernels "
              "for it")
    for bundle in found["bundles"]:
        print(f"bundle     {bundle['path']}: {', '.join(bundle['gpus'])}, {bundle['num_kernels']} kernels, "
              f"{bundle['file_bytes']} bytes, root {bundle['root_hash']}")
    for reason in found["passed_over"]:
        print(f"unusable   {reason}")
    print(f"verified   {'every image: length, SHA-256 and headers' if found['verified'] else 'no'}")
    for name, value in found["environment"].items():
        print(f"variable   {name}={value}")
    for text in found["advice"]:
        print(f"to do      {text}")
