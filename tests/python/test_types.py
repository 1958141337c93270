# SPDX-License-Identifier: Apache-2.0
"""The package's type hints, by mypy in strict mode; 77 where Python has none. And what a caller's type checker sees of the functions
that `remembered` wraps."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import mypy  # noqa: F401
except ImportError:
    print("no mypy: not run")
    sys.exit(77)

PACKAGE = pathlib.Path(os.environ["SOURCE_ROOT"]) / "packaging/python/libdecode"
CALLER = """
import libdecode
from typing import Any
tensor: Any = None
right: tuple[Any, ...] = libdecode.trtllm_batch_decode_with_kv_cache(tensor, tensor, None, tensor, tensor, 70, window_left=3)
libdecode.trtllm_batch_decode_with_kv_cache(tensor, tensor, None, tensor, tensor, 70, window_left="3")  # line 6
libdecode.single_decode_with_kv_cache(tensor, tensor)  # line 7
problem = libdecode.Problem(query_dtype="bf16")
name: str = libdecode.Plan(problem).info.kernel
count: str = libdecode.Plan(problem).workspace_bytes  # line 10
"""


def errors(*arguments):
    """The lines of mypy that are errors."""
    with tempfile.TemporaryDirectory() as cache:
        # without PyTorch and numpy, whose own hints take a minute to read
        result = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", "--no-site-packages",
                                 "--ignore-missing-imports", "--cache-dir", cache, *arguments],
                                env={**os.environ, "MYPYPATH": str(PACKAGE.parent)}, capture_output=True, text=True)
    return [line for line in (result.stdout + result.stderr).splitlines() if "error:" in line]


class TypesTest(unittest.TestCase):
    def test_the_package_is_strictly_typed(self):
        self.assertTrue((PACKAGE / "py.typed").exists())
        self.assertEqual(errors(PACKAGE), [])

    def test_a_caller_is_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "caller.py")
            program.write_text(CALLER)
            found = errors(program)
        self.assertEqual([line.partition("caller.py:")[2].partition(":")[0] for line in found], ["6", "7", "10"], found)


unittest.main()
