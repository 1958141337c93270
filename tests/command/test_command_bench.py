# SPDX-License-Identifier: Apache-2.0
"""`libdecode bench`, `demo` and `doctor` on the host GPU (host_gpu.h)."""

import csv
import io
import json
import pathlib
import re
import unittest

from command_scene import (
    FAILED, PASSED, SMALL, USAGE, CommandTest, bundles, folder, run, setUpModule, tearDownModule)


class Bench(CommandTest):
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
        self.assertIn("_o3_", row["kernel"])

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
        self.assertEqual([row["launch_us"] != "" for row in rows], [False] * (len(rows) - 1) + [True])  # what comes behind them is slower

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

    def test_a_cold_start_refuses_what_it_would_ignore(self):
        for option in (["--csv"], ["--set", "standard"], ["--kernel", "*"], ["--all-kernels"], ["--programmatic"], ["--accuracy"], ["--quiet", 5]):
            result = self.check_run(run("bench", *SMALL, "--cold-start", *option, gpu=True), USAGE)
            self.assertIn("--cold-start excludes", result.stderr)
            self.assertIn(f" {option[0]}", result.stderr)

    def test_csv_has_the_error_where_accuracy_is_asked_for(self):
        for option, columns in ([], set()), (["--accuracy"], {"largest_error", "rms_error"}):
            (row,) = csv.DictReader(io.StringIO(self.check_run(run("bench", *SMALL, "--csv", *option, gpu=True), PASSED).stdout))
            self.assertEqual({"largest_error", "rms_error"} & set(row), columns)
            self.assertNotIn(None, row)
            for column in columns:
                self.assertTrue(0 < float(row[column]) < 0.1, row)
        (row,) = csv.DictReader(io.StringIO(run("bench", *SMALL, "--csv", "--accuracy", "--no-check", gpu=True).stdout))
        self.assertEqual((row["largest_error"], row["rms_error"]), ("", ""))

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


if __name__ == "__main__":
    unittest.main()
