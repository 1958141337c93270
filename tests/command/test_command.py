# SPDX-License-Identifier: Apache-2.0
"""The command `libdecode`, from its command line to its exit code: without a driver, and on the host GPU (host_gpu.h)."""

import csv
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
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


class CommandLine(CommandTest):
    def test_help_of_every_command_shows_usage_and_options(self):
        for command in COMMANDS:
            for arguments in (["help", command], [command, "--help"]):
                result = self.check_run(run(*arguments), PASSED)
                self.assertIn(f"usage: libdecode {command}", result.stdout)
                self.assertIn("--bundle", result.stdout)

    def test_overview_names_every_command_and_exit_code(self):
        result = self.check_run(run("help"), PASSED)
        for word in [*COMMANDS, "77", "LIBDECODE_KERNEL"]:
            self.assertIn(word, result.stdout)

    def test_no_command_at_all_is_a_usage_error(self):
        self.check_run(run(), USAGE)

    def test_version_is_printed(self):
        self.assertRegex(self.check_run(run("--version"), PASSED).stdout, r"^libdecode \d+\.\d+\.\d+\n$")

    def test_a_misspelt_command_gets_a_suggestion(self):
        self.assertIn("'bench'", self.check_run(run("benhc"), USAGE).stderr)

    def test_a_misspelt_option_gets_a_suggestion(self):
        result = self.check_run(run("explain", "--bacth", 3), USAGE)
        self.assertIn("--bacth", result.stderr)
        self.assertIn("'--batch'", result.stderr)

    def test_values_out_of_range_name_what_is_accepted(self):
        for arguments, words in [
            (["--batch", "-1"], "from 0 to"), (["--batch", "many"], "whole number"), (["--heads", "32"], "like 32/8"),
            (["--heads", "32/5"], "num_kv_heads"), (["--page", "1025"], "page_size"), (["--kv", "bf15"], "bf16"),
            (["--layout", "dhn"], "hnd"), (["--lens", "1,,2"], "commas"), (["--trace", "/nowhere"], "/nowhere"),
            (["--batch"], "needs a value"), (["--sinks=1"], "no value"), (["--gpu", "sm_91"], "sm_90"), (["word"], "word"),
        ]:
            with self.subTest(arguments):
                self.assertIn(words, self.check_run(run("explain", *arguments), USAGE).stderr)


class Trace(CommandTest):
    def test_the_shipped_trace_is_the_batch_that_it_should_be(self):
        with open(TRACE, encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        lengths = [int(row["input_length"]) + int(row["output_length"]) // 2 + 1 for row in rows]
        self.assertEqual((len(lengths), min(lengths), max(lengths), sum(lengths)), (64, 919, 98929, 866311))
        for row in rows:
            self.assertEqual(len(row["hash_ids"].split()), -(-int(row["input_length"]) // 512))

    def test_the_shipped_trace_names_its_source_and_licence(self):
        head = pathlib.Path(TRACE).read_text(encoding="utf-8")[:600]
        self.assertIn("Mooncake", head)
        self.assertIn("Apache-2.0", head)

    def test_csv_and_json_lines_are_read_alike_and_cut_alike(self):
        lines = pathlib.Path(folder.name) / "lines.jsonl"
        lines.write_text("".join(json.dumps({"input_length": 100 * n, "output_length": 11, "hash_ids": [n]}) + "\n"
                                 for n in range(1, 5)), encoding="utf-8")
        table = pathlib.Path(folder.name) / "table.csv"
        table.write_text("# a comment\ninput_length,output_length,hash_ids\n"
                         + "".join(f"{100 * n},11,{n}\n" for n in range(1, 5)), encoding="utf-8")
        texts = [self.json_of(run("explain", "--gpu", "sm_90", "--json", "--trace", f"{path}:1:2"))["problem"]
                 for path in (lines, table)]
        self.assertIn("2 requests of 206 to 306 tokens", texts[0])
        self.assertEqual(texts[0], texts[1])

    def test_a_range_beyond_the_trace_is_refused(self):
        self.assertIn("64 requests", self.check_run(run("explain", "--trace", f"{TRACE}:60:10"), USAGE).stderr)

    def test_a_damaged_line_is_named(self):
        bad = pathlib.Path(folder.name) / "bad.csv"
        bad.write_text("input_length,output_length,hash_ids\n5,6,7\n5;6;7\n", encoding="utf-8")
        self.assertIn(f"{bad}:3", self.check_run(run("explain", "--trace", bad), USAGE).stderr)


class WithoutGpu(CommandTest):
    def test_list_filters_by_gpu_dtype_head_dim_and_name(self):
        kernels = self.json_of(run("list", "*_c1_*", "--gpu", "sm_121", "--kv", "fp16", "--head-dim", 64, "--json"))
        self.assertTrue(kernels)
        for kernel in kernels:
            self.assertIn("sm_121", kernel["gpus"])
            self.assertEqual((kernel["kv_dtype"], kernel["head_dim"], kernel["cluster_size"]), ("fp16", 64, 1))

    def test_list_that_matches_nothing_fails(self):
        self.check_run(run("list", "no_such_*"), FAILED)

    def test_explain_chooses_a_kernel_on_each_of_the_five_gpus(self):
        answer = self.json_of(run("explain", "--json"))
        self.assertEqual([gpu["status"] for gpu in answer["gpus"]], ["LIBDECODE_OK"] * 5)
        for gpu, family in zip(answer["gpus"], GPUS.values()):
            self.assertTrue(gpu["kernel"].endswith(family), gpu["kernel"])
            chosen = [candidate for candidate in gpu["candidates"] if candidate["chosen"]]
            self.assertEqual([candidate["kernel"] for candidate in chosen], [gpu["kernel"]])
            self.assertTrue(all(candidate["reason"] for candidate in gpu["candidates"]))

    def test_explain_says_why_no_kernel_fits(self):
        result = self.check_run(run("explain", "--gpu", "sm_90", "--kv", "nvfp4", "--head-dim", 512), FAILED)
        self.assertIn("no kernel", result.stdout)
        self.assertIn("512", result.stdout)

    def test_explain_counts_query_tokens(self):
        kernel = self.json_of(run("explain", "--gpu", "sm_90", "--q-len", 4, "--soft-cap", 30, "--alibi", "--json"))["gpus"][0]["kernel"]
        self.assertIn("_r16_", kernel)  # 4 heads of a group, 4 query tokens
        result = self.check_run(run("explain", "--gpu", "sm_90", "--q-len", 2000), FAILED)
        self.assertIn("q_len 2000 (built: up to 1024)", result.stdout)
        self.check_run(run("explain", "--soft-cap", "-1"), USAGE)

    def test_explain_gives_a_batch_invariant_problem_one_kernel_for_every_batch(self):
        names = {self.json_of(run("explain", "--gpu", "sm_90", "--batch-invariant", "--batch", batch, "--len", tokens, "--json"))["gpus"][0]["kernel"]
                 for batch, tokens in ((1, 100), (1, 32768), (64, 4096))}
        self.assertEqual(names, {"gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90"})
        result = self.check_run(run("explain", "--gpu", "sm_90", "--batch-invariant", "--all", "--batch", 1), PASSED)
        self.assertRegex(result.stdout, r"gqa_decode_kvbf16_d128_r8_p16_c8_o0_sm90 +features .*batch_invariant")

    def test_explain_knows_rotations(self):
        for gpu, kv, head_dim, code in [("sm_90", "bf16", 128, PASSED), ("sm_120", "bf16", 512, PASSED), ("sm_120", "e4m3", 256, PASSED)]:
            self.check_run(run("explain", "--gpu", gpu, "--kv", kv, "--head-dim", head_dim, "--rope"), code)
        self.assertIn("rope_theta", self.check_run(run("explain", "--rope", "--rope-theta", "-1"), USAGE).stderr)
        self.assertIn("rope_scale", self.check_run(run("explain", "--rope-scale", "2"), USAGE).stderr)

    def test_explain_refuses_a_policy_that_matches_nothing(self):
        self.assertIn("'nothing'", self.check_run(run("explain", "--policy", "force=nothing"), FAILED).stderr)

    def test_explain_of_the_current_gpu_needs_one(self):
        self.check_run(run("explain", "--gpu", "current"), NO_GPU)

    def test_check_and_bench_say_that_nothing_was_run(self):
        for command in ("check", "bench"):
            result = self.check_run(run(command), NO_GPU)
            self.assertIn("nothing was run", result.stderr)
            self.assertNotIn("passed", result.stdout)

    def test_doctor_without_a_gpu_finds_nothing_broken(self):
        report = self.json_of(run("doctor", "--json"), NO_GPU)
        self.assertTrue(report["verified"] and report["well"])
        self.assertEqual(report["gpus"], [])
        self.assertTrue(any("driver" in advice for advice in report["advice"]))

    def test_doctor_without_a_bundle_says_what_to_do(self):
        result = self.check_run(run("doctor", bundle=None), FAILED)
        self.assertIn("LIBDECODE_BUNDLE_PATH", result.stdout)

    def test_doctor_finds_an_altered_bundle(self):
        damaged = pathlib.Path(folder.name) / "damaged.bundle"
        data = bytearray((bundles / "libdecode-sm90.bundle").read_bytes())
        data[-20] ^= 1
        damaged.write_bytes(data)
        report = self.json_of(run("doctor", "--json", bundle=damaged), FAILED)
        self.assertFalse(report["well"])
        self.assertIn("damaged.bundle", " ".join(report["advice"]))

    def test_demo_runs_the_reference_and_shares_prefixes(self):
        trace = pathlib.Path(folder.name) / "shared.csv"
        trace.write_text("input_length,output_length,hash_ids\n1100,20,1 2 3\n1100,40,1 2 4\n", encoding="utf-8")
        report = self.json_of(run("demo", "--trace", trace, "--json"))
        # two prompt blocks of 512 tokens are shared, the partial third is not: 70 + 71 pages, less 64
        self.assertEqual((report["tokens"], report["shared_pages"], report["pages"]), (2232, 64, 77))
        self.assertEqual([model["model"] for model in report["models"]], ["Llama-3-8B", "Llama-3-70B"])
        self.assertEqual(len(report["choices"]), 10)
        self.assertTrue(all(choice["kernel"] for choice in report["choices"]))


class OnHostGpu(CommandTest):
    def check(self, *arguments, code=PASSED, **variables):
        return self.json_of(run("check", *arguments, "--json", gpu=True, **variables), code)

    def test_a_right_kernel_passes_every_quick_case(self):
        result = self.check_run(run("check", ONE_KERNEL, "--quick", "--repeat", 2, gpu=True), PASSED)
        self.assertTrue(result.stdout.endswith("\n1 passed, 0 failed\n"), result.stdout)

    def test_interrupted_it_says_what_it_found_and_what_it_did_not_finish(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([COMMAND, "check", ONE_KERNEL, ONE_KERNEL.replace("bf16", "fp16")], text=True,
                                  stdout=subprocess.PIPE, env=environment_of(True, bundles, {})) as process:
                first = process.stdout.readline()
                time.sleep(0.2)  # until the signal has its handler, and well before the end
                process.send_signal(number)
                try:
                    output = process.communicate(timeout=50)[0]
                finally:
                    process.kill()
            self.assertTrue(first.startswith("2 kernels on "), first)
            self.assertEqual(process.returncode, FAILED, output)
            self.assertRegex(output, r"interrupted in case \w+ with (bf16|fp16) KV, head_dim 64: what follows was not run\n")
            self.assertRegex(output, rf"\n{ONE_KERNEL} +part ")
            self.assertTrue(output.endswith("\n2 not finished\n0 passed, 0 failed\n"), output)

    def test_a_right_kernel_passes_the_feature_cases(self):
        for case in ("v_page*", "query_*", "negative_*", "foreign_*", "per_head*", "device_*", "combined_*", "outliers*", "graph",
                     "random_*"):
            with self.subTest(case):
                report = self.check("*_kvfp16_d64_r8_p16_c1_o1_*", "--case", case, "--repeat", 1)
                self.assertEqual((report["passed"], report["failed"]), (1, 0))

    def test_odd_scales_sinks_lengths_and_scores_are_as_the_reference_has_them(self):
        for dtype in ("bf16", "fp16"):
            for case in ("*_scale*", "infinite_*", "odd_*", "huge_*", "other_*", "many_requests_window", "programmatic"):
                with self.subTest(dtype=dtype, case=case):
                    report = self.check(f"*_kv{dtype}_d64_r8_p16_c1_o1_*", "--case", case, "--repeat", 1)
                    self.assertEqual((report["passed"], report["failed"]), (1, 0), report["failures"])

    def test_odd_scales_sinks_lengths_and_scores_find_kernels_that_have_them_wrong(self):
        fp16_kernel = ONE_KERNEL.replace("bf16", "fp16")
        for defect, case, kernel in [
            ("mask_first", "negative_scale_window", ONE_KERNEL), ("mask_first", "zero_scale_log2", ONE_KERNEL),
            ("infinite_sink", "infinite_sinks", ONE_KERNEL), ("lost_nan", "visible_nan", ONE_KERNEL),
            ("read_on", "odd_lengths", ONE_KERNEL),
            ("read_on", "odd_lengths_per_head", ONE_KERNEL), ("read_on", "odd_lengths_v_page_table", ONE_KERNEL),
            ("read_on", "odd_lengths_unknown_pool", ONE_KERNEL), ("huge_scores", "huge_scores", fp16_kernel),
            ("huge_scores", "huge_negative_scores", fp16_kernel), ("early", "programmatic", ONE_KERNEL),
            ("unwritten", "programmatic", ONE_KERNEL), ("unwritten", "q_len_programmatic", fp16_kernel),
        ]:
            with self.subTest(defect=defect, case=case):
                report = self.check(kernel, "--case", case, "--repeat", 1, code=FAILED, HOST_GPU_DEFECT=defect)
                self.assertEqual(report["failures"][0]["kind"], "bits" if defect in ("early", "unwritten") else "wrong")

    def test_without_a_late_copy_check_says_what_it_does_not_check(self):
        attention_only = ":".join(map(str, sorted(bundles.glob("libdecode-*.bundle"))))
        result = self.check_run(run("check", ONE_KERNEL, "--case", "programmatic", "--repeat", 1, gpu=True, bundle=attention_only,
                                    HOST_GPU_DEFECT="unwritten"), PASSED)
        self.assertEqual(result.stderr.count("no late_copy kernel for sm_90, so launches with LIBDECODE_LAUNCH_HISTORY_FINAL"), 1)

    def test_random_problems_pass_and_a_failure_says_how_to_see_it_again(self):
        report = self.check("*16_d64_r8_p16_c1_o1_*", "--random", 12, "--seed", 5)
        self.assertEqual((report["passed"], report["failed"]), (2, 0), report["failures"])
        for kernel in report["kernels"]:  # some problems have pages or heads that these kernels do not serve
            self.assertEqual(kernel["cases_passed"] + kernel["cases_not_applicable"], 6)
            self.assertGreater(kernel["cases_passed"], 1)
        result = self.check_run(run("check", ONE_KERNEL, "--random", 3, "--seed", 5, gpu=True, HOST_GPU_DEFECT="wild_write"),
                                FAILED)
        again = re.search(r"again: libdecode (check .*)", result.stdout)[1].split()
        self.assertEqual(again[:2], ["check", ONE_KERNEL])
        self.assertIn(f"FAIL {ONE_KERNEL} case {again[3]} seed 5:",
                      self.check_run(run(*again, gpu=True, HOST_GPU_DEFECT="wild_write"), FAILED).stdout)

    def test_every_defect_is_found_and_named(self):
        for defect, case, kind, tensor in [
            ("skip_token", "page_16", "wrong", "out"), ("skip_token", "window_127", "wrong", "out"),
            ("skip_token", "one_long", "wrong", "out"), ("leak", "page_16", "wrong", "out"),
            ("wrong_lse", "page_16", "wrong", "lse"), ("wild_write", "page_16", "bounds", None),
            ("wild_write", "padded_strides", "bounds", None), ("workspace", "page_16", "bounds", None),
            ("input", "page_16", "inputs", None), ("unsteady", "ragged", "bits", None), ("crash", "page_16", "launch", None),
        ]:
            with self.subTest(defect=defect, case=case):
                report = self.check(ONE_KERNEL, "--case", case, "--repeat", 8, code=FAILED, HOST_GPU_DEFECT=defect)
                self.assertEqual((report["passed"], report["failed"]), (0, 1))
                failure = report["failures"][0]
                self.assertEqual((failure["kernel"], failure["case"], failure["kind"]), (ONE_KERNEL, case, kind))
                self.assertEqual(failure.get("tensor"), tensor)
                self.assertTrue(failure["message"])

    def test_a_kernel_that_does_not_end_is_named(self):
        result = self.check_run(run("check", ONE_KERNEL, "--case", "page_*", "--patience", 1, gpu=True, HOST_GPU_DEFECT="endless"),
                                FAILED)
        self.assertIn(f"FAIL {ONE_KERNEL} case page_16 seed 1: the kernel does not end", result.stdout)
        self.assertIn("stopped in case page_16", result.stdout)
        self.assertIn("0 passed, 1 failed", result.stdout)

    def check_format(self, kernel, case, code=PASSED, **variables):
        return self.check(f"gqa_decode_{kernel}_c1_o1_sm90", "--case", case, "--repeat", 1, code=code, bundle=bundles / "formats",
                          **variables)

    def test_right_kernels_of_e4m3_pass(self):
        for case in ("group_4", "narrow_head", "special_values*", "visible_nan*", "query_*", "out_*", "huge_scores", "outliers",
                     "padded_strides", "negative_ids"):
            with self.subTest(case):
                report = self.check_format("kve4m3_d64_r8_p16", case)
                self.assertEqual((report["passed"], report["failed"]), (1, 0), report["failures"])

    def test_mla_is_as_the_reference_has_it_and_its_defects_are_found(self):
        kernel = "mla_decode_kve4m3_d320_r16_c1_sm90"
        for case, defect in (("page_16", None), ("heads_16", None), ("draft_mask", None), ("page_16", "skip_token"), ("page_16", "leak"),
                             ("page_16", "wrong_lse"), ("q_len_2", "causal"), ("draft_mask", "draft_bits")):
            with self.subTest(case=case, defect=defect):
                report = self.check(kernel, "--case", case, "--repeat", 1, bundle=bundles / "formats", HOST_GPU_DEFECT=defect or "",
                                    code=FAILED if defect else PASSED)
                self.assertEqual((report["passed"], report["failed"]), (int(defect is None), int(defect is not None)))

    def test_query_tokens_drafts_caps_and_biases_are_as_the_reference_has_them(self):
        for kernel in ("kvbf16_d64_r8_p16", "kve4m3_d64_r8_p1", "kvnvfp4_d64_r8_p16"):
            for case in ("q_len_*", "ragged_q*", "draft*", "soft_cap*", "alibi*", "lse_natural*", "skip_softmax*", "rope*"):
                with self.subTest(kernel=kernel, case=case):
                    report = self.check_format(kernel, case)
                    self.assertEqual((report["passed"], report["failed"]), (1, 0), report["failures"])

    def test_contiguous_kv_is_as_the_reference_has_it(self):
        for kernel in ("kvbf16_d64_r8_p16", "kvfp16_d128_r8_p16", "kve4m3_d64_r8_p16", "kvnvfp4_d64_r8_p16"):
            for case, cases in (("contiguous*", 15), ("single_decode*", 2)):
                with self.subTest(kernel=kernel, case=case):
                    report = self.check_format(kernel, case)
                    self.assertEqual((report["passed"], report["kernels"][0]["cases_passed"]), (1, cases), report["failures"])

    def test_kernels_that_have_contiguous_kv_wrong_are_found(self):
        for defect, case, kind in [("skip_token", "contiguous_nhd", "wrong"), ("read_on", "contiguous_beyond", "wrong"),
                                   ("skip_token", "single_decode", "wrong"), ("early", "contiguous_programmatic", "bits")]:
            with self.subTest(defect=defect, case=case):
                report = self.check("gqa_decode_kvbf16_d64_r8_p16_c1_o1_sm90", "--case", case, "--repeat", 1, code=FAILED,
                                    bundle=f"{bundles / 'formats'}:{bundles / 'late_copy-sm90.bundle'}", HOST_GPU_DEFECT=defect)
                self.assertEqual(report["failures"][0]["kind"], kind)

    def test_a_right_kernel_gives_a_request_the_same_bits_in_every_batch(self):
        for kernel, cases in (("gqa_decode_kvbf16_d64_r8_p16_c1_o1_sm90", "*batch_invariant*"),
                              ("gqa_decode_kve4m3_d64_r8_p1_c1_o1_sm90", "batch_invariant*"),
                              ("gqa_decode_kvnvfp4_d64_r8_p16_c1_o1_sm90", "*batch_invariant*"),
                              ("mla_decode_kve4m3_d320_r16_c1_sm90", "heads_*_batch_invariant")):
            with self.subTest(kernel=kernel):
                report = self.check(kernel, "--case", cases, "--repeat", 1, "--neighbourhoods", 4, bundle=bundles / "formats")
                self.assertEqual((report["passed"], report["failed"]), (1, 0), report["failures"])

    def test_lengths_on_the_host_reach_the_kernel(self):
        for case in ("host_lengths", "host_lengths_beyond", "host_lengths_contiguous"):
            with self.subTest(case=case):
                arguments = ("gqa_decode_kvbf16_d64_r8_p16_c1_o1_sm90", "--case", case, "--repeat", 1)
                report = self.check(*arguments, bundle=bundles / "formats")
                self.assertEqual((report["passed"], report["failed"]), (1, 0), report["failures"])
                report = self.check(*arguments, bundle=bundles / "formats", code=FAILED, HOST_GPU_DEFECT="uncopied")
                self.assertEqual(report["failures"][0]["kind"], "wrong")

    def test_bits_that_depend_on_the_batch_are_found(self):
        for defect in ("neighbours", "place"):
            for kernel, case in (("gqa_decode_kvbf16_d64_r8_p16_c1_o1_sm90", "batch_invariant"),
                                 ("gqa_decode_kve4m3_d64_r8_p1_c1_o1_sm90", "batch_invariant_page_1"),
                                 ("gqa_decode_kvnvfp4_d64_r8_p16_c1_o1_sm90", "batch_invariant_drafts"),
                                 ("gqa_decode_kvbf16_d64_r8_p16_c1_o1_sm90", "contiguous_batch_invariant"),
                                 ("mla_decode_kve4m3_d320_r16_c1_sm90", "heads_16_batch_invariant")):
                with self.subTest(defect=defect, kernel=kernel):
                    report = self.check(kernel, "--case", case, "--repeat", 1, "--neighbourhoods", 8, code=FAILED,
                                        bundle=bundles / "formats", HOST_GPU_DEFECT=defect)
                    self.assertEqual(report["failures"][0]["kind"], "neighbours")
                    self.assertIn("has other bits at place", report["failures"][0]["message"])

    def test_query_tokens_drafts_caps_and_biases_find_kernels_that_have_them_wrong(self):
        for defect, case, tensor in [
            ("causal", "q_len_2", "out"), ("causal", "q_len_positions", "out"), ("causal", "ragged_q", "out"),
            ("draft_bits", "draft_mask", "out"), ("draft_bits", "draft_mask_1", "out"), ("draft_bits", "draft_mask_64", "out"),
            ("before", "draft_mask", "out"), ("before", "draft_mask_window_5", "out"), ("leak", "draft_mask", "out"),
            ("ragged_rows", "ragged_q", "out"), ("ragged_rows", "draft_mask_ragged", "out"),
            ("window_of_last", "q_len_window_5", "out"), ("window_of_last", "draft_mask_window_0", "out"),
            ("skip_token", "q_len_16_group_12", "out"), ("no_cap", "soft_cap", "out"), ("no_cap", "drafts_and_all", "out"),
            ("rough_cap", "soft_cap_million", "out"), ("alibi_sign", "alibi", "out"), ("alibi_sign", "alibi_long", "out"),
            ("skips_more", "skip_softmax", "out"), ("skips_more", "skip_softmax_long", "lse"), ("skips_all", "skip_softmax_off", "out"),
            ("lse_base", "lse_natural", "lse"), ("lse_base", "lse_natural_sinks", "lse"),
            ("rope_f32", "rope_far", "out"), ("rope_f32", "rope_far_positions", "out"), ("rope_neighbours", "rope", "out"),
            ("rope_neighbours", "rope_narrow_head", "out"), ("rope_query", "rope_positions", "out"), ("draft_bits", "rope_drafts", "out"),
        ]:
            with self.subTest(defect=defect, case=case):
                report = self.check(ONE_KERNEL, "--case", case, "--repeat", 1, code=FAILED, HOST_GPU_DEFECT=defect)
                (failure,) = report["failures"]
                self.assertEqual((failure["case"], failure["kind"], failure["tensor"]), (case, "wrong", tensor))

    def test_defects_of_formats_are_found_and_named(self):
        for defect, case, tensor in [
            ("e4m3_operands", "group_4", "out"), ("query_range", "query_huge", "out"), ("swizzle", "out_nvfp4", "out_sf"),
            ("padding", "out_nvfp4_narrow", "out_sf"), ("lost_nan", "visible_nan", "out"),
        ]:
            with self.subTest(defect=defect, case=case):
                report = self.check_format("kve4m3_d64_r8_p16", case, code=FAILED, HOST_GPU_DEFECT=defect)
                self.assertEqual((report["failures"][0]["kind"], report["failures"][0]["tensor"]), ("wrong", tensor))

    def test_bench_measures_every_format_and_says_how_exact_it_is(self):
        for options, smallest, largest in [
            ([], 1e-3, 3e-3), (["--query", "fp16"], 1e-4, 4e-4), (["--query", "e4m3", "--out", "nvfp4"], 0.05, 0.3),
            (["--out", "e4m3", "--page-size", "64", "--kv-layout", "nhd"], 0.02, 0.04),
        ]:
            with self.subTest(options):
                report = self.json_of(run("bench", "--heads", "2/1", "--head-dim", 64, "--lens", "40,30", "--kv", "e4m3", *options, "--json",
                                          gpu=True, bundle=bundles / "formats"))
                (row,) = report["results"]
                self.assertEqual((row["kv_bytes"], row["requests_compared"]), (70 * 2 * 64, 1))
                self.assertTrue(smallest < row["rms_error"] < largest and row["largest_error"] > row["rms_error"], row)

    def test_another_seed_gives_other_data(self):
        ratios = {self.check(ONE_KERNEL, "--case", "group_4", "--seed", seed)["kernels"][0]["worst_error_over_allowed"]
                  for seed in (1, 2)}
        self.assertEqual(len(ratios), 2)

    def test_a_kernel_without_a_case_among_those_picked_has_neither_passed_nor_failed(self):
        result = self.check_run(run("check", ONE_KERNEL, "--case", "page_5", gpu=True), FAILED)  # so nothing was checked
        self.assertRegex(result.stdout, rf"\n{ONE_KERNEL} +none ")
        self.assertTrue(result.stdout.endswith("\n1 without a case\n0 passed, 0 failed\n"), result.stdout)
        report = self.check(ONE_KERNEL, ONE_KERNEL.replace("bf16", "fp16"), "--random", 1, "--seed", 5)  # for one of the two
        self.assertEqual((report["passed"], report["failed"], report["without_case"]), (1, 0, 1))

    def test_check_merges_partial_results(self):
        report = self.check(MERGE_KERNEL, "--repeat", 2)
        self.assertEqual((report["passed"], report["kernels"][0]["cases_failed"]), (1, 0))
        self.assertGreaterEqual(report["kernels"][0]["cases_passed"], 20)
        for defect, case, kind, tensor in [
            ("merge_nan", "merge_extreme", "wrong", "out"), ("lse_base", "merge_natural", "wrong", "out"),
            ("merge_mask", "merge_masked", "bounds", None), ("merge_mask", "merge_in_place_masked", "bounds", None),
        ]:
            with self.subTest(defect=defect, case=case):
                (failure,) = self.check(MERGE_KERNEL, "--case", case, "--repeat", 1, code=FAILED, HOST_GPU_DEFECT=defect)["failures"]
                self.assertEqual((failure["kernel"], failure["case"], failure["kind"]), (MERGE_KERNEL, case, kind))
                self.assertEqual(failure.get("tensor"), tensor)

    def test_check_needs_a_kernel_and_a_case(self):
        self.check_run(run("check", "no_such_*", gpu=True), FAILED)
        self.check_run(run("check", "--case", "no_such", gpu=True), USAGE)

    def test_bench_measures_a_right_kernel(self):
        report = self.json_of(run("bench", *SMALL, "--json", gpu=True))
        (row,) = report["results"]
        self.assertEqual((report["failed"], row["tokens"], row["kv_bytes"], row["requests_compared"]), (0, 40, 40 * 2 * 256, 1))
        for key in ("us", "terabytes_per_second", "ceiling_us", "percent_of_ceiling", "launch_us", "bare_us"):
            self.assertGreater(row[key], 0, key)

    def test_copies_alone_are_measured_where_there_is_a_kernel_for_that(self):
        for cluster_size, is_there in ((1, True), (2, False)):
            kernel = f"*_kvbf16_d128_r8_p16_c{cluster_size}_o0_*"
            (row,) = self.json_of(run("bench", *SMALL, "--kernel", kernel, "--json", gpu=True))["results"]
            self.assertEqual((row["page_ceiling_us"] or 0) > 0, is_there, row)
            (row,) = csv.DictReader(io.StringIO(run("bench", *SMALL, "--kernel", kernel, "--csv", gpu=True).stdout))
            self.assertEqual(row["page_ceiling_us"] != "", is_there, row)
            text = self.check_run(run("bench", *SMALL, "--kernel", kernel, gpu=True), PASSED).stdout
            self.assertEqual(re.search(r"% of its copies alone \(\d+\.\d+ us\)", text) is not None, is_there, text)

    def test_bench_measures_several_query_tokens_with_a_cap_and_biases(self):
        options = ["--heads", "4/1", "--lens", "10,70", "--q-len", 3, "--soft-cap", 5, "--alibi"]
        (row,) = self.json_of(run("bench", *options, "--json", gpu=True))["results"]
        self.assertEqual((row["q_len"], row["tokens"], row["kv_bytes"], row["requests_compared"]), (3, 80, 80 * 2 * 256, 1))
        self.assertIn(", 3 query tokens, soft cap 5, alibi", row["problem"])
        for defect in ("causal", "no_cap", "alibi_sign"):
            with self.subTest(defect):
                result = self.check_run(run("bench", *options, gpu=True, HOST_GPU_DEFECT=defect), FAILED)
                self.assertIn("the result is wrong: out[token", result.stderr)

    def test_bench_measures_skip_softmax_with_quiet_pages(self):
        options = ["--heads", "4/1", "--lens", "900,70", "--page", 64, "--skip-softmax", 0.1]
        (row,) = self.json_of(run("bench", *options, "--quiet", 50, "--json", gpu=True))["results"]
        self.assertIn(", skip-softmax 0.1", row["problem"])
        self.assertEqual((row["kernel"].split("_c")[0], row["requests_compared"]), ("gqa_decode_kvbf16_d128_r8_p16", 1))
        self.assertIn("_o1_", row["kernel"])

    def test_bench_measures_rotated_rows(self):
        options = ["--heads", "4/1", "--lens", "10,70", "--q-len", 2, "--rope", "--rope-scale", 2, "--rope-theta", 500]
        (row,) = self.json_of(run("bench", *options, "--json", gpu=True))["results"]
        self.assertIn(", 2 query tokens, rope", row["problem"])
        for defect in ("rope_neighbours", "rope_query"):
            with self.subTest(defect):
                result = self.check_run(run("bench", *options, gpu=True, HOST_GPU_DEFECT=defect), FAILED)
                self.assertIn("the result is wrong: out[token", result.stderr)

    def test_bench_times_every_kernel_and_writes_csv(self):
        result = self.check_run(run("bench", *SMALL, "--all-kernels", "--csv", gpu=True), PASSED)
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        self.assertEqual({row["q_len"] for row in rows}, {"1"})
        self.assertEqual(len({row["kernel"] for row in rows}), len(rows))
        self.assertGreater(len(rows), 3)
        self.assertTrue(all(None not in row and float(row["us"]) > 0 for row in rows))

    def test_without_a_read_ceiling_bench_and_demo_measure_and_say_what_is_missing(self):
        trace = pathlib.Path(folder.name) / "tiny.csv"
        trace.write_text("input_length,output_length,hash_ids\n3,2,1\n", encoding="utf-8")
        attention_only = ":".join(map(str, sorted(bundles.glob("libdecode-*.bundle"))))
        runs = {(command[0], *output): self.check_run(run(*command, *output, gpu=True, bundle=attention_only), PASSED)
                for command in (["bench", *SMALL], ["demo", "--trace", trace]) for output in ([], ["--json"])}
        runs["bench", "--csv"] = self.check_run(run("bench", *SMALL, "--csv", gpu=True, bundle=attention_only), PASSED)
        for name, result in runs.items():
            with self.subTest(name):
                self.assertEqual(result.stderr.count("no read_ceiling kernel for sm_90"), 1)
        self.assertRegex(runs["bench",].stdout, r"us +\d+\.\d+ TB/s; launch")
        self.assertRegex(runs["demo",].stdout, r"us, \d+\.\d+ TB/s\n")
        rows = json.loads(runs["bench", "--json"].stdout)["results"] + json.loads(runs["demo", "--json"].stdout)["models"]
        rows += csv.DictReader(io.StringIO(runs["bench", "--csv"].stdout))
        self.assertEqual(len(rows), 4)
        for row in rows:
            self.assertGreater(float(row["us"]), 0)
            self.assertIn((row["ceiling_us"], row["percent_of_ceiling"]), [(None, None), ("", "")])

    def test_bench_forces_a_kernel(self):
        report = self.json_of(run("bench", *SMALL, "--kernel", "*_r32_p16_c1_o0_*", "--json", gpu=True))
        self.assertIn("_r32_p16_c1_o0_", report["results"][0]["kernel"])

    def test_regret_times_every_kernel_beside_the_chosen_one(self):
        points = pathlib.Path(folder.name) / "points.tsv"
        result = self.check_run(run("bench", "--regret", *SMALL, "--kernel", "*_r8_p16_c1_o0_*", "--points", points, gpu=True), PASSED)
        self.assertRegex(result.stdout, r"as given +gqa_decode_\S+ +\d+ +\d+\.\d+ us  gqa_decode_\S+ .* \d+\.\d+ %\n")
        self.assertRegex(result.stdout, r"1 cells: regret \d+\.\d+ % in the median, \d+\.\d+ % in the worst \(as given\)")

    def test_forced_numbers_of_workers_are_points_of_a_table(self):
        points = pathlib.Path(folder.name) / "points.tsv"
        self.check_run(run("bench", "--regret", *SMALL, "--kernel", "*_r8_p16_c2_o0_*", "--workers", "1,3,4,4,5,99", "--points", points,
                           gpu=True), PASSED)
        with open(points, encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        self.assertEqual(sum(row["kind"] == "chosen" for row in rows), 1)
        # 8 SMs hold 4 clusters of 2
        forced = [int(row["workers"]) for row in rows if row["kind"] == "forced" and "_r8_p16_c2_" in row["kernel"]]
        self.assertEqual(forced, [1, 3, 4])
        for row in rows:
            self.assertEqual((row["tokens"], row["num_kv_heads"]), ("40", "1"))
            self.assertGreater(float(row["us"]), 0)
            self.assertGreater(float(row["predicted_us"]), 0)

    def test_regret_refuses_what_it_would_ignore(self):
        for arguments, words in [(["--regret", "--csv"], "--points"), (["--workers", "all"], "--regret"),
                                 (["--regret", "--workers", "some"], "all, or numbers")]:
            self.assertIn(words, self.check_run(run("bench", *arguments, gpu=True), USAGE).stderr)

    def test_programmatic_launches_are_timed_beside_plain_ones_and_beside_held_sms(self):
        result = self.check_run(run("bench", *SMALL, "--programmatic", gpu=True), PASSED)
        self.assertRegex(result.stdout, r"programmatic \d+\.\d+ us \([+-]\d+\.\d %\), history final \d+\.\d+ us \([+-]\d+\.\d %\); "
                                        "beside 4 held SMs plain")

    def test_bench_refuses_a_wrong_result(self):
        for defect in ("skip_token", "crash"):
            with self.subTest(defect):
                result = run("bench", "--heads", "4/1", "--lens", "70,50", gpu=True, HOST_GPU_DEFECT=defect)
                self.check_run(result, FAILED)
                self.assertNotIn("TB/s", result.stdout)

    def test_cold_start_adds_up(self):
        report = self.json_of(run("bench", *SMALL, "--cold-start", "--json", gpu=True))
        parts = sum(report[f"{step}_ms"] for step in ("open", "plan", "prepare", "workspace", "first_result"))
        self.assertAlmostEqual(report["open_to_first_result_ms"], parts, places=3)

    def test_demo_compares_every_element(self):
        trace = pathlib.Path(folder.name) / "small.csv"
        trace.write_text("input_length,output_length,hash_ids\n3,2,1\n6,3,2\n", encoding="utf-8")
        report = self.json_of(run("demo", "--trace", trace, "--json", gpu=True))
        self.assertEqual([(model["agrees"], model["elements_compared"]) for model in report["models"]],
                         [(True, 2 * 32 * 128), (True, 2 * 64 * 128)])

    def test_doctor_counts_the_kernels_for_the_gpu_at_hand(self):
        report = self.json_of(run("doctor", "--json", gpu=True))
        self.assertGreater(report["gpus"][0]["kernels"], 1)
        other = self.json_of(run("doctor", "--json", gpu=True, HOST_GPU_CAPABILITY="80"))
        self.assertEqual(other["gpus"][0]["kernels"], 0)

    def test_a_gpu_that_no_bundle_serves_is_an_error(self):
        result = self.check_run(run("check", gpu=True, HOST_GPU_CAPABILITY="80"), FAILED)
        self.assertIn("none of the", result.stderr)


if __name__ == "__main__":
    unittest.main()
