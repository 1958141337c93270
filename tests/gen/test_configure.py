# SPDX-License-Identifier: Apache-2.0
"""What Meson makes of the options of the kernels, with a stand-in for nvcc: test_configure.py SOURCE_ROOT."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop())
MESON = os.environ["MESON_COMMAND"].split()


class ConfigureTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name) / "build"
        self.nvcc = pathlib.Path(folder.name) / "stand-in"

    def configure(self, *options, says):
        self.nvcc.write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
        self.nvcc.chmod(0o755)
        return subprocess.run([*MESON, "setup", self.build, ROOT, "-Dtests=false", f"-Dnvcc={self.nvcc}", *options],
                              capture_output=True, text=True, check=False)

    def test_a_program_that_is_no_nvcc_is_named(self):
        for says in ("true", "echo release 13.0,; false", "echo 13.0"):
            with self.subTest(says):
                result = self.configure(says=says)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(f"{self.nvcc} does not answer as nvcc does", result.stdout)

    def test_an_older_nvcc_is_named(self):
        result = self.configure(says="echo Cuda compilation tools, release 12.9, V12.9.0")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(f"{self.nvcc} is of CUDA 12.9", result.stdout)

    def test_what_is_built_for_one_gpu_is_for_all_of_its_target(self):
        result = self.configure("-Dgpu_archs=sm_90,sm_121", "-Dvariants=merge_states*", says="echo release 13.0,")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("\tsm_120,sm_121\t", (self.build / "kernels/libdecode-sm120.manifest").read_text(encoding="utf-8"))
        self.assertIn("gpu_archs=sm_90,sm_120,sm_121\n", (self.build / "meson-private/libdecode.pc").read_text(encoding="utf-8"))


unittest.main()
