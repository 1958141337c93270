# SPDX-License-Identifier: Apache-2.0
"""The README's program, run: on the host GPU with bundles around no code, or on a real GPU with those of the build.

test_decode_batch.py PROGRAM [FOLDER_OF_THE_HOST_GPU WRITE_BUNDLES]     exit code 77: there is no GPU
"""

import ctypes
import os
import subprocess
import sys
import tempfile

EXPECTED = "request 0: the mean of 0 to 99 is 49.5\nrequest 1: the mean of 0 to 36 is 18\n"
SKIPPED = 77


def gpu_is_here():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def run(program, **environment):
    result = subprocess.run([program], env=os.environ | environment, capture_output=True, text=True, check=False)
    if (result.returncode, result.stdout, result.stderr) == (0, EXPECTED, ""):
        return 0
    print(f"exit code {result.returncode}\n{result.stdout}{result.stderr}\nexpected:\n{EXPECTED}", file=sys.stderr)
    return 1


def main():
    program, *host_gpu = sys.argv[1:]
    if not host_gpu:
        return run(program) if gpu_is_here() else SKIPPED
    driver_folder, write_bundles = host_gpu
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([write_bundles, folder], check=True)
        return run(program, LD_LIBRARY_PATH=driver_folder, LIBDECODE_BUNDLE_ONLY="1", LIBDECODE_BUNDLE_PATH=folder)


sys.exit(main())
