# SPDX-License-Identifier: Apache-2.0
"""What a wheel can tell without the command `libdecode`, which it does not hold: a command line in, text or JSON out.

Exit codes: 0 all is well, 1 something is broken or no kernel does it, 2 the command line is wrong, 77 no GPU, but nothing is broken.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import signal
import sys
from collections.abc import Callable
from typing import Any

import libdecode
from libdecode import abi, doctor, driver
from libdecode.context import GPUS

_USAGE = 2  # argparse's, too
_EXAMPLE = ("query_dtype=bf16 batch_size=64 num_qo_heads=32 num_kv_heads=8 head_dim=128 page_size=16 max_seq_len=8192 "
            "features=sinks,lse")


def _doctor(arguments: argparse.Namespace) -> int:
    found, code = doctor.examine()
    _say(arguments, found, lambda: doctor.show(found))
    return code


def _list(arguments: argparse.Namespace) -> int:
    gpu = None if arguments.gpu is None else f"sm_{libdecode.device_preset(arguments.gpu).compute_capability}"
    kernels = [kernel for kernel in libdecode.kernels()
               if (gpu is None or gpu in kernel.gpus)
               and (not arguments.glob or any(fnmatch.fnmatchcase(kernel.name, glob) for glob in arguments.glob))]

    def show() -> None:
        for kernel in kernels:
            print(f"{kernel.name:<48} {', '.join(kernel.gpus):<16} {kernel.compressed_bytes:>9} bytes")
        print(f"{len(kernels)} kernels")

    _say(arguments, [kernel._asdict() for kernel in kernels], show)
    return doctor.PASSED if kernels else doctor.FAILED


def _explain(arguments: argparse.Namespace) -> int:
    problem = _problem(arguments.field)
    if arguments.gpu is None:
        driver.make_primary_current(0)
    said = libdecode.explain(problem, arguments.gpu)
    verdicts = [verdict for verdict in said.verdicts if arguments.all or verdict.chosen]

    def show() -> None:
        for verdict in verdicts:
            sign = "->" if verdict.chosen else "  " if verdict.eligible else " x"
            print(f"{sign} {verdict.kernel}\n       {verdict.reason}")
        if said.error is not None:
            print(f"no kernel: {said.error}")

    _say(arguments, {"chosen": said.chosen, "error": None if said.error is None else str(said.error),
                     "kernels": [verdict._asdict() for verdict in verdicts]}, show)
    return doctor.FAILED if said.chosen is None else doctor.PASSED


def _problem(words: list[str]) -> libdecode.Problem:
    fields: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise libdecode.InvalidArgumentError(f"{word} is no field: give NAME=VALUE, the names being those of libdecode.Problem")
        fields[name] = value.split(",") if name == "features" else _number_or_word(value)
    try:
        return libdecode.Problem(**fields)
    except TypeError as error:
        raise libdecode.InvalidArgumentError(str(error)) from None


def _number_or_word(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _say(arguments: argparse.Namespace, found: Any, show: Callable[[], None]) -> None:
    if arguments.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m libdecode", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"libdecode {libdecode.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, **more: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, **more)
        made.add_argument("--json", action="store_true", help="as JSON")
        made.set_defaults(run=run)
        return made

    command("doctor", _doctor, "what is there, what is missing and what to do")
    made = command("list", _list, "the kernels of the bundles at hand")
    made.add_argument("glob", nargs="*", metavar="GLOB", help="only those whose names match one")
    made.add_argument("--gpu", metavar="GPU", help=f"only those that run on it: {', '.join(GPUS)} or a name like H100")
    made = command("explain", _explain, "which kernel a problem gets on a GPU, why, and why not the others",
                   epilog=f"for instance: python -m libdecode explain --gpu sm_90 {_EXAMPLE}")
    made.add_argument("field", nargs="+", metavar="NAME=VALUE", help="fields of libdecode.Problem: "
                      + ", ".join(name for name, _ in abi.Problem._fields_ if name not in ("struct_size", "reserved")))
    made.add_argument("--gpu", metavar="GPU", help=f"instead of the first of this machine: {', '.join(GPUS)} or a name like H100")
    made.add_argument("--all", action="store_true", help="with a verdict on every kernel")
    return parser


def main() -> int:
    """The command line; returns the exit code."""
    arguments = _parser().parse_args()
    try:
        return int(arguments.run(arguments))
    except (libdecode.LibdecodeError, ImportError) as error:
        print(f"python -m libdecode: {error}", file=sys.stderr)
        if isinstance(error, libdecode.InvalidArgumentError):
            return _USAGE
        return doctor.NO_GPU if isinstance(error, (libdecode.NoDriverError, libdecode.NoDeviceError)) else doctor.FAILED


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads may leave, as `head` does: other commands end quietly, too
    sys.exit(main())
