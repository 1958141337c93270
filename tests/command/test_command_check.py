# SPDX-License-Identifier: Apache-2.0
"""`libdecode check` on the host GPU (host_gpu.h): right kernels pass, every defect is found."""

import json
import re
import signal
import subprocess
import time
import unittest

from command_scene import (
    COMMAND, FAILED, MERGE_KERNEL, ONE_KERNEL, PASSED, USAGE, CommandTest, bundles, environment_of, run, setUpModule,
    tearDownModule)


class Check(CommandTest):
    def check(self, *arguments, code=PASSED, **variables):
        """Requests among few other batches for the same bits: a GPU takes 50 in its stride, the processor does not."""
        return self.json_of(run("check", "--neighbourhoods", 4, *arguments, "--json", gpu=True, **variables), code)

    def test_every_case_has_a_name_of_its_own(self):
        names = [line.split()[0] for line in self.check_run(run("check", "--list-cases"), PASSED).stdout.splitlines()]
        self.assertGreater(len(names), 200)
        self.assertEqual([name for name in names if names.count(name) > 1], [])

    def test_a_right_kernel_passes_every_quick_case(self):
        result = self.check_run(run("check", ONE_KERNEL, "--quick", "--repeat", 2, gpu=True), PASSED)
        self.assertTrue(result.stdout.endswith("\n1 passed, 0 failed\n"), result.stdout)

    def test_interrupted_it_says_what_it_found_and_what_it_did_not_finish(self):
        for numbers in ([signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]):  # two: as timeout(1) sends them
            with subprocess.Popen([COMMAND, "check", ONE_KERNEL, ONE_KERNEL.replace("bf16", "fp16")], text=True,
                                  stdout=subprocess.PIPE, env=environment_of(True, bundles, {})) as process:
                first = process.stdout.readline()
                time.sleep(0.2)  # until the signal has its handler, and well before the end
                for number in numbers:
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
                     "random_*", "long_and_short_rope"):
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

    def test_kernels_take_turns_at_random_problems(self):
        def runs(*arguments):
            report = self.check("*_kvbf16_d64_r8_p16_*", "--random", 8, "--seed", 5, "--repeat", 1, *arguments)
            return [kernel["cases_passed"] for kernel in report["kernels"]]

        of_all, in_turns = runs(), runs("--kernels-per-case", 1)
        self.assertEqual(sum(in_turns), max(of_all), (of_all, in_turns))  # one kernel can do all that any of them can
        self.assertGreater(sum(of_all), sum(in_turns))
        self.assertLess(max(in_turns), sum(in_turns))

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
            ("leavings", "page_16", "workspace", None),
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

    def test_right_kernels_of_e5m2_pass(self):
        for kernel, cases in (("kve5m2_d64_r8_p16", ("group_4", "narrow_head", "special_values*", "visible_nan*", "query_*", "out_*", "huge_scores",
                                                     "outliers", "padded_strides", "negative_ids", "contiguous*", "single_decode*", "rope", "q_len_2")),
                              ("kve5m2_d64_r8_p1", ("page_5", "special_values", "rope_page_1"))):
            for case in cases:
                with self.subTest(kernel=kernel, case=case):
                    report = self.check_format(kernel, case)
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
            for case in ("q_len_*", "ragged_q*", "draft*", "soft_cap*", "alibi*", "lse_*", "skip_softmax*", "rope*"):
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
                report = self.check(kernel, "--case", cases, "--repeat", 1, bundle=bundles / "formats")
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
            ("lse_sink", "lse_flash_mla", "lse"), ("lse_sink", "lse_without_sinks", "lse"), ("lse_empty", "lse_flash_mla", "lse"),
            ("lse_shift", "alibi_from_zero", "lse"), ("lse_shift", "alibi_from_zero_positions", "lse"),
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

        for defect, case in [("e5m2_as_e4m3", "group_4"), ("e5m2_as_e4m3", "special_values"), ("e5m2_finite", "visible_nan"),
                             ("e4m3_operands", "group_4"), ("query_range", "query_huge"), ("leak", "page_16")]:
            with self.subTest(defect=defect, case=case):
                report = self.check_format("kve5m2_d64_r8_p16", case, code=FAILED, HOST_GPU_DEFECT=defect)
                self.assertEqual((report["failures"][0]["kind"], report["failures"][0]["tensor"]), ("wrong", "out"))

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

    def test_a_gpu_that_no_bundle_serves_is_an_error(self):
        result = self.check_run(run("check", gpu=True, HOST_GPU_CAPABILITY="80"), FAILED)
        self.assertIn("none of the", result.stderr)


if __name__ == "__main__":
    unittest.main()
