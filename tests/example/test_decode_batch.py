# SPDX-License-Identifier: Apache-2.0
"""The README's program, run: on the host GPU with bundles around no code, or on a real GPU with those of the build.

test_decode_batch.py PROGRAM [FOLDER_OF_THE_HOST_GPU WRITE_BUNDLES]     exit code 77: there is no GPU
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile

EXPECTED = "mean of 0 to 99: 49.5\nmean of 0 to 36: 18\n"
SKIPPED = 77


def gpu_is_here():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def run(program, code=0, stdout=EXPECTED, stderr="", **environment):
    """0 if the program ends with `code`, prints `stdout`, and on standard error what the pattern `stderr` matches."""
    result = subprocess.run([program], env=os.environ | environment, capture_output=True, text=True, check=False)
    if (result.returncode, result.stdout) == (code, stdout) and re.fullmatch(stderr, result.stderr):
        return 0
    print(f"exit code {result.returncode}\n{result.stdout}{result.stderr}\nexpected: {code}\n{stdout}{stderr}", file=sys.stderr)
    return 1


def main():
    program, *host_gpu = sys.argv[1:]
    if not host_gpu:
        return run(program) if gpu_is_here() else SKIPPED
    driver_folder, write_bundles = host_gpu
    with tempfile.TemporaryDirectory() as folder:
        environment = {"LD_LIBRARY_PATH": driver_folder, "LIBDECODE_BUNDLE_ONLY": "1", "LIBDECODE_BUNDLE_PATH": folder}
        without_a_bundle = run(program, code=1, stdout="", stderr=r"libdecode_open\(.*\): 300 .+\n", **environment)
        subprocess.run([write_bundles, folder], check=True)
        return without_a_bundle or run(program, **environment)


sys.exit(main())
