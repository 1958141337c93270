# SPDX-License-Identifier: Apache-2.0
"""The documents against the tree: test_readme.py SOURCE_ROOT GRID. What they quote and name must be there, and all of it."""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT, GRID = (pathlib.Path(argument) for argument in sys.argv[1:])
DOCUMENTS = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in [*ROOT.glob("*.md"), *ROOT.glob("packaging/doc/*.md")]}
README = DOCUMENTS[pathlib.Path("README.md")]


def text_of(*pattern):
    return "".join(path.read_text(encoding="utf-8") for glob in pattern for path in sorted(ROOT.glob(glob)))


class ReadmeTest(unittest.TestCase):
    def test_the_program_is_the_one_that_the_tests_run(self):
        program = (ROOT / "tests/example/decode_batch.c").read_text(encoding="utf-8")
        self.assertIn(f"```c\n{program}```\n", README)

    def test_the_python_program_is_the_one_that_the_tests_run(self):
        program = (ROOT / "packaging/python/examples/flashinfer_call.py").read_text(encoding="utf-8").split('"""\n')[-1].strip()
        self.assertIn(f"```python\n{program}\n```\n", README)

    def test_every_build_option_is_in_its_table(self):
        options = re.findall(r"^option\('(\w+)'", text_of("meson_options.txt"), re.MULTILINE)
        self.assertEqual(sorted(re.findall(r"^\| `-D(\w+)=", README, re.MULTILINE)), sorted(options))

    def test_every_environment_variable_is_in_its_table(self):
        variables = set(re.findall(r"\"(LIBDECODE_(?:BUNDLE_\w+|KERNEL|LOG|STRICT))\"", text_of("loader/env.c")))
        self.assertEqual(set(re.findall(r"^\| `(LIBDECODE_\w+)", README, re.MULTILINE)), variables)

    def test_every_subcommand_is_in_its_table(self):
        commands = re.findall(r"&(\w+)_command\b", text_of("loader/cli/commands.c"))
        self.assertEqual(sorted(re.findall(r"^\| `libdecode (\w+)", README, re.MULTILINE)), sorted(commands))

    def test_every_kernel_that_it_names_is_in_the_grid(self):
        grid = subprocess.run([sys.executable, GRID, "--abi", ROOT / "kernels/abi.h", *sorted(ROOT.glob("kernels/families/*.toml"))],
                              capture_output=True, text=True, check=True).stdout
        names = {line.split("\t")[0] for line in grid.splitlines()}
        used = set(re.findall(r"gqa_decode_kv\w+_sm\d+", README))
        self.assertTrue(used)
        self.assertEqual(used - names, set())

    def test_every_file_that_they_name_is_there(self):
        for document, text in DOCUMENTS.items():
            named = [ROOT / name for name in re.findall(r"`((?:kernels|loader|include|gen|tests|packaging)/[\w./-]*)`", text)]
            named += [ROOT / document.parent / name for name in re.findall(r"\]\(([\w./-]+)\)", text)]
            with self.subTest(document):
                self.assertEqual([name for name in named if not name.exists()], [])

    def test_the_drawing_shows_the_tables(self):
        drawn = subprocess.run([sys.executable, ROOT / "tests/bench/performance_plot.py"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(drawn, (ROOT / "packaging/doc/performance.svg").read_text(encoding="utf-8"))


unittest.main(argv=sys.argv[:1])
