# SPDX-License-Identifier: Apache-2.0
"""The build of BUILD, installed and then moved to another place: nothing in it may depend on DESTDIR or on the prefix."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["BUILD"])
CC = os.environ["CC_COMMAND"].split()
MESON = os.environ["MESON_COMMAND"].split()
EMBEDDED = os.environ["EMBEDDED"] == "true"
BUNDLES = [] if EMBEDDED else os.environ["BUNDLES"].split()
BUNDLE_DIR = pathlib.PurePath(os.environ["BUNDLE_DIR"])
NUM_KERNELS = int(os.environ["NUM_KERNELS"])
PREFIX, LIBDIR, BINDIR, DATADIR, INCLUDEDIR, MANDIR = (
    pathlib.PurePath(os.environ[name]) for name in ("PREFIX", "LIBDIR", "BINDIR", "DATADIR", "INCLUDEDIR", "MANDIR"))
HAS_MANUAL = os.environ["HAS_MANUAL"] == "true"
HAS_DEBUG_INFO = os.environ["HAS_DEBUG_INFO"] == "true"
SANITIZED = os.environ["SANITIZED"] == "true"
# Every tag of an installed file: by these, packages are split (packaging/debian/rules, packaging/rpm/libdecode.spec).
TAGS = ["runtime", "devel", "tools", "demo", "doc", "python", "kernels-sm90", "kernels-sm100", "kernels-sm120"]
PROGRAM = pathlib.Path(__file__).parent / "first_program.c"


def run(*command, **environment):
    """Away from the build folder, with nothing set but what is given."""
    environment["PATH"] = os.environ["PATH"]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


def install(folder, *options):
    """What `meson install` puts under the prefix, below `folder`; returns that."""
    result = run(*MESON, "install", "-C", BUILD, "--no-rebuild", "--destdir", folder, *options)
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)
    return folder / PREFIX.relative_to("/")


def names_in(archive):
    """What a static library defines for who links it."""
    result = run("nm", "--extern-only", "--defined-only", "--format=posix", archive)
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)
    return {line.split()[0] for line in result.stdout.splitlines() if " " in line}


def functions_of(folder):
    """What the headers in a folder declare."""
    text = "".join(header.read_text(encoding="utf-8") for header in sorted(folder.glob("*.h")))
    return set(re.findall(r"^LIBDECODE_API [^(]*?(\w+)\(", text, re.MULTILINE))


class InstalledCopy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "moved" / "here"
        shutil.copytree(install(cls.folder / "staged"), cls.prefix, symlinks=True)
        shutil.rmtree(cls.folder / "staged")
        cls.libdir = cls.prefix / LIBDIR
        cls.shared = cls.libdir / "libdecode.so.0"
        cls.static = cls.libdir / "libdecode.a"
