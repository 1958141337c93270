# SPDX-License-Identifier: Apache-2.0
"""The rules of the source tree that a program can see: test_sources.py SOURCE_ROOT."""

import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
FOLDERS = ("include", "kernels", "loader", "gen", "tests", "packaging")
CODE = {".c", ".h", ".S", ".cu", ".cuh", ".cpp"}
MOST_LINES = 600  # of a source; data and documents may have more
DEVICE_LAYERS = ["ptx", "tile", "pipeline", "families"]  # includes point to the left only


def files(*suffixes):
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
             if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts]
    return [(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in found]


def without(pattern, text):
    """`text` with every match blanked out; its lines keep their numbers."""
    return re.sub(pattern, lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)


def lines_with(pattern, path, text):
    return [f"{path}:{number}" for number, line in enumerate(text.splitlines(), 1) if re.search(pattern, line)]


class SourcesTest(unittest.TestCase):
    def test_inline_assembly_and_architectures_are_named_in_ptx_only(self):
        for path, text in files(".cu", ".cuh"):
            if path.parts[1] != "ptx":
                code = without(r"/\*.*?\*/|//[^\n]*", text)
                self.assertEqual(lines_with(r"\b(asm|__asm__|__CUDA_ARCH\w*)\b", path, code), [])

    def test_includes_of_device_code_point_one_way(self):
        seen = 0
        for path, text in files(".cu", ".cuh"):
            if path.parts[0] != "kernels" or path.parts[1] not in DEVICE_LAYERS:
                continue
            layer = DEVICE_LAYERS.index(path.parts[1])
            for included in re.findall(r'#include "([a-z]+)/[^"]+"', text):
                seen += 1
                self.assertLessEqual(DEVICE_LAYERS.index(included), layer, f"{path} includes {included}/")
        self.assertGreater(seen, 0)

    def test_the_loader_sees_one_file_of_the_kernels(self):
        kernel_headers = {path.name for path, _ in files(".h", ".cuh") if path.parts[0] == "kernels"} - {"abi.h"}
        for path, text in files(".c", ".h"):
            if path.parts[0] in ("loader", "include"):
                included = {pathlib.PurePath(name).name for name in re.findall(r'#include "([^"]+)"', text)}
                self.assertEqual(included & kernel_headers, set(), path)

    def test_what_other_ctas_store_is_received_with_the_scope_of_the_cluster(self):
        def waits(path):
            return set(re.findall(r"mbarrier_try_wait\w*", path.read_text(encoding="utf-8")))

        self.assertEqual(waits(ROOT / "kernels/pipeline/cluster_rounds.cuh"), {"mbarrier_try_wait_cluster"})
        exchanges = sorted((ROOT / "kernels/pipeline").glob("*_exchange.cuh"))
        self.assertGreaterEqual(len(exchanges), 3)
        for path in exchanges:  # through cluster_rounds.cuh, or by themselves
            self.assertLessEqual(waits(path), {"mbarrier_try_wait_cluster"}, path)
        wrapper = (ROOT / "kernels/ptx/mbarrier.cuh").read_text(encoding="utf-8").partition("mbarrier_try_wait_cluster(")[2]
        self.assertIn("mbarrier.try_wait.parity.relaxed.cluster.", wrapper)
        self.assertIn("fence.acquire.sync_restrict::shared::cluster.cluster;", wrapper)

    def test_names_of_files_are_unique(self):
        paths = [path for path, _ in files(*CODE) if path.parts[0] != "tests"]
        names = collections.Counter(path.name for path in paths)
        self.assertEqual([name for name, count in names.items() if count > 1], [])

    def test_every_file_names_its_licence(self):
        for path, text in files(*CODE, ".py", ".toml", ".map"):
            self.assertIn("SPDX-License-Identifier: Apache-2.0", "\n".join(text.splitlines()[:2]), path)

    def test_no_source_is_too_long(self):
        scripts = [path for folder in (*FOLDERS, ".ci") for path in sorted((ROOT / folder).rglob("*"))
                   if path.is_file() and path.read_bytes().startswith(b"#!")]
        self.assertIn(ROOT / "packaging/run", scripts)
        lengths = {str(path): text.count("\n") for path, text in files(*CODE, ".py", ".toml", ".build")}
        lengths |= {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in (*scripts, *ROOT.glob("meson*"))}
        self.assertEqual({path: length for path, length in lengths.items() if length > MOST_LINES}, {})

    def test_headings_of_a_document_differ(self):
        documents = [*sorted(ROOT.glob("*.md")), *(ROOT / path for path, _ in files(".md"))]
        self.assertGreater(len(documents), 5)
        for path in documents:
            prose = re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))
            headings = collections.Counter(re.findall(r"^#+ (.*)$", prose, re.MULTILINE))
            self.assertEqual([heading for heading, count in headings.items() if count > 1], [], path)

    def test_no_tabs_and_no_space_at_the_end_of_a_line(self):
        for path, text in files(*CODE, ".py", ".toml", ".build"):
            self.assertEqual(lines_with(r"\t|\s$", path, text), [])

    def test_comments_in_c_are_block_comments(self):
        for path, text in files(".c", ".h"):
            code = without(r'"(\\.|[^"\\\n])*"', without(r"/\*.*?\*/", text))
            self.assertEqual(lines_with("//", path, code), [])


unittest.main(argv=sys.argv[:1])
