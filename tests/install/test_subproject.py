# SPDX-License-Identifier: Apache-2.0
"""libdecode as a Meson subproject, found by its wrap file: linked into the parent's program, and nothing of it is installed.

test_subproject.py SOURCE_ROOT
"""

import pathlib
import shutil
import sys
import tempfile
import unittest

from installed_copy import CC, MESON, PROGRAM, run

ROOT = pathlib.Path(sys.argv.pop())
PARENT = """project('someone', 'c')
executable('program', 'program.c', dependencies: dependency('libdecode'), install: true)
"""


class SubprojectTest(unittest.TestCase):
    def do(self, *command, **environment):
        result = run(*command, **environment)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_it_is_linked_and_installs_nothing(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        parent = pathlib.Path(folder.name)
        (parent / "subprojects").mkdir()
        (parent / "subprojects/libdecode").symlink_to(ROOT)
        shutil.copy(ROOT / "packaging/libdecode.wrap", parent / "subprojects")
        shutil.copy(PROGRAM, parent / "program.c")
        (parent / "meson.build").write_text(PARENT, encoding="utf-8")

        build, staged = parent / "build", parent / "staged"
        self.do(*MESON, "setup", build, parent, "--prefix=/none", "--buildtype=plain", "--force-fallback-for=libdecode",
                "-Dlibdecode:kernels=disabled", CC=" ".join(CC))
        self.do("ninja", "-C", build)
        self.do(*MESON, "install", "-C", build, "--destdir", staged)
        installed = [path.relative_to(staged) for path in staged.rglob("*") if not path.is_dir()]
        self.assertEqual(installed, [pathlib.Path("none/bin/program")])
        said = self.do(staged / "none/bin/program")
        self.assertRegex(said, r"^\d+\.\d+\.\d+ 0\n$")


unittest.main()
