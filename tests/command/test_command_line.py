# SPDX-License-Identifier: Apache-2.0
"""The command `libdecode` where there is no driver: its command line, traces, list, explain, doctor."""

import csv
import json
import pathlib
import subprocess
import tempfile
import unittest

from command_scene import (
    COMMAND, COMMANDS, FAILED, GPUS, NO_GPU, PASSED, TRACE, USAGE, CommandTest, bundles, environment_of, folder, run, setUpModule,
    tearDownModule)


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

    def test_what_cannot_be_written_is_an_error(self):
        for arguments in (["help"], ["help", "bench"], ["list", "--help"], ["--version"], ["list"], ["check", "--list-cases"],
                          ["check", "--json"]):
            with self.subTest(arguments), open("/dev/full", "wb") as full:
                result = subprocess.run([COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                                        env=environment_of(False, bundles, {}))
                self.assertEqual(result.returncode, FAILED)
                self.assertIn("standard output", result.stderr)

    def test_a_misspelt_command_gets_a_suggestion(self):
        self.assertIn("'bench'", self.check_run(run("benhc"), USAGE).stderr)

    def test_a_misspelt_option_gets_a_suggestion(self):
        result = self.check_run(run("explain", "--bacth", 3), USAGE)
        self.assertIn("--bacth", result.stderr)
        self.assertIn("'--batch'", result.stderr)

    def test_values_out_of_range_name_what_is_accepted(self):
        for arguments, words in [
            (["--batch", "-1"], "from 0 to"), (["--batch", "many"], "whole number"), (["--heads", "32"], "like 32/8"),
            (["--heads", "32/5"], "--heads (KV) is 5"), (["--page", "1025"], "--page is 1025"), (["--kv", "bf15"], "bf16"),
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

    def test_explain_says_all_of_a_refusal(self):
        asked = ["explain", "--gpu", "all", "--query-offsets", "--soft-cap", 30]
        remedy = "; change the problem, or use libdecode_reference on the host"
        lines = [line for line in self.check_run(run(*asked), FAILED).stdout.splitlines() if "no kernel" in line]
        self.assertEqual([line[-len(remedy):] for line in lines], [remedy] * 3)  # two pairs of GPUs answer alike
        with tempfile.TemporaryDirectory() as place:
            for name in ("a" * 200, "b" * 200):
                (pathlib.Path(place) / f"{name}.bundle").write_bytes((bundles / "libdecode-sm90.bundle").read_bytes()[:1000])
            (pathlib.Path(place) / "good.bundle").write_bytes((bundles / "libdecode-sm90.bundle").read_bytes())
            text = self.check_run(run(*asked, "--json", bundle=place), FAILED).stdout
            self.assertRegex(json.loads(text)["gpus"][0]["error"], rf"{remedy} \(passed over: .*a\.bundle: .*\) \(passed over: .*b\.bundle: .*\)$")

    def test_explain_counts_query_tokens(self):
        kernel = self.json_of(run("explain", "--gpu", "sm_90", "--q-len", 4, "--soft-cap", 30, "--alibi", "--json"))["gpus"][0]["kernel"]
        self.assertIn("_r16_", kernel)  # 4 heads of a group, 4 query tokens
        result = self.check_run(run("explain", "--gpu", "sm_90", "--q-len", 2000), FAILED)
        self.assertIn("--q-len 2000 (built: up to 1024)", result.stdout)
        self.check_run(run("explain", "--soft-cap", "-1"), USAGE)

    def test_explain_gives_a_batch_invariant_problem_one_kernel_for_every_batch(self):
        names = {self.json_of(run("explain", "--gpu", "sm_90", "--batch-invariant", "--batch", batch, "--len", tokens, "--json"))["gpus"][0]["kernel"]
                 for batch, tokens in ((1, 100), (1, 32768), (64, 4096))}
        self.assertEqual(names, {"gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90"})
        result = self.check_run(run("explain", "--gpu", "sm_90", "--batch-invariant", "--all", "--batch", 1), PASSED)
        self.assertRegex(result.stdout, r"gqa_decode_kvbf16_d128_r8_p16_c8_o0_sm90 +lacks batch_invariant\n")

    def test_explain_knows_rotations(self):
        for gpu, kv, head_dim, code in [("sm_90", "bf16", 128, PASSED), ("sm_120", "bf16", 512, PASSED), ("sm_120", "e4m3", 256, PASSED)]:
            self.check_run(run("explain", "--gpu", gpu, "--kv", kv, "--head-dim", head_dim, "--rope"), code)
        self.assertIn("--rope-theta is -1", self.check_run(run("explain", "--rope", "--rope-theta", "-1"), USAGE).stderr)
        self.assertIn("--rope-scale is 2 without --rope: give both", self.check_run(run("explain", "--rope-scale", "2"), USAGE).stderr)

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


if __name__ == "__main__":
    unittest.main()
