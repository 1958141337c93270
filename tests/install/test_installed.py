# SPDX-License-Identifier: Apache-2.0
"""An installed copy: the files that a distribution expects, found through pkg-config, used from C99 and C++, moved elsewhere."""

import json
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
COMMANDS = ["bench", "check", "demo", "doctor", "explain", "list"]
HAS_DEBUG_INFO = os.environ["HAS_DEBUG_INFO"] == "true"
SANITIZED = os.environ["SANITIZED"] == "true"
STRICT = ["-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
PROGRAM = pathlib.Path(__file__).parent / "first_program.c"
OWN_NAMES = pathlib.Path(__file__).parent / "own_names.c"


def run(*command, **environment):
    """Away from the build folder, with nothing set but what is given."""
    environment["PATH"] = os.environ["PATH"]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


class InstalledTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        staged = cls.folder / "staged"
        result = run(*MESON, "install", "-C", BUILD, "--no-rebuild", "--destdir", staged)
        if result.returncode != 0:
            raise AssertionError(result.stdout + result.stderr)
        # Used at another place than where it was staged for: nothing may depend on DESTDIR or on the prefix.
        cls.prefix = cls.folder / "moved" / "here"
        shutil.copytree(staged / PREFIX.relative_to("/"), cls.prefix, symlinks=True)
        shutil.rmtree(staged)
        cls.libdir = cls.prefix / LIBDIR
        cls.shared = cls.libdir / "libdecode.so.0"
        cls.static = cls.libdir / "libdecode.a"

    def pkg_config(self, *arguments):
        result = run("pkg-config", f"--define-variable=prefix={self.prefix}", *arguments, "libdecode",
                     PKG_CONFIG_PATH=str(self.libdir / "pkgconfig"))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.split()

    def build_and_run(self, *command, name):
        program = self.folder / name
        result = run(*command, "-o", program)
        self.assertEqual((result.returncode, result.stdout + result.stderr), (0, ""))
        result = run(program, LD_LIBRARY_PATH=str(self.libdir))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, f"{self.pkg_config('--modversion')[0]} {NUM_KERNELS}\n")

    def test_everything_is_where_a_distribution_expects_it(self):
        expected = {INCLUDEDIR / "libdecode.h", LIBDIR / "pkgconfig" / "libdecode.pc", BINDIR / "libdecode",
                    DATADIR / "libdecode" / "mooncake_64.csv"}
        expected |= {BUNDLE_DIR / bundle for bundle in BUNDLES}
        if HAS_MANUAL:
            expected |= {MANDIR / "man1" / f"{page}.1" for page in ["libdecode", *(f"libdecode-{command}" for command in COMMANDS)]}
            expected |= {DATADIR / "bash-completion" / "completions" / "libdecode", DATADIR / "zsh" / "site-functions" / "_libdecode"}
        if NUM_KERNELS > 0:
            expected.add(DATADIR / "doc" / "libdecode" / "kernels.md")
        found = {path.relative_to(self.prefix) for path in self.prefix.rglob("*") if not path.is_dir()}
        libraries = {path for path in found if path.name.startswith("libdecode.so") or path.name == "libdecode.a"}
        self.assertEqual(found - libraries, {pathlib.Path(path) for path in expected})
        self.assertTrue(libraries)
        self.assertTrue(all(path.parent == pathlib.Path(LIBDIR) for path in libraries))

    def test_pkg_config_tells_where_the_bundles_are_and_for_which_gpus(self):
        self.assertEqual(self.pkg_config("--variable=bundle_dir"), [] if EMBEDDED else [str(self.prefix / BUNDLE_DIR)])
        self.assertRegex(self.pkg_config("--variable=gpu_archs")[0], r"^(none|sm_\d+(,sm_\d+)*)$")

    @unittest.skipIf(SANITIZED, "a program without the sanitizer cannot load a library with it")
    def test_a_c99_program_uses_the_shared_library(self):
        if not self.shared.exists():
            self.skipTest("no shared library was built")
        self.build_and_run(*CC, "-std=c99", *STRICT, PROGRAM, *self.pkg_config("--cflags", "--libs"), name="c99")

    @unittest.skipIf(SANITIZED, "a program without the sanitizer cannot load a library with it")
    def test_a_cxx_program_uses_the_shared_library(self):
        cxx = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if not self.shared.exists() or cxx is None:
            self.skipTest("no shared library was built, or there is no C++ compiler")
        self.build_and_run(cxx, "-x", "c++", "-std=c++11", *STRICT, PROGRAM, "-x", "none",
                           *self.pkg_config("--cflags", "--libs"), name="cxx")

    def link_statically(self, source, name):
        if not self.static.exists():
            self.skipTest("no static library was built")
        program = self.folder / name
        libraries = [self.static if argument == "-ldecode" else argument for argument in self.pkg_config("--libs", "--static")]
        result = run(*CC, *STRICT, source, *self.pkg_config("--cflags"), *libraries, "-o", program)
        self.assertEqual((result.returncode, result.stdout + result.stderr), (0, ""))
        return program

    @unittest.skipIf(SANITIZED, "a program without the sanitizer cannot load a library with it")
    def test_a_program_uses_the_static_library(self):
        program = self.link_statically(PROGRAM, "static")
        result = run(program, LIBDECODE_BUNDLE_PATH=str(self.prefix / BUNDLE_DIR) if BUNDLES else "")
        self.assertEqual(result.stdout.split()[1:], [str(NUM_KERNELS)], result.stderr)

    @unittest.skipIf(SANITIZED, "a program without the sanitizer cannot load a library with it")
    def test_an_engine_may_have_functions_called_as_those_inside(self):
        result = run(self.link_statically(OWN_NAMES, "own_names"))
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_the_static_library_defines_the_functions_of_the_header_and_nothing_else(self):
        if not self.static.exists():
            self.skipTest("no static library was built")
        result = run("nm", "--extern-only", "--defined-only", "--format=posix", self.static)
        self.assertEqual(result.returncode, 0, result.stderr)
        defined = {line.split()[0] for line in result.stdout.splitlines() if " " in line}
        header = (self.prefix / INCLUDEDIR / "libdecode.h").read_text(encoding="utf-8")
        self.assertEqual(defined, set(re.findall(r"^LIBDECODE_API [^(]*?(\w+)\(", header, re.MULTILINE)))
        self.assertGreater(len(defined), 20)

    @unittest.skipIf(not BUNDLES, "no kernels were built")
    def test_the_command_finds_the_bundles_beside_it(self):
        result = run(self.prefix / BINDIR / "libdecode", "list", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        kernels = json.loads(result.stdout)
        self.assertEqual(len(kernels), NUM_KERNELS)
        self.assertEqual({pathlib.Path(kernel["bundle"]).resolve() for kernel in kernels},
                         {(self.prefix / BUNDLE_DIR / bundle).resolve() for bundle in BUNDLES})

    @unittest.skipIf(not EMBEDDED, "the library carries no bundles")
    def test_what_carries_its_bundles_uses_no_others(self):
        (self.prefix / BUNDLE_DIR).mkdir(parents=True)
        self.addCleanup(shutil.rmtree, self.prefix / BUNDLE_DIR)
        (self.prefix / BUNDLE_DIR / "odd.bundle").write_text("no bundle")
        result = run(self.prefix / BINDIR / "libdecode", "list", "--json", LIBDECODE_LOG="warn")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        kernels = json.loads(result.stdout)
        self.assertEqual((len(kernels), {kernel["bundle"] for kernel in kernels}), (NUM_KERNELS, {"embedded"}))

    @unittest.skipIf(HAS_DEBUG_INFO, "debug information names the folder of the sources")
    def test_no_file_names_the_build_folder(self):
        for path in self.prefix.rglob("*"):
            if path.is_file():
                self.assertNotIn(str(BUILD).encode(), path.read_bytes(), path)


if __name__ == "__main__":
    unittest.main()
