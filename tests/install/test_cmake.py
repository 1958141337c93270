# SPDX-License-Identifier: Apache-2.0
"""find_package(libdecode CONFIG) of an installed copy, from C and from C++. Exit code 77: there is no cmake, or it cannot link here."""

import os
import shutil
import sys
import unittest

from installed_copy import BUNDLE_DIR, BUNDLES, CC, NUM_KERNELS, PROGRAM, SANITIZED, InstalledCopy, run

SKIPPED = 77
PROJECT = """cmake_minimum_required(VERSION 3.13)
project(someone LANGUAGES {language})
find_package(libdecode {wanted} CONFIG REQUIRED {components})
message(STATUS "bundles: ${{libdecode_BUNDLE_DIR}}")
message(STATUS "version: ${{libdecode_VERSION}}")
add_executable(program {source})
target_link_libraries(program PRIVATE {target})
"""
SHARED, STATIC = "libdecode::libdecode", "libdecode::libdecode_static"


class CmakeTest(InstalledCopy):
    def setUp(self):
        self.project = self.folder / "cmake"
        self.project.mkdir()
        self.addCleanup(shutil.rmtree, self.project)

    def configure(self, target, language="C", wanted="", components=""):
        source = self.project / {"C": "program.c", "CXX": "program.cpp"}[language]
        shutil.copy(PROGRAM, source)
        (self.project / "CMakeLists.txt").write_text(
            PROJECT.format(language=language, wanted=wanted, components=components, source=source.name, target=target), encoding="utf-8")
        compiler = {"CC": " ".join(CC)} if language == "C" else {}
        return run("cmake", "-S", self.project, "-B", self.project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", **compiler)

    def build_and_run(self, target, language, has_bundle_dir):
        result = self.configure(target, language)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        bundle_dir = self.prefix.resolve() / BUNDLE_DIR if has_bundle_dir else ""
        self.assertIn(f"-- bundles: {bundle_dir}\n", result.stdout)
        version = result.stdout.partition("-- version: ")[2].split("\n")[0]
        result = run("cmake", "--build", self.project / "build")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        is_static = target == STATIC or not self.shared.exists()
        environment = {"LIBDECODE_BUNDLE_PATH": str(self.prefix / BUNDLE_DIR)} if is_static and BUNDLES else {}
        result = run(self.project / "build" / "program", **environment)
        self.assertEqual((result.returncode, result.stderr, result.stdout), (0, "", f"{version} {NUM_KERNELS}\n"))

    def check_both_languages(self, target):
        for language, compiler in (("C", "cc"), ("CXX", "c++")):
            if shutil.which(compiler):
                with self.subTest(target=target, language=language):
                    self.build_and_run(target, language, os.environ["EMBEDDED"] == "false")
                    shutil.rmtree(self.project / "build")

    def test_libdecode_is_the_shared_library_where_there_is_one(self):
        self.check_both_languages(SHARED)
        result = self.configure(SHARED, components="COMPONENTS shared")
        self.assertEqual(result.returncode == 0, self.shared.exists(), result.stderr)

    def test_the_static_library_comes_with_what_it_needs(self):
        if self.static.exists():
            self.check_both_languages(STATIC)
        result = self.configure(SHARED, components="COMPONENTS static")
        self.assertEqual(result.returncode == 0, self.static.exists(), result.stderr)
        if not self.static.exists():
            self.assertIn("the static library cannot be used: missing", result.stderr)

    def test_versions_that_are_taken_and_refused(self):
        for wanted, is_taken in (("0.1", True), ("0.1.0 EXACT", True), ("0.0.9", True), ("0.0.9...0.9", True), ("0.1.1", False),
                                 ("1.0", False), ("0.0.1...0.0.9", False), ("0.0.1...<0.1.0", False)):
            with self.subTest(wanted=wanted):
                result = self.configure(SHARED, wanted=wanted)
                self.assertEqual(result.returncode == 0, is_taken, result.stderr)
                shutil.rmtree(self.project / "build")

    def test_what_is_asked_for_in_vain_is_told(self):
        result = self.configure(SHARED, components="COMPONENTS gpu")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("the components are 'shared' and 'static', not 'gpu'", " ".join(result.stderr.split()))


if shutil.which("cmake") is None or shutil.which("make") is None or SANITIZED:
    print("no cmake and make on PATH" if not SANITIZED else "a program without the sanitizer cannot load a library with it")
    sys.exit(SKIPPED)
unittest.main()
