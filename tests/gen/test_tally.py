# SPDX-License-Identifier: Apache-2.0
"""gen/tally.py: tallies and a log of Ninja in, the table that must come out. What pack writes into a tally: test_pack.py."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TALLY = os.environ["TALLY"]
SM90 = "bundle\t90\t21000\t1184\t2048\nfamily\tgqa_decode\t90\t3\t2\t12000\t8000\nfamily\tread_ceiling\t90\t1\t1\t9160\t3052\n"
SM100 = "bundle\t100\t1234567\t1184\t0\nfamily\tgqa_decode\t100\t48\t48\t4600000\t1200000\n"
LOG = """# ninja log v5
8\t169\t1\tgen/pack.p/lift.c.o\t1
0\t90000\t1\tkernels/gqa_decode_a_sm90.fatbin\t1
0\t4400\t2\tkernels/gqa_decode_a_sm90.fatbin\t2
100\t2100\t3\tkernels/gqa_decode_b_sm90.fatbin\t3
0\t700\t4\tkernels/read_ceiling_sm90.fatbin\t4
0\t5000\t5\tkernels/gqa_decode_a_sm100.fatbin\t5
"""


class TallyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in {"sm90.tally": SM90, "sm100.tally": SM100, "log": LOG}.items():
            (self.folder / name).write_text(text, encoding="utf-8")

    def lines(self, *options):
        output = self.folder / "kernels.md"
        subprocess.run([sys.executable, TALLY, "--built-by", "nvcc 13.0.", *options, "--output", output,
                        self.folder / "sm90.tally", self.folder / "sm100.tally"], check=True)
        return output.read_text(encoding="utf-8").splitlines()

    def test_a_table_has_a_row_of_every_family_and_target(self):
        self.assertEqual(self.lines(), [
            "# The kernels of this build", "", "nvcc 13.0.", "",
            "| family | image | variants | images | bytes | compressed | an image |", "|---|---|---|---|---|---|---|",
            "| gqa_decode | sm_90 | 3 | 2 | 12,000 | 8,000 | 4,000 |",
            "| read_ceiling | sm_90 | 1 | 1 | 9,160 | 3,052 | 3,052 |",
            "| gqa_decode | sm_100 | 48 | 48 | 4,600,000 | 1,200,000 | 25,000 |", "",
            "* `libdecode-sm90.bundle`: 21,000 bytes, 7,000 an image: tables 1,184, dictionary 2,048, the rest are images.",
            "* `libdecode-sm100.bundle`: 1,234,567 bytes, 25,720 an image: tables 1,184, dictionary 0, the rest are images."])

    def test_seconds_are_of_the_last_compilation_and_unknown_where_one_is_missing(self):
        rows = [line for line in self.lines("--ninja-log", self.folder / "log") if line.startswith("|")]
        self.assertTrue(rows[0].endswith(" an image | compile s |"))
        self.assertEqual([row.split("|")[-2].strip() for row in rows[2:]], ["6", "1", "?"])


if __name__ == "__main__":
    unittest.main()
