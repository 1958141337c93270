# SPDX-License-Identifier: Apache-2.0
"""Runs the command `libdecode` as tests need it: without a driver, or on the host GPU (host_gpu.h), and beside bundles of their own.

unittest calls setUpModule and tearDownModule of the module that holds the tests: each such module imports them.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

COMMAND = os.environ["LIBDECODE_COMMAND"]
HOST_GPU = os.environ["LIBDECODE_HOST_GPU"]
WRITE_BUNDLES = os.environ["LIBDECODE_WRITE_BUNDLES"]
TRACE = os.environ["LIBDECODE_TRACE"]

PASSED, FAILED, USAGE, NO_GPU = 0, 1, 2, 77
COMMANDS = ["list", "explain", "check", "bench", "doctor", "demo"]
GPUS = {"sm_90": "sm90", "sm_100": "sm100", "sm_103": "sm100", "sm_120": "sm120", "sm_121": "sm120"}
ONE_KERNEL = "gqa_decode_kvbf16_d64_r8_p16_c1_o1_sm90"
MERGE_KERNEL = "merge_states_sm90"
SMALL = ["--heads", "4/1", "--lens", "10,30"]

folder = tempfile.TemporaryDirectory()
bundles = pathlib.Path(folder.name) / "bundles"
no_driver = pathlib.Path(folder.name) / "no_driver"


def setUpModule():
    bundles.mkdir()
    no_driver.mkdir()
    # what dlopen finds first: no library at all
    (no_driver / "libcuda.so.1").write_text("not a library")
    subprocess.run([WRITE_BUNDLES, bundles], check=True)


def tearDownModule():
    folder.cleanup()


def environment_of(gpu, bundle, variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LIBDECODE_", "HOST_GPU_"))}
    environment["LD_LIBRARY_PATH"] = HOST_GPU if gpu else str(no_driver)
    environment["LIBDECODE_BUNDLE_ONLY"] = "1"
    environment["COLUMNS"] = "1000"  # no line is broken, unless a test says otherwise
    if bundle:
        environment["LIBDECODE_BUNDLE_PATH"] = str(bundle)
    environment.update(variables)
    return environment


def run(*arguments, gpu=False, bundle=bundles, **variables):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True,
                          env=environment_of(gpu, bundle, variables), timeout=250)


class CommandTest(unittest.TestCase):
    def check_run(self, result, code):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def json_of(self, result, code=PASSED):
        return json.loads(self.check_run(result, code).stdout)
