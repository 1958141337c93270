# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of tiny_kernel.cu by the grid's own arguments: the same bytes everywhere, and spills that are seen."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

NVCC = os.environ["NVCC"]
NVCC_FLAGS = os.environ["NVCC_FLAGS"].split()
PACK = os.environ["PACK"]
BUILT = pathlib.Path(os.environ["TINY_IMAGES"])  # the folder where the build put them
SOURCE = pathlib.Path(__file__).parent / "tiny_kernel.cu"
GRID_COMMAND = [sys.executable, os.environ["GRID"], "--abi", os.environ["ABI_H"], SOURCE.with_suffix(".toml")]


def variants():
    lines = subprocess.run(GRID_COMMAND, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split("\t")[0]: line.split("\t")[3].split() for line in lines}


def compile_image(arguments, output):
    command = [NVCC, *NVCC_FLAGS, *arguments, "-o", output, SOURCE]
    return subprocess.run(command, cwd=output.parent, capture_output=True, text=True, check=False)


class ToolkitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def pack(self, images, target, manifest=None):
        if manifest is None:
            command = [*GRID_COMMAND, "--manifest", target]
            manifest = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (self.folder / "manifest").write_text(manifest, encoding="utf-8")
        result = subprocess.run([PACK, "--manifest", self.folder / "manifest", "--images", images, "--toolkit", "13.0",
                                 "--level", "19", "--output", self.folder / "out.bundle"],
                                capture_output=True, text=True, check=False)
        return result, (self.folder / "out.bundle").read_bytes() if result.returncode == 0 else None

    def test_images_and_bundles_have_the_same_bytes_in_another_folder(self):
        elsewhere = self.folder / "a folder" / "elsewhere"
        elsewhere.mkdir(parents=True)
        for name, arguments in variants().items():
            result = compile_image(arguments, elsewhere / f"{name}.fatbin")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual((elsewhere / f"{name}.fatbin").read_bytes(), (BUILT / f"{name}.fatbin").read_bytes(), name)
        for target in ("sm90", "sm100", "sm120"):
            result, bundle = self.pack(BUILT, target)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(self.pack(elsewhere, target)[1], bundle)

    def test_a_kernel_that_spills_does_not_compile_unless_declared(self):
        (name, arguments), = ((name, arguments) for name, arguments in variants().items() if "spills1" in name)
        self.assertNotIn("-Xptxas=--warn-on-spills", arguments)
        result = compile_image([*arguments, "-Xptxas=--warn-on-spills"], self.folder / f"{name}.fatbin")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("spilled to local memory", result.stdout + result.stderr)

    def test_a_kernel_that_spills_is_not_packed_unless_declared(self):
        name = "read_ceiling_tiny_spills1_sm90"
        result, _ = self.pack(BUILT, "sm90", f"target\t90\nimage\t{name}.fatbin\nkernel\t{name}\tsm_90\t\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"{name} spills", result.stderr)


if __name__ == "__main__":
    unittest.main()
