# SPDX-License-Identifier: Apache-2.0
"""One kernel that was compiled for the processor: test_played.py COMMAND WRITE_PLAYED KERNEL.so CASE,CASE...: check must pass on each.

CASE:N is the case with the data of seed N; "random" are 300 random ones.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

command, write_played, kernel = (pathlib.Path(argument) for argument in sys.argv[1:4])
name, cases = kernel.stem, sys.argv[4].split(",")
target = name.rpartition("_sm")[2]
with tempfile.TemporaryDirectory() as folder:
    bundle = pathlib.Path(folder) / f"libdecode-sm{target}.bundle"
    subprocess.run([write_played, bundle, kernel], check=True)
    environment = {**os.environ, "LIBDECODE_BUNDLE_ONLY": "1", "LIBDECODE_BUNDLE_PATH": str(bundle),
                   "HOST_GPU_KERNELS": str(kernel.parent), "HOST_GPU_CAPABILITY": target}
    for number, case in enumerate(cases):
        case, _, seed = case.partition(":")
        pick = {"merge": [], "random": ["--random", "300"]}.get(case, ["--case", case]) + ["--seed", seed or "1"]
        arguments = ["check", name, *pick, "--repeat", "2", "--neighbourhoods", "12", "--json"]
        result = subprocess.run([command, *arguments], capture_output=True, text=True,
                                env={**environment, "HOST_GPU_SEED": str(number)}, check=False)
        print(case, result.stdout if result.returncode else "passed", result.stderr, flush=True)
        if result.returncode != 0:
            sys.exit(1)
        report = json.loads(result.stdout)
        assert report["passed"] == 1 and report["kernels"][0]["cases_passed"] > 0, report
