# SPDX-License-Identifier: Apache-2.0
"""An installed copy: the files that a distribution expects, found through pkg-config, used from C99 and C++, moved elsewhere."""

import json
import os
import pathlib
import re
import shutil
import sys
import unittest

from installed_copy import (BINDIR, BUILD, BUNDLE_DIR, BUNDLES, CC, DATADIR, EMBEDDED, HAS_DEBUG_INFO, HAS_MANUAL, INCLUDEDIR, LIBDIR,
                            MANDIR, NUM_KERNELS, PROGRAM, SANITIZED, TAGS, InstalledCopy, functions_of, install, names_in, run)

COMMANDS = ["bench", "check", "demo", "doctor", "explain", "list"]
STRICT = ["-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
PYTHON_PACKAGE = os.environ["PYTHON_PACKAGE"] == "true"
PYTHON_SOURCES = pathlib.Path(__file__).parents[2] / "packaging/python/libdecode"
OWN_NAMES = pathlib.Path(__file__).parent / "own_names.c"


def tag_of(path):
    """Of an installed file: the tag of the packages that it belongs into."""
    name = path.rpartition("/")[2]
    if name.endswith(".bundle"):
        return f"kernels-{re.fullmatch(r'libdecode-(sm[0-9]+)[.]bundle', name)[1]}"
    if "-packages/libdecode" in path:
        return "python"
    if name.startswith("libdecode.so."):
        return "runtime"
    if re.search(r"[.](h|pc|cmake|so|a)$", name):
        return "devel"
    if path.startswith(f"{DATADIR}/doc/"):
        return "doc"
    return "demo" if name.endswith(".csv") else "tools"


class InstalledTest(InstalledCopy):
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
        expected = {INCLUDEDIR / "libdecode.h", INCLUDEDIR / "libdecode_problem.h", LIBDIR / "pkgconfig" / "libdecode.pc",
                    BINDIR / "libdecode", DATADIR / "libdecode" / "mooncake_64.csv"}
        expected |= {LIBDIR / "cmake/libdecode" / name for name in ("libdecode-config.cmake", "libdecode-config-version.cmake")}
        expected |= {BUNDLE_DIR / bundle for bundle in BUNDLES}
        if HAS_MANUAL:
            expected |= {MANDIR / "man1" / f"{page}.1" for page in ["libdecode", *(f"libdecode-{command}" for command in COMMANDS)]}
            expected |= {DATADIR / "bash-completion" / "completions" / "libdecode", DATADIR / "zsh" / "site-functions" / "_libdecode"}
        if NUM_KERNELS > 0:
            expected.add(DATADIR / "doc" / "libdecode" / "kernels.md")
        found = {path.relative_to(self.prefix) for path in self.prefix.rglob("*") if not path.is_dir()}
        if PYTHON_PACKAGE:
            package, = (path.parents[1] for path in found if path.name == "METADATA")
            expected.add(package / f"libdecode-{self.pkg_config('--modversion')[0]}.dist-info" / "METADATA")
            expected |= {package / "libdecode" / path.name for path in PYTHON_SOURCES.iterdir() if path.is_file()}
        libraries = {path for path in found if path.name.startswith("libdecode.so") or path.name == "libdecode.a"}
        self.assertEqual(found - libraries, {pathlib.Path(path) for path in expected})
        self.assertTrue(libraries)
        self.assertTrue(all(path.parent == pathlib.Path(LIBDIR) for path in libraries))

    def test_every_file_has_one_tag_and_packages_can_be_split_by_it(self):
        tags_of = {}
        for tag in TAGS:
            prefix = install(self.folder / "by_tag" / tag, "--tags", tag)
            for path in prefix.rglob("*"):
                if not path.is_dir():
                    tags_of.setdefault(str(path.relative_to(prefix)), []).append(tag)
        found = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if not path.is_dir()}
        self.assertEqual(tags_of, {path: [tag_of(path)] for path in found})

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

    def test_the_static_library_defines_the_functions_of_the_headers_and_nothing_else(self):
        if not self.static.exists():
            self.skipTest("no static library was built")
        defined = names_in(self.static)
        self.assertEqual(defined, functions_of(self.prefix / INCLUDEDIR))
        self.assertGreater(len(defined), 20)

    @unittest.skipIf(SANITIZED or not PYTHON_PACKAGE, "no Python package was installed, or its library cannot be loaded")
    def test_the_python_package_finds_the_library_as_any_other_program(self):
        if not self.shared.exists():
            self.skipTest("no shared library was built")
        metadata, = self.prefix.rglob("METADATA")
        result = run(sys.executable, "-c", "import importlib.metadata, libdecode; from libdecode.library import library, loaded_file;"
                     "library(); print(importlib.metadata.version('libdecode'), libdecode.__version__, loaded_file())",
                     LD_LIBRARY_PATH=str(self.libdir), PYTHONPATH=str(metadata.parents[1]), PYTHONDONTWRITEBYTECODE="1")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        version, same, library = result.stdout.split()
        self.assertEqual((version, pathlib.Path(library).resolve()), (same, self.shared.resolve()))

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
