# SPDX-License-Identifier: Apache-2.0
"""`python -m libdecode doctor` from its command line to its exit code: with a GPU, without, without bundles, without a
library."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PASSED, FAILED, USAGE, NO_GPU = 0, 1, 2, 77
folder = tempfile.TemporaryDirectory()
BUNDLES, NO_DRIVER = pathlib.Path(folder.name, "bundles"), pathlib.Path(folder.name, "no_driver")
BUNDLES.mkdir()
NO_DRIVER.mkdir()
(NO_DRIVER / "libcuda.so.1").write_text("not a library")
subprocess.run([os.environ["LIBDECODE_WRITE_BUNDLES"], BUNDLES], check=True)


class DoctorTest(unittest.TestCase):
    def doctor(self, code, *arguments, gpu=True, **variables):
        environment = {**os.environ, "LIBDECODE_BUNDLE_PATH": str(BUNDLES), "LIBDECODE_BUNDLE_ONLY": "1",
                       "LD_LIBRARY_PATH": os.environ["LIBDECODE_HOST_GPU"] if gpu else str(NO_DRIVER), **variables}
        result = subprocess.run([sys.executable, "-m", "libdecode", "doctor", *arguments], env=environment, capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout

    def json(self, code, **options):
        return json.loads(self.doctor(code, "--json", **options))

    def test_all_is_well(self):
        text = self.doctor(PASSED)
        for words in ("package    0.1.0", f"library    0.1.0, {os.path.realpath(os.environ['LIBDECODE_LIBRARY'])}",
                      "driver     for CUDA 13.0", "GPU 0      this processor (0), sm_90, 8 SMs; ", "libdecode-sm120.bundle: sm_120, sm_121, ",
                      "verified   every image", f"variable   LIBDECODE_BUNDLE_PATH={BUNDLES}"):
            self.assertIn(words, text)
        self.assertNotIn("to do", text)

    def test_as_json(self):
        found = self.json(PASSED)
        self.assertEqual((found["well"], found["advice"], found["library"]["version"]), (True, [], "0.1.0"))
        self.assertEqual(found["gpus"][0]["compute_capability"], 90)
        self.assertEqual(found["gpus"][0]["kernels"], sum(b["num_kernels"] for b in found["bundles"] if "sm_90" in b["gpus"]))

    def test_no_driver(self):
        found = self.json(NO_GPU, gpu=False)
        self.assertEqual((found["well"], found["driver"], found["gpus"]), (True, None, []))
        self.assertIn("libcuda.so.1 cannot be loaded", found["advice"][0])

    def test_a_gpu_that_no_bundle_serves(self):
        advice, = self.json(FAILED, HOST_GPU_CAPABILITY="90", LIBDECODE_BUNDLE_PATH=str(BUNDLES / "libdecode-sm120.bundle"))["advice"]
        self.assertIn("no bundle here serves GPU 0 (this processor (0), sm_90)", advice)

    def test_no_bundle(self):
        empty = NO_DRIVER / "empty"
        empty.mkdir()
        found = self.json(FAILED, LIBDECODE_BUNDLE_PATH=str(empty))
        self.assertFalse(found["well"])
        self.assertTrue(any("bundle" in text for text in found["advice"]), found["advice"])

    def test_a_damaged_bundle(self):
        damaged = NO_DRIVER / "damaged.bundle"
        damaged.write_bytes((BUNDLES / "libdecode-sm90.bundle").read_bytes()[:-9])
        found = self.json(FAILED, LIBDECODE_BUNDLE_PATH=str(damaged))
        self.assertIn("damaged.bundle", found["advice"][0])

    def test_no_library(self):
        found = self.json(FAILED, LIBDECODE_LIBRARY="/nowhere/libdecode.so.0")
        self.assertIsNone(found["library"])
        self.assertIn("LIBDECODE_LIBRARY says /nowhere/libdecode.so.0", found["advice"][0])

    def test_a_library_of_something_else(self):
        found = self.json(FAILED, LIBDECODE_LIBRARY=os.path.join(os.environ["LIBDECODE_HOST_GPU"], "libcuda.so.1"))
        self.assertIn("has no function libdecode_", found["advice"][0])

    def test_usage(self):
        result = subprocess.run([sys.executable, "-m", "libdecode"], capture_output=True, text=True)
        self.assertEqual(result.returncode, USAGE)


unittest.main()
