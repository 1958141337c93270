# SPDX-License-Identifier: Apache-2.0
"""`python -m libdecode` from its command line to its exit code: doctor with a GPU, without, without bundles, without a library; list
and explain."""

import json
import os
import pathlib
import signal
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
        for name in ("LIBDECODE_WRITE_BUNDLES", "LIBDECODE_HOST_GPU"):  # of these tests: doctor would say that nobody reads them
            del environment[name]
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

    def test_a_bundle_that_is_passed_over(self):
        mixed = NO_DRIVER / "mixed"
        mixed.mkdir()
        good = (BUNDLES / "libdecode-sm90.bundle").read_bytes()
        (mixed / "good.bundle").write_bytes(good)
        (mixed / "short.bundle").write_bytes(good[:-9])
        found = self.json(FAILED, LIBDECODE_BUNDLE_PATH=str(mixed))
        self.assertEqual((len(found["bundles"]), found["verified"]), (1, False))
        reason, = found["passed_over"]
        self.assertIn("short.bundle", reason)
        self.assertEqual(found["advice"], ["a bundle that cannot be used was passed over: replace it, or take it away"])
        self.assertIn(f"\nunusable   {reason}\n", self.doctor(FAILED, LIBDECODE_BUNDLE_PATH=str(mixed)))
        (mixed / "empty.bundle").write_bytes(b"")
        found = self.json(FAILED, LIBDECODE_BUNDLE_PATH=str(mixed))
        self.assertEqual(found["advice"], ["2 bundles that cannot be used were passed over: replace them, or take them away"])

    def test_a_variable_that_nobody_reads(self):
        found = self.json(PASSED, LIBDECODE_KERNELS="gqa_*")
        self.assertEqual((found["well"], found["passed_over"]), (True, []))
        advice, = found["advice"]
        self.assertIn("LIBDECODE_KERNELS has no effect: nothing reads it; did you mean LIBDECODE_KERNEL?", advice)

    def test_no_library(self):
        found = self.json(FAILED, LIBDECODE_LIBRARY="/nowhere/libdecode.so.0")
        self.assertIsNone(found["library"])
        self.assertIn("LIBDECODE_LIBRARY says /nowhere/libdecode.so.0", found["advice"][0])

    def test_a_library_of_something_else(self):
        found = self.json(FAILED, LIBDECODE_LIBRARY=os.path.join(os.environ["LIBDECODE_HOST_GPU"], "libcuda.so.1"))
        self.assertIn("has no function libdecode_", found["advice"][0])


LLAMA = "query_dtype=bf16 batch_size=16 num_qo_heads=64 num_kv_heads=8 head_dim=128 page_size=16 max_seq_len=32768".split()


class CommandsTest(unittest.TestCase):
    def run_command(self, code, *arguments, gpu=False):
        environment = {**os.environ, "LIBDECODE_BUNDLE_PATH": str(BUNDLES), "LIBDECODE_BUNDLE_ONLY": "1",
                       "LD_LIBRARY_PATH": os.environ["LIBDECODE_HOST_GPU"] if gpu else str(NO_DRIVER)}
        result = subprocess.run([sys.executable, "-m", "libdecode", *arguments], env=environment, capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def test_list(self):
        kernels = json.loads(self.run_command(PASSED, "list", "--json"))
        names = [kernel["name"] for kernel in kernels]
        self.assertIn("gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90", names)
        text = self.run_command(PASSED, "list", "--gpu", "sm_121", "*_d64_*", "*_d128_*")
        wanted = [kernel["name"] for kernel in kernels if "sm_121" in kernel["gpus"] and kernel["head_dim"] in (64, 128)]
        self.assertEqual([line.split()[0] for line in text.splitlines()[:-1]], wanted)
        self.assertTrue(text.endswith(f"\n{len(wanted)} kernels\n"), text[-40:])
        self.run_command(FAILED, "list", "no_such_kernel")

    def test_explain(self):
        text = self.run_command(PASSED, "explain", "--gpu", "sm_90", *LLAMA, "features=sinks,lse")
        self.assertRegex(text, r"^-> gqa_decode_kvbf16_d128_r8_p16_c\d_o0_sm90\n       predicted ")
        found = json.loads(self.run_command(PASSED, "explain", *LLAMA, "logits_soft_cap=30.5", "--all", "--json", gpu=True))
        self.assertRegex(found["chosen"], "^gqa_decode_kvbf16_d128_r8_p16_c._o3_sm90$")
        self.assertGreater(len(found["kernels"]), 100)
        self.assertIsNone(found["error"])
        self.assertIn("no kernel of libdecode does q_len 2000", self.run_command(FAILED, "explain", "--gpu", "sm_90", *LLAMA, "q_len=2000"))
        self.run_command(NO_GPU, "explain", *LLAMA)

    def test_gpus_have_the_names_that_explain_takes(self):
        for name, target in (("H100", "sm90"), ("dgx-spark", "sm120"), ("B300", "sm100")):
            self.assertRegex(self.run_command(PASSED, "explain", "--gpu", name, *LLAMA), f"^-> gqa_decode_.*_{target}\n")
        self.assertEqual(self.run_command(PASSED, "list", "--gpu", "H100"), self.run_command(PASSED, "list", "--gpu", "sm_90"))
        self.assertIn("name is 'H99': accepted are", self.run_command(USAGE, "list", "--gpu", "H99"))

    def test_whoever_reads_may_leave(self):
        environment = {**os.environ, "LIBDECODE_BUNDLE_PATH": str(BUNDLES), "LIBDECODE_BUNDLE_ONLY": "1"}
        for arguments in (["list"], ["list", "--json"], ["--help"], ["explain", "--gpu", "sm_90", *LLAMA, "--all"]):
            read, write = os.pipe()
            os.close(read)
            result = subprocess.run([sys.executable, "-m", "libdecode", *arguments], env=environment, stdout=write, stderr=subprocess.PIPE, text=True)
            os.close(write)
            self.assertEqual(result.stderr, "", arguments)
            self.assertEqual(result.returncode, -signal.SIGPIPE, arguments)

    def test_usage(self):
        self.run_command(USAGE)
        self.assertIn("0.1.0", self.run_command(PASSED, "--version"))
        for words, arguments in (("x is no field: give NAME=VALUE", ["x"]), ("has no field page; it has batch_size,", ["page=16"]),
                                 ("features is 'sink': accepted are", ["features=sink"]), ("name is 'sm_89': accepted are sm_90,", ["--gpu", "sm_89", *LLAMA]),
                                 ("num_kv_heads is 7", ["--gpu", "sm_90", *LLAMA, "num_kv_heads=7"]), ("", ["batch_size=many"])):
            self.assertIn(words, self.run_command(USAGE, "explain", *arguments))


unittest.main()
