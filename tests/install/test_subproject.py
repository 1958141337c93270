# SPDX-License-Identifier: Apache-2.0
"""libdecode as a Meson subproject, found by its wrap file: linked into the parent's program, and nothing of it is installed.

test_subproject.py SOURCE_ROOT
"""

import pathlib
import shutil
import sys
import tempfile
import unittest

from installed_copy import CC, MESON, PROGRAM, functions_of, names_in, run

ROOT = pathlib.Path(sys.argv.pop())
PARENT = """project('someone', 'c')
executable('program', 'program.c', dependencies: dependency('libdecode'), install: true)
"""


class SubprojectTest(unittest.TestCase):
    def do(self, *command, **environment):
        result = run(*command, **environment)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.parent = pathlib.Path(folder.name)
        self.build = self.parent / "build"
        (self.parent / "subprojects").mkdir()
        (self.parent / "subprojects/libdecode").symlink_to(ROOT)
        shutil.copy(ROOT / "packaging/libdecode.wrap", self.parent / "subprojects")
        shutil.copy(PROGRAM, self.parent / "program.c")
        (self.parent / "meson.build").write_text(PARENT, encoding="utf-8")

    def configure(self, **environment):
        self.do(*MESON, "setup", self.build, self.parent, "--prefix=/none", "--buildtype=plain", "--force-fallback-for=libdecode",
                "-Dlibdecode:kernels=disabled", CC=" ".join(CC), **environment)

    def test_it_is_linked_and_installs_nothing(self):
        self.configure()
        self.do("ninja", "-C", self.build)
        staged = self.parent / "staged"
        self.do(*MESON, "install", "-C", self.build, "--destdir", staged)
        installed = [path.relative_to(staged) for path in staged.rglob("*") if not path.is_dir()]
        self.assertEqual(installed, [pathlib.Path("none/bin/program")])
        said = self.do(staged / "none/bin/program")
        self.assertRegex(said, r"^\d+\.\d+\.\d+ 0\n$")
        self.assertEqual({path.name for path in self.build.rglob("*.a")}, {"libdecode.a", "libdecode_internal.a"}) # no command's

    def test_link_time_optimization_leaves_no_name_of_ours_in_the_archive(self):
        self.configure(CFLAGS="-flto")
        archive = self.build / "subprojects/libdecode/loader/libdecode.a"
        self.do("ninja", "-C", self.build, archive.relative_to(self.build))
        self.assertEqual(names_in(archive), functions_of(ROOT / "include"))


unittest.main()
