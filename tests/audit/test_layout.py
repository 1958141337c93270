# SPDX-License-Identifier: Apache-2.0
"""Every source has the layout of .clang-format: test_layout.py SOURCE_ROOT.

Versions of clang-format differ in details; ours is Debian 12's. Exit code 77 where another one or none is installed.
"""

import pathlib
import re
import shutil
import subprocess
import sys

VERSION = 14
ROOT = pathlib.Path(sys.argv[1])
FOLDERS = ("include", "kernels", "loader", "gen", "tests")
SUFFIXES = {".c", ".h", ".cu", ".cuh", ".cpp"}
SKIPPED = 77


def program():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        found = shutil.which(name)
        if found:
            text = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {VERSION}\.", text):
                return found
    return None


def main():
    clang_format = program()
    if clang_format is None:
        print(f"no clang-format {VERSION} on PATH")
        return SKIPPED
    sources = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES]
    return subprocess.run([clang_format, "--dry-run", "-Werror", "--ferror-limit=20", *sources], check=False).returncode


sys.exit(main())
