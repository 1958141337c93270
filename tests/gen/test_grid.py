# SPDX-License-Identifier: Apache-2.0
"""gen/grid.py: tiny grids in, the lines and manifests that must come out; and every mistake with the message that names it."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GRID = os.environ["GRID"]
ABI = os.environ["ABI_H"]

FAMILY = """
[family]
name = "tiny"
source = "tiny.cu"
[[axis]]
name = "kv_dtype"
prefix = "kv"
macro = "VARIANT_KV_DTYPE"
enumerator = "KERNEL_DTYPE_"
[[axis]]
name = "head_dim"
prefix = "d"
macro = "VARIANT_HEAD_DIM"
"""
SIMPLE_GRID = '[[grid]]\ntargets = ["sm90"]\nkv_dtype = ["bf16"]\nhead_dim = [64]\n'


class GridTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "tiny.cu").touch()

    def grid(self, *texts, options=()):
        files = []
        for number, text in enumerate(texts):
            files.append(self.folder / f"family{number}.toml")
            files[-1].write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, GRID, "--abi", ABI, *options, *files], capture_output=True, text=True, check=False)

    def names(self, *texts, options=()):
        result = self.grid(*texts, options=options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [line.split("\t")[0] for line in result.stdout.splitlines()]

    def refused(self, *texts, options=(), says):
        result = self.grid(*texts, options=options)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in says:
            self.assertIn(part, result.stderr)

    # ---- what comes out

    def test_a_line_has_name_target_source_and_nvcc_arguments(self):
        result = self.grid(FAMILY + '[[grid]]\ntargets = ["sm100", "sm90"]\nkv_dtype = ["e4m3"]\nhead_dim = [64, 128]\n')
        own = "-DVARIANT_NAME={} -DVARIANT_TARGET_SM={} -DVARIANT_MAY_SPILL=0 -Xptxas=--warn-on-spills"
        golden = [
            ("tiny_kve4m3_d128_sm100", "sm100", 100, "arch=compute_100f,code=sm_100f", 128),
            ("tiny_kve4m3_d128_sm90", "sm90", 90, "arch=compute_90a,code=sm_90a", 128),
            ("tiny_kve4m3_d64_sm100", "sm100", 100, "arch=compute_100f,code=sm_100f", 64),
            ("tiny_kve4m3_d64_sm90", "sm90", 90, "arch=compute_90a,code=sm_90a", 64),
        ]
        self.assertEqual(result.stdout.splitlines(), [
            f"{name}\t{target}\ttiny.cu\t-gencode={gencode} -DVARIANT_KV_DTYPE=KERNEL_DTYPE_E4M3 -DVARIANT_HEAD_DIM={head_dim} "
            + own.format(name, sm) for name, target, sm, gencode, head_dim in golden])

    def test_a_grid_may_have_a_source_of_its_own(self):
        (self.folder / "other.cu").touch()
        own = SIMPLE_GRID.replace("bf16", "fp16") + 'source = "other.cu"\n'
        lines = [line.split("\t") for line in self.grid(FAMILY + SIMPLE_GRID + own).stdout.splitlines()]
        self.assertEqual([line[:3] for line in lines], [["tiny_kvbf16_d64_sm90", "sm90", "tiny.cu"],
                                                        ["tiny_kvfp16_d64_sm90", "sm90", "other.cu"]])

    def test_a_table_has_an_initializer_of_every_variant(self):
        grid = '[[grid]]\ntargets = ["sm90", "sm120"]\nkv_dtype = ["e4m3"]\nhead_dim = [64]\n'
        result = self.grid(FAMILY + grid, options=["--table"])
        self.assertEqual(result.stdout.splitlines(), [
            f"{{.family = KERNEL_FAMILY_TINY, .target = {sm}, .kv_dtype = KERNEL_DTYPE_E4M3, .head_dim = 64}}," for sm in (120, 90)])

    def test_the_order_of_grids_and_families_does_not_matter(self):
        other = FAMILY.replace('"tiny"', '"other"')
        grid = '[[grid]]\ntargets = ["sm90"]\nkv_dtype = ["fp16"]\nhead_dim = [64]\n'
        one, two = FAMILY + SIMPLE_GRID + grid, other + SIMPLE_GRID
        swapped = FAMILY + grid + SIMPLE_GRID
        self.assertEqual(self.names(one, two), ["other_kvbf16_d64_sm90", "tiny_kvbf16_d64_sm90", "tiny_kvfp16_d64_sm90"])
        self.assertEqual(self.names(two, swapped), self.names(one, two))

    def test_a_family_without_axes_has_one_variant_per_target(self):
        family = '[family]\nname = "flat"\nsource = "tiny.cu"\n[[grid]]\ntargets = ["sm90", "sm120"]\n'
        self.assertEqual(self.names(family), ["flat_sm120", "flat_sm90"])

    def test_a_variant_that_may_spill_says_so_and_is_not_warned_about(self):
        result = self.grid(FAMILY + SIMPLE_GRID + 'may_spill = "cold path only"\n')
        self.assertIn("-DVARIANT_MAY_SPILL=1", result.stdout)
        self.assertNotIn("warn-on-spills", result.stdout)

    def test_a_manifest_names_images_kernels_gpus_and_spill_reasons(self):
        text = FAMILY + SIMPLE_GRID.replace('"sm90"', '"sm90", "sm120"') + 'may_spill = "cold path"\n'
        result = self.grid(text, options=["--manifest", "sm120"])
        self.assertEqual(result.stdout, "target\t120\nimage\ttiny_kvbf16_d64_sm120.fatbin\n"
                                        "kernel\ttiny_kvbf16_d64_sm120\tsm_120,sm_121\tcold path\n")

    # ---- options

    def test_one_gpu_of_a_family_builds_the_family_image_which_serves_them_all(self):
        text = FAMILY + SIMPLE_GRID.replace('"sm90"', '"sm90", "sm100"')
        self.assertEqual(self.names(text, options=["--gpu-archs", "sm_103"]), ["tiny_kvbf16_d64_sm100"])
        manifest = self.grid(text, options=["--gpu-archs", "sm_103", "--manifest", "sm100"]).stdout
        self.assertIn("kernel\ttiny_kvbf16_d64_sm100\tsm_100,sm_103\t\n", manifest)

    def test_the_gpus_that_the_images_serve_are_told(self):
        text = FAMILY + SIMPLE_GRID.replace('"sm90"', '"sm120", "sm90", "sm100"')
        for options, served in ((["--gpu-archs", "sm_90"], "sm_90"), (["--gpu-archs", "sm_121,sm_90"], "sm_90,sm_120,sm_121"),
                                (["--variants", "*_sm100"], "sm_100,sm_103"), ([], "sm_90,sm_100,sm_103,sm_120,sm_121")):
            with self.subTest(options):
                self.assertEqual(self.grid(text, options=[*options, "--served"]).stdout, served + "\n")

    def test_variants_are_chosen_by_a_comma_list_of_globs(self):
        text = FAMILY + SIMPLE_GRID.replace("[64]", "[64, 128, 256]")
        self.assertEqual(self.names(text, options=["--variants", "*_d64_*, tiny_kvbf16_d256_sm90"]),
                         ["tiny_kvbf16_d256_sm90", "tiny_kvbf16_d64_sm90"])

    def test_a_glob_that_matches_nothing_is_refused_and_shows_names(self):
        self.refused(FAMILY + SIMPLE_GRID, options=["--variants", "*,tiny_d65*"], says=["'tiny_d65*'", "tiny_kvbf16_d64_sm90"])

    def test_a_glob_matches_only_what_the_wanted_gpus_can_run(self):
        self.refused(FAMILY + SIMPLE_GRID.replace('"sm90"', '"sm90", "sm120"'),
                     options=["--variants", "*_sm90", "--gpu-archs", "sm_121"],
                     says=["'*_sm90'", "sm_121", "tiny_kvbf16_d64_sm120"])

    def test_an_unknown_gpu_is_refused(self):
        self.refused(FAMILY + SIMPLE_GRID, options=["--gpu-archs", "sm_80"], says=["'sm_80'", "sm_103"])

    # ---- the cover

    WIDE = ('[cover]\npairs = [["kv_dtype", "head_dim"]]\n'
            '[[axis]]\nname = "row_tile"\nprefix = "r"\nmacro = "VARIANT_ROW_TILE"\n'
            '[[grid]]\ntargets = ["sm90", "sm100"]\nkv_dtype = ["bf16", "fp16", "e4m3"]\nhead_dim = [64, 128, 256]\n'
            'row_tile = [8, 16, 32]\n'
            '[[grid]]\ntargets = ["sm90"]\nkv_dtype = ["nvfp4"]\nhead_dim = [64]\nrow_tile = [64]\nmay_spill = "why"\n')

    def test_a_cover_has_every_value_every_pair_and_every_grid_on_each_target(self):
        full, few = self.names(FAMILY + self.WIDE), self.names(FAMILY + self.WIDE, options=["--grid", "cover"])
        self.assertEqual(len(full), 2 * 27 + 1)
        self.assertEqual(len(few), 2 * 9 + 1) # as many as there are pairs
        self.assertLess(set(few), set(full))
        for target in ("sm90", "sm100"):
            parts = lambda names: {part for name in names if name.endswith("_" + target) for part in name.split("_")}
            pairs = lambda names: {tuple(name.split("_")[1:3]) for name in names if name.endswith("_" + target)}
            self.assertEqual(parts(few), parts(full))
            self.assertEqual(pairs(few), pairs(full))

    def test_a_cover_brings_other_values_together_where_it_costs_nothing(self):
        few = self.names(FAMILY + self.WIDE, options=["--grid", "cover"])
        meetings = {(name.split("_")[1], name.split("_")[3]) for name in few if name.endswith("_sm100")}
        self.assertEqual(len(meetings), 9) # every kv_dtype with every row_tile, though no pair asks for it

    def test_a_cover_without_pairs_has_every_value(self):
        grid = '[[grid]]\ntargets = ["sm90"]\nkv_dtype = ["bf16", "fp16"]\nhead_dim = [64, 128, 256]\n'
        few = self.names(FAMILY + grid, options=["--grid", "cover"])
        self.assertEqual(few, ["tiny_kvbf16_d256_sm90", "tiny_kvbf16_d64_sm90", "tiny_kvfp16_d128_sm90"])

    def test_a_cover_does_not_depend_on_the_gpus_and_globs_that_choose_of_it(self):
        few = self.names(FAMILY + self.WIDE, options=["--grid", "cover"])
        of_one = self.names(FAMILY + self.WIDE, options=["--grid", "cover", "--gpu-archs", "sm_100", "--variants", "*_d64_*"])
        self.assertEqual(of_one, [name for name in few if "_d64_" in name and name.endswith("_sm100")])

    def test_the_table_and_the_full_grid_do_not_know_of_the_cover(self):
        without = self.WIDE.replace('[cover]\npairs = [["kv_dtype", "head_dim"]]\n', "")
        self.assertEqual(self.names(FAMILY + self.WIDE), self.names(FAMILY + without))

    def test_mistakes_in_a_cover_are_named(self):
        for pairs in ('[["kv_dtype"]]', '[["kv_dtype", "kv_dtype"]]', '[["kv_dtype", "pages"]]', '"kv_dtype"', '["kv_dtype", "head_dim"]'):
            with self.subTest(pairs):
                self.refused(FAMILY + f"[cover]\npairs = {pairs}\n" + SIMPLE_GRID, says=["cover", "pairs", "kv_dtype, head_dim"])
        self.refused(FAMILY + "[cover]\n" + SIMPLE_GRID, says=["cover", "'pairs' is missing"])

    # ---- mistakes in a .toml

    def test_a_variant_that_is_declared_twice_is_refused(self):
        self.refused(FAMILY + SIMPLE_GRID + SIMPLE_GRID, says=["grid 2", "'tiny_kvbf16_d64_sm90'", "grid 1"])

    def test_two_families_of_one_name_are_refused(self):
        self.refused(FAMILY + SIMPLE_GRID, FAMILY + SIMPLE_GRID, says=["family0.toml", "family1.toml", "'tiny_kvbf16_d64_sm90'"])

    def test_malformed_toml_is_refused_with_its_line(self):
        self.refused(FAMILY + "[[grid]\n", says=["family0.toml", "line 14"])

    def test_mistakes_are_named(self):
        cases = {
            "missing axis": (SIMPLE_GRID.replace("head_dim = [64]\n", ""), ["grid 1", "'head_dim' is missing"]),
            "unknown axis": (SIMPLE_GRID + "pages = [1]\n", ["grid 1", "unknown key 'pages'", "head_dim"]),
            "unknown enumerator": (SIMPLE_GRID.replace("bf16", "bf17"), ["unknown kv_dtype 'bf17'", "bf16", "nvfp4"]),
            "half an enumerator": (SIMPLE_GRID.replace("bf16", "bf1"), ["unknown kv_dtype 'bf1'"]),
            "unknown target": (SIMPLE_GRID.replace("sm90", "sm80"), ["unknown target 'sm80'", "sm100"]),
            "no value": (SIMPLE_GRID.replace("[64]", "[]"), ["head_dim", "at least one"]),
            "no list": (SIMPLE_GRID.replace("[64]", "64"), ["head_dim", "list"]),
            "value twice": (SIMPLE_GRID.replace("[64]", "[64, 64]"), ["head_dim '64'", "2 times"]),
            "boolean": (SIMPLE_GRID.replace("[64]", "[true]"), ["head_dim", "True"]),
            "fraction": (SIMPLE_GRID.replace("[64]", "[6.5]"), ["head_dim", "6.5"]),
            "bad text": (SIMPLE_GRID.replace('"bf16"', '"bf 16"'), ["kv_dtype", "'bf 16'"]),
            "spill without reason": (SIMPLE_GRID + 'may_spill = ""\n', ["may_spill", "reason"]),
            "spill as a flag": (SIMPLE_GRID + "may_spill = true\n", ["may_spill", "reason"]),
            "spill reason of two lines": (SIMPLE_GRID + 'may_spill = "a\\nb"\n', ["may_spill", "one line"]),
            "unknown table": (SIMPLE_GRID + "[tuning]\n", ["unknown key 'tuning'"]),
        }
        for mistake, (grid, says) in cases.items():
            with self.subTest(mistake):
                self.refused(FAMILY + grid, says=["family0.toml", *says])

    def test_mistakes_in_family_and_axes_are_named(self):
        cases = {
            "no source of a grid": (FAMILY + SIMPLE_GRID + 'source = "absent.cu"\n', ["grid 1", "'absent.cu'"]),
            "no source": (FAMILY.replace("tiny.cu", "absent.cu"), ["'absent.cu'"]),
            "source elsewhere": (FAMILY.replace("tiny.cu", "../tiny.cu"), ["source", "'../tiny.cu'"]),
            "bad name": (FAMILY.replace('"tiny"', '"Tiny"'), ["name", "'Tiny'"]),
            "two axes of one prefix": (FAMILY.replace('"kv"', '"d"'), ["axis prefix 'd'"]),
            "two axes of one macro": (FAMILY.replace("VARIANT_HEAD_DIM", "VARIANT_KV_DTYPE"), ["axis macro 'VARIANT_KV_DTYPE'"]),
            "a macro of the build's own": (FAMILY.replace("VARIANT_HEAD_DIM", "VARIANT_NAME"), ["macro 'VARIANT_NAME'"]),
            "no such enumerators": (FAMILY.replace("KERNEL_DTYPE_", "KERNEL_TYPE_"), ["KERNEL_TYPE_"]),
            "axis without macro": (FAMILY.replace('macro = "VARIANT_HEAD_DIM"\n', ""), ["axis 2", "'macro' is missing"]),
        }
        for mistake, (family, says) in cases.items():
            with self.subTest(mistake):
                self.refused(family + SIMPLE_GRID, says=["family0.toml", *says])

    def test_a_family_without_a_grid_is_refused(self):
        self.refused(FAMILY, says=["'grid' is missing"])


if __name__ == "__main__":
    unittest.main()
