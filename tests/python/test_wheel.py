# SPDX-License-Identifier: Apache-2.0
"""A wheel: what is in it, that it is the same twice, and that it works in an environment that has nothing else of ours."""

import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

import skip  # noqa: F401
import numpy

ROOT = pathlib.Path(os.environ["SOURCE_ROOT"])
MAKE = ROOT / "packaging/python/make_wheel.py"
LIBRARY = pathlib.Path(os.environ["STATIC_LIBRARY"])
PROGRAM = """
import pathlib, sys
import numpy
import libdecode
assert pathlib.Path(libdecode.__file__).is_relative_to(sys.prefix), libdecode.__file__
from libdecode.library import loaded_file
assert pathlib.Path(loaded_file()) == pathlib.Path(libdecode.__file__).parent / "lib/libdecode.so.0", loaded_file()
cache = numpy.ones((4, 2, 16, 64), numpy.float16)
cache[:, :, :, 0] = numpy.arange(16)
out = libdecode.trtllm_batch_decode_with_kv_cache(
    numpy.zeros((1, 8, 64), numpy.float16), (cache, cache), None, numpy.zeros((1, 4), numpy.int32), numpy.array([10], numpy.int32), 10)
assert (out[..., 0] == 4.5).all() and (out[..., 1:] == 1).all(), out
problem = libdecode.Problem(query_dtype="bf16", batch_size=1, num_qo_heads=8, num_kv_heads=2, head_dim=64, page_size=16, max_seq_len=64)
print(libdecode.explain(problem, "sm_90").chosen, libdecode.default_context().bundles()[0].path)
"""
# What was installed, against its own record.
INSTALLED = """
import base64, hashlib, importlib.metadata
distribution = importlib.metadata.distribution("libdecode")
assert distribution.metadata["Requires-Python"] == ">=3.10" and not distribution.requires
assert not any(file.hash is None and file.suffix not in (".pyc", "") and file.name != "RECORD" for file in distribution.files)
for file in distribution.files:
    if file.hash is not None:
        digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
        assert file.hash.value == base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), file
assert distribution.version == __import__("libdecode").version()
"""


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LIBDECODE_", "PYTHON", "PIP_"))}
    return subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, cwd="/")


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.bundles = cls.folder / "bundles"
        cls.bundles.mkdir()
        subprocess.run([os.environ["LIBDECODE_WRITE_BUNDLES"], cls.bundles], check=True)
        cls.wheel = cls.make("first")

    @classmethod
    def make(cls, name, *options, **variables):
        result = run(sys.executable, MAKE, "--library", LIBRARY, "--bundles", cls.bundles, "--output", cls.folder / name,
                     "--licence", f"zstd={ROOT / 'LICENSE'}", *options, **variables)
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        return pathlib.Path(result.stdout.strip())

    def test_it_is_installed_offline_and_decodes(self):
        environment = self.folder / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin/python"
        result = run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", self.wheel)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        result = run(python, "-c", PROGRAM, PYTHONPATH=str(pathlib.Path(numpy.__file__).parents[1]))
        self.assertEqual(result.returncode, 0, result.stderr)
        kernel, bundle = result.stdout.split()
        self.assertRegex(kernel, "^gqa_decode_kvbf16_d64_.*_sm90$")
        self.assertIn("/libdecode/bundles/", bundle)
        self.assertTrue(pathlib.Path(bundle).is_relative_to(environment.resolve()))
        result = run(python, "-m", "libdecode", "doctor", "--json")
        self.assertIn('"verified": true', result.stdout)
        result = run(python, "-m", "libdecode", "list", "*_d64_*_sm90")
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run(python, "-c", INSTALLED)
        self.assertEqual(result.returncode, 0, result.stderr)
        for command, said in ((["check"], "No broken requirements found."), (["uninstall", "--yes", "libdecode"], "Successfully uninstalled")):
            result = run(python, "-m", "pip", *command, "--disable-pip-version-check")
            self.assertIn(said, result.stdout, result.stderr)
        self.assertEqual([path for path in environment.rglob("*libdecode*") if "__pycache__" not in path.parts], [])

    def test_a_library_for_arm64(self):
        compiler = shutil.which("aarch64-linux-gnu-gcc")
        if compiler is None:
            self.skipTest("no aarch64-linux-gnu-gcc")
        library, foreign = self.folder / "libdecode.so.0", self.folder / "libforeign.so"
        source = self.folder / "decode.c"
        source.write_text("#include <stdlib.h>\nvoid *decode(void) { return malloc(1); }\n")
        for output in (library, foreign):
            needed = ["-Wl,--no-as-needed", library] if output == foreign else []
            subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libdecode.so.0", "-o", output, source, *needed], check=True)
        result = run(sys.executable, MAKE, "--library", library, "--bundles", self.bundles, "--output", self.folder / "arm64")
        self.assertEqual(result.returncode, 0, result.stderr)
        wheel = pathlib.Path(result.stdout.strip())
        self.assertEqual(wheel.name, "libdecode-0.1.0-py3-none-manylinux_2_17_aarch64.whl")
        with zipfile.ZipFile(wheel) as archive:
            self.assertIn("Tag: py3-none-manylinux_2_17_aarch64\n", archive.read("libdecode-0.1.0.dist-info/WHEEL").decode())
        result = run(sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", self.folder / "target", wheel)
        self.assertEqual("is not a supported wheel on this platform" in result.stderr, os.uname().machine != "aarch64", result.stderr)
        result = run(sys.executable, MAKE, "--library", foreign, "--output", self.folder / "arm64")
        self.assertIn("needs libdecode.so.0, which manylinux does not promise", result.stderr)

    def test_name_and_contents(self):
        self.assertRegex(self.wheel.name, r"^libdecode-0\.1\.0-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl$")
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            info = "libdecode-0.1.0.dist-info"
            record = archive.read(f"{info}/RECORD").decode().splitlines()
            for line in record[:-1]:
                name, digest, size = line.rsplit(",", 2)
                data = archive.read(name)
                self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode())
                self.assertEqual(int(size), len(data))
            self.assertEqual([line.rsplit(",", 2)[0] for line in record], names)
            tag = self.wheel.stem.split("-", 2)[2]
            self.assertIn(f"Tag: {tag}\n", archive.read(f"{info}/WHEEL").decode())
            self.assertEqual(archive.read("libdecode/lib/libdecode.so.0"), LIBRARY.read_bytes())
        sources = {f"libdecode/{path.name}" for path in (ROOT / "packaging/python/libdecode").iterdir() if path.is_file()}
        bundles = {f"libdecode/bundles/{path.name}" for path in self.bundles.glob("*.bundle")}
        rest = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE", "licenses/zstd")}
        self.assertEqual(set(names), sources | bundles | rest | {"libdecode/lib/libdecode.so.0"})

    def test_same_inputs_same_bytes(self):
        for path in self.bundles.glob("*.bundle"):
            os.utime(path, (1e9, 1e9))
        self.assertEqual(self.make("second").read_bytes(), self.wheel.read_bytes())
        dated = self.make("third", SOURCE_DATE_EPOCH="1700000000")
        self.assertNotEqual(dated.read_bytes(), self.wheel.read_bytes())
        with zipfile.ZipFile(dated) as archive:
            self.assertEqual({entry.date_time for entry in archive.infolist()}, {(2023, 11, 14, 22, 13, 20)})

    def test_tag_is_that_of_the_newest_symbol(self):
        text = run("readelf", "-V", LIBRARY).stdout
        newest = max(int(word.partition("GLIBC_2.")[2].split()[0].partition(".")[0]) for word in text.splitlines() if "Name: GLIBC_2." in word)
        self.assertIn(f"manylinux_2_{max(newest, 17)}_", self.wheel.name)

    def test_what_is_refused(self):
        empty = self.folder / "empty"
        empty.mkdir()
        text = self.folder / "text"
        text.write_text("no library " * 10)
        for words, options in (("is no little-endian 64-bit ELF file", ["--library", text]),
                               ("holds no \\*.bundle", ["--library", LIBRARY, "--bundles", empty]),
                               ("needs libzstd.so.1, which manylinux does not promise", ["--library", os.environ["LIBDECODE_LIBRARY"]])):
            result = run(sys.executable, MAKE, "--output", self.folder / "none", *options)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, words)
        self.assertFalse((self.folder / "none").exists())


unittest.main()
