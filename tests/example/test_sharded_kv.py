# SPDX-License-Identifier: Apache-2.0
"""The example with a KV cache over several GPUs, on the one GPU that the processor plays: test_sharded_kv.py PROGRAM
FOLDER_OF_THE_HOST_GPU WRITE_BUNDLES. All but what NCCL does; run on two GPUs it compares with one."""

import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, DRIVER_FOLDER, WRITE_BUNDLES = sys.argv[1:]


class ShardedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run([WRITE_BUNDLES, cls.folder.name], check=True)

    def run_program(self, *arguments):
        path = os.pathsep.join(filter(None, [DRIVER_FOLDER, os.environ.get("LD_LIBRARY_PATH")]))
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False, env=os.environ | {
            "LD_LIBRARY_PATH": path, "LIBDECODE_BUNDLE_ONLY": "1", "LIBDECODE_BUNDLE_PATH": self.folder.name})

    def test_one_gpu_holds_all(self):
        result = self.run_program(70)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^70 tokens on 1 GPU: [\d.]+ us a step\n$")

    def test_wrong_arguments(self):
        for arguments in ((0,), (70, 0), (70, 65), (3, 4)):
            with self.subTest(arguments):
                result = self.run_program(*arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertTrue(result.stderr.startswith("usage: "), result.stderr)


unittest.main(argv=sys.argv[:1])
