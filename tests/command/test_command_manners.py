# SPDX-License-Identifier: Apache-2.0
"""What people expect of a command: its manual, completion, width, colour, words, JSON and pictures. On the host GPU (host_gpu.h)."""

import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import termios
import tempfile
import unittest
import xml.etree.ElementTree

from command_scene import (
    COMMAND, COMMANDS, FAILED, NO_GPU, ONE_KERNEL, PASSED, SMALL, USAGE, CommandTest, bundles, environment_of, run, setUpModule,
    tearDownModule)

MANUAL = pathlib.Path(os.environ["LIBDECODE_MANUAL"])
NAMES_OF_GPUS = ["H200", "B200", "B300", "RTX 5090", "DGX Spark", "H100", "H100 NVL", "H100 PCIe", "H20", "GH200", "GB200", "GB300",
                 "RTX 5080", "RTX PRO 6000", "GB10"]
NO_COLUMNS = {"COLUMNS": ""}
FORMATS = bundles / "formats"
BASH, ZSH, MANDOC = map(shutil.which, ("bash", "zsh", "mandoc"))


def options_of(command):
    """Of its help text, which is made of the same tables."""
    return re.findall(r"^  (--[\w-]+)", run("help", command).stdout, re.MULTILINE)


def run_on_terminal(*arguments, columns=100, gpu=False, bundle=bundles, **variables):
    """Exit code and output, standard error with it, where both are a terminal of that width."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = environment_of(gpu, bundle, {**NO_COLUMNS, "TERM": "xterm", **variables})
    environment.pop("NO_COLOR", None)
    environment.update({name: value for name, value in variables.items() if name == "NO_COLOR"})
    with subprocess.Popen([COMMAND, *map(str, arguments)], stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        output = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            output += data
    os.close(ours)
    return process.returncode, output.decode().replace("\r\n", "\n")


@unittest.skipIf(not MANUAL.is_dir(), "a cross build makes no manual")
class Manual(CommandTest):
    def page(self, name):
        return (MANUAL / f"{name}.1").read_text(encoding="utf-8").replace("\\-", "-").replace("\\(aq", "'")

    def test_every_option_is_on_its_page_and_in_completion(self):
        zsh = (MANUAL / "_libdecode").read_text(encoding="utf-8")
        for command in COMMANDS:
            options = options_of(command)
            self.assertIn("--json", options)
            page = self.page(f"libdecode-{command}")
            self.assertEqual([option for option in options if f"\\fB{option}\\fR" not in page], [], command)
            self.assertEqual(sorted(set(options) - set(self.complete(command, "--"))), [], command)
            of_command = re.search(rf"^    {command}\)\n(.*?) ;;$", zsh, re.MULTILINE | re.DOTALL)[1]
            self.assertEqual([option for option in options if f"{option}[" not in of_command], [], command)

    def test_pages_say_what_help_says(self):
        for command in COMMANDS:
            page = " ".join(self.page(f"libdecode-{command}").split())
            for line in run("help", command).stdout.splitlines()[2:3]:
                for sentence in re.split(r"(?<=\.) ", line):
                    self.assertIn(sentence, page)
            self.assertIn(f"libdecode-{command}", self.page("libdecode"))
        for word in ("77", "LIBDECODE_BUNDLE_PATH", "NO_COLOR", "COLUMNS"):
            self.assertIn(word, self.page("libdecode"))

    def test_pages_and_help_tell_what_options_of_a_name_are_and_how_policies_read(self):
        for text in (run("help", "list").stdout, self.page("libdecode-list")):
            for word in ("o1: ", "o2: ", "o3: ", "o4: "):
                self.assertIn(word, text)
        for text in (run("help").stdout, self.page("libdecode"), run("help", "explain").stdout, self.page("libdecode-explain")):
            self.assertIn("[op:]force=GLOB", text)
            self.assertIn("the last that matches a kernel decides", text)
        self.assertNotIn("can also be said by options", run("help").stdout)  # three of them cannot

    @unittest.skipIf(MANDOC is None, "no mandoc")
    def test_pages_are_clean(self):
        for page in sorted(MANUAL.glob("*.1")):
            result = subprocess.run([MANDOC, "-Tlint", "-Wwarning", page], capture_output=True, text=True, check=False)
            found = [line for line in (result.stdout + result.stderr).splitlines() if "missing date" not in line]
            self.assertEqual(found, [])  # they have no date: the same sources make the same bytes

    def complete(self, *words):
        script = f'source {MANUAL}/libdecode\nCOMP_WORDS=(libdecode "$@")\nCOMP_CWORD=$#\n_libdecode\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
        result = subprocess.run([BASH, "--norc", "-c", script, "bash", *words], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    @unittest.skipIf(BASH is None, "no bash")
    def test_bash_completes_commands_options_and_their_words(self):
        self.assertEqual(sorted(self.complete("")), sorted([*COMMANDS, "help", "--help", "--version"]))
        self.assertEqual(self.complete("be"), ["bench"])
        self.assertEqual(self.complete("help", "ex"), ["explain"])
        self.assertEqual(self.complete("bench", "--cont"), ["--contiguous"])
        self.assertEqual(self.complete("explain", "--kv", ""), ["bf16", "fp16", "e4m3", "fp8", "e5m2", "nvfp4"])
        self.assertEqual(self.complete("list", "--gpu", "H1"), ["H100", "H100-NVL", "H100-PCIe"])
        self.assertEqual(self.complete("bench", "--batch", ""), [])
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.bundle").touch()
            self.assertEqual(self.complete("list", "--bundle", f"{folder}/"), [f"{folder}/a.bundle"])

    def test_every_gpu_that_is_completed_is_accepted(self):
        for name in self.complete("explain", "--gpu", ""):
            if name != "current":
                self.check_run(run("explain", "--gpu", name), PASSED)

    @unittest.skipIf(ZSH is None, "no zsh")
    def test_zsh_can_read_its_completion(self):
        result = subprocess.run([ZSH, "-n", MANUAL / "_libdecode"], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class Text(CommandTest):
    def longest_line(self, text):
        return max(map(len, text.splitlines()))

    def test_text_is_as_wide_as_said_and_80_without_a_terminal(self):
        for arguments in (["help"], *(["help", command] for command in COMMANDS), ["explain", "--gpu", "all"], ["doctor"]):
            with self.subTest(arguments):
                text = run(*arguments, **NO_COLUMNS).stdout
                self.assertTrue(60 < self.longest_line(text.replace(str(bundles), "")) <= 80, text)
        trace = bundles / "two.csv"
        trace.write_text("input_length,output_length,hash_ids\n3,2,1\n6,3,2\n", encoding="utf-8")
        for gpu in (False, True):
            text = self.check_run(run("demo", "--trace", trace, gpu=gpu, **NO_COLUMNS), PASSED).stdout
            self.assertLessEqual(self.longest_line(text.replace(str(trace), "")), 80)
        wide, narrow = (run("help", "bench", COLUMNS=columns).stdout for columns in ("120", "65"))
        self.assertTrue(100 < self.longest_line(wide) <= 120)
        self.assertLessEqual(self.longest_line(narrow), 65)
        self.assertEqual(wide.split(), narrow.split())

    def test_the_number_of_those_that_cannot_is_as_narrow_as_the_rest(self):
        text = run("explain", "--gpu", "sm_90", COLUMNS="50").stdout
        self.assertIn("more cannot do this problem", text)
        self.assertLessEqual(self.longest_line(text), 50)

    def test_text_is_as_wide_as_the_terminal(self):
        for columns in (64, 110):
            _, text = run_on_terminal("help", "check", columns=columns, NO_COLOR="1")
            self.assertTrue(columns - 12 < self.longest_line(text) <= columns, text)

    def test_errors_are_whole_lines_where_they_are_no_terminals(self):
        self.assertEqual(run("explain", "--page", 1025, **NO_COLUMNS).stderr.count("\n"), 1)
        _, text = run_on_terminal("explain", "--heads", "32/5", columns=60, NO_COLOR="1")
        self.assertGreater(text.count("\n"), 1)
        self.assertLessEqual(self.longest_line(text), 60)

    def test_colour_is_for_terminals_and_for_who_wants_it(self):
        for arguments in (["help"], ["explain", "--gpu", "all"], ["foo"]):
            with self.subTest(arguments):
                self.assertIn("\033[", run_on_terminal(*arguments)[1])
                for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
                    self.assertNotIn("\033[", run_on_terminal(*arguments, **variables)[1])
                result = run(*arguments, TERM="xterm")
                self.assertNotIn("\033", result.stdout + result.stderr)
        self.assertIn("\033[", run_on_terminal("help", NO_COLOR="")[1])  # an empty one is none

    def test_progress_goes_forward_only(self):
        other = ONE_KERNEL.replace("bf16", "fp16")
        code, text = run_on_terminal("check", ONE_KERNEL, other, "merge_states*", "--case", "*page_1*", "--repeat", 1, gpu=True)
        self.assertEqual(code, PASSED, text)
        steps = [tuple(map(int, step)) for step in re.findall(r"case (\d+) of (\d+):", text)]
        self.assertEqual([number for number, _ in steps], list(range(1, len(steps) + 1)))
        self.assertEqual({count for _, count in steps}, {len(steps)})
        self.assertGreater(len(steps), 4)
        shares = [int(share) for share in re.findall(r"\r\033\[K *(\d+) %", text)]
        self.assertEqual(shares, sorted(shares))
        self.assertGreater(shares[-1], 50)


class Words(CommandTest):
    def test_two_dashes_end_the_options(self):
        self.assertEqual(self.json_of(run("list", "--json", "--", "*_d64_*"))[0]["head_dim"], 64)
        self.assertIn("matches", self.check_run(run("list", "--", "--json"), FAILED).stderr)
        self.assertIn("none of the", self.check_run(run("list", "--", "--help"), FAILED).stderr)
        self.assertIn("'--json'", self.check_run(run("explain", "--", "--json"), USAGE).stderr)

    def test_messages_name_options(self):
        for arguments, words in [
            (["--page", "1025"], "--page is 1025: accepted are 1 to 1024"), (["--head-dim", "24"], "--head-dim is 24"),
            (["--heads", "32/5"], "--heads (KV) is 5, which does not divide --heads (query) 32"),
            (["--soft-cap", "-1"], "--soft-cap is -1 with --soft-cap"), (["--skip-softmax", "-1"], "--skip-softmax is -1"),
            (["--rope-theta", "2"], "--rope-theta is 2 without --rope: give both, or neither"),
            (["--kv", "bf16", "--query", "fp16"], "--kv is bf16 with --query fp16"), (["--out", "nvfp4"], "--out is nvfp4"),
            (["--mla", "--head-dim", "128"], "--head-dim is 128 with --mla"),
            (["--mla", "--heads", "16/2"], "--heads (KV) is 2 with --mla"), (["--position-stride", "1048576"], "--position-stride is"),
            (["--layout", "dhn"], "--layout dhn: hnd or nhd is accepted"), (["--kv", "bf15"], "bf16, fp16, e4m3, fp8, e5m2 or nvfp4"),
            (["--contiguous", "--page", "16"], "--contiguous and --page"), (["--contiguous", "--mla"], "--contiguous and --mla"),
            (["--row-gap", "8", "--mla"], "--row-gap and --mla"), (["--kv-offsets", "--kv", "nvfp4"], "--kv-offsets with --kv nvfp4"),
            (["--kv-offsets", "--mla"], "mla_decode does not know"),
            (["--kv-row", "scaled656", "--mla"], "--kv-row is scaled656 without --sparse-top-k: give both, or neither"),
            (["--kv-row", "nvfp352"], "--kv-row is nvfp352: batch_decode does not know"),
            (["--kv-row", "scaled656", "--mla", "--sparse-top-k", "8", "--head-dim", "320"], "--kv-row is scaled656 with --kv e4m3"),
            (["--mla", "--sparse-top-k", "8", "--kv", "nvfp4"], "nvfp4 with --kv-row nvfp352"),
            (["--sf-layout", "v_interleave4"], "--sf-layout is v_interleave4 without --kv nvfp4"),
        ]:
            with self.subTest(arguments):
                error = self.check_run(run("explain", *arguments), USAGE).stderr
                self.assertIn(words, error)
                self.assertNotRegex(error, r"problem\.|LIBDECODE_|_dim\b|kv_dtype|page_size|options\.")
        self.assertIn("--bundle: /nowhere", self.check_run(run("list", "--bundle", "/nowhere", LIBDECODE_BUNDLE_ONLY="0"), FAILED).stderr)
        self.assertIn("--policy, item 1", self.check_run(run("list", "--policy", "force=nothing"), FAILED).stderr)

    def test_suggestions_come_only_where_something_is_near(self):
        for arguments, near in [
            (["bnech"], "'bench'"), (["doc"], "'doctor'"), (["chekc"], "'check'"), (["explain", "--bath", "3"], "'--batch'"),
            (["explain", "--head_dim", "3"], "'--head-dim'"), (["explain", "--gpu", "DGX Sparc"], "'DGX Spark'"), (["list", "--gpu", "RTX 509"], "'RTX 5090'"),
        ]:
            self.assertIn(f"did you mean {near}?", self.check_run(run(*arguments), USAGE).stderr)
        for arguments in (["foo"], ["ls"], ["frobnicate"], ["explain", "--xyz"], ["explain", "--zip"], ["explain", "--gpu", "A100-SXM4"]):
            self.assertNotIn("did you mean", self.check_run(run(*arguments), USAGE).stderr)
        self.assertNotIn("nearest", self.check_run(run("list", "--policy", "force=something"), FAILED).stderr)
        self.assertIn("nearest: ", self.check_run(run("list", "--policy", "force=gqa_decode_kvbf16_d129_r8_p16_c1_o0_sm90"), FAILED).stderr)

    def test_fp8_is_e4m3(self):
        for arguments in (["--kv"], ["--query"]):
            texts = {run("explain", "--gpu", "sm_90", *(["--kv", "fp8"] if arguments == ["--query"] else []), *arguments, word).stdout
                     for word in ("fp8", "e4m3")}
            self.assertEqual(len(texts), 1)
            self.assertIn("kve4m3", texts.pop())
        self.assertEqual(run("list", "--kv", "fp8").stdout, run("list", "--kv", "e4m3").stdout)

    def test_gpus_have_names(self):
        for name in NAMES_OF_GPUS:
            text = self.check_run(run("explain", "--gpu", name.lower()), PASSED).stdout
            self.assertEqual(text.splitlines()[2], name)
        for name, family in (("H100", "sm90"), ("GB200", "sm100"), ("GB300", "sm100"), ("RTX 5080", "sm120"), ("GB10", "sm120")):
            self.assertRegex(run("explain", "--gpu", name).stdout, rf"\n  gqa_decode_\w+_{family}\n")
        self.assertEqual(run("list", "--gpu", "gh200").stdout, run("list", "--gpu", "sm_90").stdout)

    def test_a_slower_memory_is_slower(self):
        times = [self.json_of(run("explain", "--gpu", name, "--json"))["gpus"][0]["predicted_us"] for name in ("H200", "GH200", "H100", "H100 PCIe")]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[2], 1.3 * times[0])

    def test_features_are_names(self):
        for kernel in self.json_of(run("list", "*_d64_r8_p16_c1_*", "--json")):
            self.assertIn("window", kernel["features"])
            self.assertTrue(all(re.fullmatch("[a-z_]+", name) for name in kernel["features"]))

    def test_check_and_bench_answer_without_a_gpu(self):
        for command in (["check"], ["check", "--quick"], ["bench"], ["bench", "--cold-start"]):
            report = self.json_of(run(*command, "--json"), NO_GPU)
            self.assertIn("nothing was run", report["error"])
            for name in {"gpu", "kernel"} & set(report):
                self.assertIsNone(report[name])
        self.assertEqual([self.json_of(run("check", "--json"), NO_GPU)[name] for name in ("passed", "failed", "kernels")], [0, 0, []])
        self.assertEqual([self.json_of(run("bench", "--json"), NO_GPU)[name] for name in ("results", "failed")], [[], 0])
        cases = self.json_of(run("check", "--list-cases", "--json"))
        self.assertEqual([case["name"] for case in cases], [line.split()[0] for line in run("check", "--list-cases").stdout.splitlines()])
        self.assertEqual({case["quick"] for case in cases}, {False, True})
        for command in ("check", "bench"):
            self.assertIn("no bundle was found", self.json_of(run(command, "--json", gpu=True, bundle=None, LIBDECODE_BUNDLE_ONLY="0"), FAILED)["error"])
        self.assertIsNone(self.json_of(run("bench", *SMALL, "--json", gpu=True))["error"])


class Doctor(CommandTest):
    def test_misspelt_variables_are_told(self):
        variables = {"LIBDECODE_BUNDEL_PATH": "x", "LIBDECODE_KERNAL": "x", "LIBDECODE_SOMETHING": "x", "LIBDECODE_LIBRARY": "x"}
        advice = self.json_of(run("doctor", "--json", **variables), NO_GPU)["advice"]
        for words in ("LIBDECODE_BUNDEL_PATH has no effect: nothing reads it. Did you mean LIBDECODE_BUNDLE_PATH?",
                      "Did you mean LIBDECODE_KERNEL?", "LIBDECODE_SOMETHING has no effect: nothing reads it. Unset it"):
            self.assertEqual(sum(words in line for line in advice), 1, advice)
        self.assertFalse(any("LIBDECODE_LIBRARY" in line for line in advice))
        log = run("list", LIBDECODE_LOG="warn", LIBDECODE_STRICKT="1").stderr
        self.assertEqual(log.count("LIBDECODE_STRICKT has no effect: nothing reads it; did you mean LIBDECODE_STRICT?"), 1, log)

    def test_every_place_is_shown(self):
        found = self.json_of(run("doctor", "--json"), NO_GPU)["places"]
        self.assertEqual(found, [{"path": str(bundles), "source": "LIBDECODE_BUNDLE_PATH", "there": True,
                                  "bundles": len(list(bundles.glob("*.bundle")))}])
        report = self.json_of(run("doctor", "--json", "--bundle", FORMATS, "--bundle", "/nowhere", bundle=None, LIBDECODE_BUNDLE_ONLY="0"), FAILED)
        places = [(place["path"], place["source"], place["there"]) for place in report["places"]]
        self.assertEqual(places[0][:2], (None, "embedded"))
        self.assertEqual(places[-2:], [(str(FORMATS), "--bundle", True), ("/nowhere", "--bundle", False)])
        if not places[0][2]:
            self.assertIn("installed bundles", places[1])
        text = run("doctor", "--bundle", "/nowhere", bundle=None, LIBDECODE_BUNDLE_ONLY="0").stdout
        self.assertIn("looked in  /nowhere (--bundle): not there\n", text)

    def test_a_damaged_bundle_in_a_folder_is_told_and_not_well(self):
        for damaged, its_own in (("libdecode-sm90.bundle", True), ("libdecode-sm120.bundle", False)):
            with self.subTest(damaged), tempfile.TemporaryDirectory() as folder:
                for name in ("libdecode-sm90.bundle", "libdecode-sm120.bundle"):
                    data = (bundles / name).read_bytes()
                    (pathlib.Path(folder) / name).write_bytes(data[:1000] if name == damaged else data)
                report = self.json_of(run("doctor", "--json", gpu=True, bundle=folder), FAILED)
                self.assertEqual((report["well"], report["verified"], len(report["bundles"])), (False, False, 1))
                (reason,) = report["passed_over"]
                self.assertRegex(reason, rf"{folder}/{damaged}: 1000 bytes long, its header says \d+;")
                self.assertEqual(sum("a bundle that cannot be used was passed over" in line for line in report["advice"]), 1)
                text = self.check_run(run("doctor", gpu=True, bundle=folder), FAILED).stdout
                self.assertRegex(text, rf"\nunusable   LIBDECODE_BUNDLE_PATH: .*/{damaged}: 1000 bytes long")
                self.assertNotIn("All is well", text)
                self.assertEqual("no bundle here that can be used serves GPU 0" in text, its_own)
                self.assertNotIn("no bundle here serves", text)
        self.assertEqual(self.json_of(run("doctor", "--json", gpu=True))["passed_over"], [])

    def test_a_policy_of_the_environment_that_matches_nothing_hides_no_kernel(self):
        error = "LIBDECODE_KERNEL, item 1: 'nope*' matches none of the "
        kernels = self.json_of(run("list", "--json"))
        result = run("list", "--json", LIBDECODE_KERNEL="force=nope*")
        self.assertEqual(self.json_of(result), kernels)
        self.assertIn(error, result.stderr)
        number = int(re.search(r"none of the (\d+) kernels at hand that policies choose among", result.stderr)[1])
        self.assertEqual(number, sum(kernel["name"].startswith(("gqa_", "mla_", "sparse_")) for kernel in kernels))
        self.assertLess(number, len(kernels))
        for arguments, variables in (([], {"LIBDECODE_KERNEL": "force=nope*"}), (["--policy", "force=nope*"], {})):
            report = self.json_of(run("doctor", "--json", *arguments, gpu=True, **variables), FAILED)
            self.assertEqual((report["well"], report["verified"]), (False, True))
            self.assertGreater(report["gpus"][0]["kernels"], 0)
            (advice,) = report["advice"]
            self.assertIn(f"{arguments[0] if arguments else 'LIBDECODE_KERNEL'}, item 1: 'nope*' matches none", advice)
        self.check_run(run("doctor", gpu=True, LIBDECODE_KERNEL="deny=*_c8_*"), PASSED)
        self.assertNotIn("item", self.check_run(run("list", LIBDECODE_KERNEL="deny=*_c8_*"), PASSED).stderr)


class Explain(CommandTest):
    def test_gpus_that_answer_alike_stand_together(self):
        text = run("explain", "--gpu", "all").stdout
        self.assertEqual(re.findall(r"^\S.*$", text, re.MULTILINE)[1:4], ["H200", "B200, B300", "RTX 5090, DGX Spark"])
        for name in ("RTX 5090", "DGX Spark"):
            self.assertRegex(text, rf"\n    {name}: predicted \d+\.\d us .* \[fitted to an H200\]\n")
        self.assertEqual(text.count("_r8_p16_c2_o0_sm120"), 1)
        # another choice for one of the two
        text = run("explain", "--gpu", "all", "--batch", 1, "--len", 8000, "--heads", "32/8").stdout
        choices = {gpu["gpu"]: gpu["kernel"] for gpu in self.json_of(run("explain", "--gpu", "all", "--json", "--batch", 1, "--len", 8000,
                                                                         "--heads", "32/8"))["gpus"]}
        together = "\nRTX 5090, DGX Spark\n" in text
        self.assertEqual(together, choices["RTX 5090"] == choices["DGX Spark"])

    def test_gpus_without_a_kernel_stand_together_where_the_reason_is_one(self):
        text = self.check_run(run("explain", "--gpu", "all", "--kv", "nvfp4", "--head-dim", 512), FAILED).stdout
        self.assertIn("\nB200, B300\n", text)

    def test_a_kernel_that_strict_refuses_is_shown_as_refused(self):
        arguments = ["explain", "--gpu", "sm_90", "--q-len", "16"]
        for strict in (False, True):
            text = self.check_run(run(*arguments, bundle=FORMATS, LIBDECODE_STRICT=str(int(strict))), FAILED if strict else PASSED).stdout
            self.assertIn("\n  gqa_decode_kvbf16_d128_r8_p16_c1_o1_sm90\n", text)
            refused = r"\n  refused: strict: the best kernel at hand, gqa_decode_\w+, reads the KV cache 8 times"
            (self.assertRegex if strict else self.assertNotRegex)(text, refused)
            _, text = run_on_terminal(*arguments, bundle=FORMATS, columns=200, LIBDECODE_STRICT=str(int(strict)))
            self.assertEqual("\033[32mgqa_decode_" in text, not strict)

    def test_predictions_for_gpus_that_the_model_was_not_fitted_to_are_marked(self):
        fitted = {gpu["gpu"]: gpu["model_fitted"] for gpu in self.json_of(run("explain", "--gpu", "all", "--json"))["gpus"]}
        self.assertEqual(fitted, {"H200": True, "B200": False, "B300": False, "RTX 5090": False, "DGX Spark": False})
        for name, mark in (("H200", False), ("H100", True), ("GH200", True)):
            text = run("explain", "--gpu", name).stdout
            self.assertEqual("[fitted to an H200]\n" in text and "\n[fitted to an H200]: " in text, mark)
            self.assertNotIn("measured", text)


class Contiguous(CommandTest):
    def measure(self, *options, **variables):
        return run("bench", "--heads", "4/2", "--head-dim", 64, "--contiguous", *options, gpu=True, bundle=FORMATS, **variables)

    def test_contiguous_kv_of_every_format_is_measured_and_right(self):
        for options, kv_bytes in [
            ([], 128), (["--kv", "fp16", "--layout", "nhd", "--q-len", "3"], 128), (["--kv", "fp8", "--window", "100000"], 64),
            (["--kv", "nvfp4", "--query", "e4m3", "--sf-layout", "v_interleave4"], 36), (["--kv", "nvfp4", "--query", "fp16", "--layout", "nhd"], 36),
        ]:
            with self.subTest(options):
                (row,) = self.json_of(self.measure("--lens", "10,70,0,31", *options, "--json"))["results"]
                self.assertIn(", contiguous, 4 requests of 0 to 70 tokens", row["problem"])
                self.assertEqual((row["page_size"], row["kv_capacity_tokens"] in (70, 72), row["requests_compared"]), (0, True, 1))
                self.assertEqual(row["kv_bytes"], 111 * 2 * 2 * kv_bytes)
                self.assertGreater(row["regions"], 1)

    def test_wrong_results_are_found(self):
        for defect, options in (("skip_token", []), ("causal", ["--q-len", "3"])):
            result = self.check_run(self.measure("--lens", "10,70", *options, HOST_GPU_DEFECT=defect), FAILED)
            self.assertIn("the result is ", result.stderr)

    def test_pages_are_named_where_there_are_none(self):
        for options in (["--set", "standard"], ["--skip-softmax", "1", "--quiet", "50"]):
            self.assertIn("--contiguous excludes", self.check_run(self.measure(*options), USAGE).stderr)

    def test_cold_start_and_explain_take_it(self):
        self.assertGreater(self.json_of(self.measure("--lens", "10,70", "--cold-start", "--json"))["first_result_ms"], 0)
        answer = self.json_of(run("explain", "--gpu", "sm_90", "--contiguous", "--head-dim", 64, "--json", bundle=FORMATS))
        self.assertIn("_p16_", answer["gpus"][0]["kernel"])
        self.assertIn("contiguous", answer["problem"])


class Plot(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "plot.svg"

    def test_a_plot_has_a_bar_for_every_row(self):
        kernels = "*_d128_r8_p16_c?_o0_*"
        report = self.json_of(run("bench", *SMALL, "--all-kernels", "--policy", "deny=*,prefer=" + kernels, "--plot", self.path, "--json", gpu=True))
        rows = report["results"]
        self.assertGreater(len(rows), 2)
        text = self.path.read_text(encoding="utf-8")
        drawing = xml.etree.ElementTree.fromstring(text)
        svg = "{http://www.w3.org/2000/svg}"
        bars = [(float(bar.get("x")), float(bar.get("width"))) for bar in drawing.iter(f"{svg}rect") if bar.get("class") == "rest"]
        self.assertEqual(len(bars), len(rows))
        longest = max(row["us"] for row in rows)
        for (_, width), row in zip(bars, rows, strict=True):
            self.assertAlmostEqual(width / max(width for _, width in bars), row["us"] / longest, places=2)
            for words in (row["kernel"], f"{row['us']:.1f} us", f"{row['percent_of_ceiling']:.1f} %"):
                self.assertIn(f">{words}</text>", text)
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertIn(report["gpu"], text)
        width = float(drawing.get("width"))
        for shape in drawing.iter(f"{svg}rect"):
            self.assertLessEqual(float(shape.get("x", 0)) + float(shape.get("width")), width)

    def test_without_a_ceiling_there_are_times_alone(self):
        attention_only = ":".join(map(str, sorted(bundles.glob("libdecode-*.bundle"))))
        self.check_run(run("bench", *SMALL, "--plot", self.path, gpu=True, bundle=attention_only), PASSED)
        text = self.path.read_text(encoding="utf-8")
        self.assertNotIn('class="ceiling"', text)
        self.assertEqual(text.count('class="rest"'), 1)

    def test_what_cannot_be_drawn_is_told(self):
        self.assertIn("cannot be written", self.check_run(run("bench", *SMALL, "--plot", "/nowhere/a.svg", gpu=True), FAILED).stderr)
        self.assertIn("--plot", self.check_run(run("bench", "--regret", "--plot", self.path, gpu=True), USAGE).stderr)
        result = self.check_run(run("bench", *SMALL, "--kernel", "*_sm100", "--plot", self.path, gpu=True), FAILED)
        self.assertIn("nothing was measured", result.stderr)


if __name__ == "__main__":
    unittest.main()
