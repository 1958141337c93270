# SPDX-License-Identifier: Apache-2.0
"""The rules of the Debian and RPM packages, and of the cross build, against the tree: test_packages.py SOURCE_ROOT PROJECT_VERSION SOVERSION."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from installed_copy import TAGS

ROOT, VERSION, SOVERSION = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
DEBIAN = ROOT / "packaging/debian"


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


CONTROL, RULES = text_of("packaging/debian/control"), text_of("packaging/debian/rules")
SPEC, RUN = text_of("packaging/rpm/libdecode.spec"), text_of("packaging/run")
PACKAGES = re.findall(r"^Package: (\S+)$", CONTROL, re.MULTILINE)


class PackagesTest(unittest.TestCase):
    def test_every_tag_is_in_one_debian_package(self):
        tags_of = dict(re.findall(r"^tags_(\S+) = (\S+)$", RULES, re.MULTILINE))
        self.assertEqual(sorted(tags_of), sorted(PACKAGES))
        given = [tag for tags in tags_of.values() for tag in tags.split(",")]
        self.assertEqual(sorted(given), sorted(set(TAGS) - {"doc"}))  # the table of the kernels goes to each package of kernels
        self.assertIn("obj/kernels/kernels.md", RULES)

    def test_every_tag_is_in_one_rpm_package(self):
        calls = re.findall(r"^install_tags (\S+) (\S+)$", SPEC, re.MULTILINE)
        given = [tag for _, tags in calls for tag in tags.split(",")]
        self.assertEqual(sorted(given), sorted(set(TAGS) - {"doc"}))
        listed = re.findall(r"^%files\b.* -f (\S+)\.files$", SPEC, re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(package for package, _ in calls))
        self.assertEqual(SPEC.count("%doc obj/kernels/kernels.md"), 3)

    def test_both_make_the_same_packages(self):
        of_rpm = {"libdecode"} | {name if dash else f"libdecode-{name}"
                                  for dash, name in re.findall(r"^%package +(-n +)?(\S+)$", SPEC, re.MULTILINE)}
        names = {f"libdecode{SOVERSION}": "libdecode", "libdecode-dev": "libdecode-devel"}
        self.assertEqual(of_rpm, {names.get(package, package) for package in PACKAGES})

    def test_they_have_the_version_of_the_project(self):
        self.assertRegex(text_of("packaging/debian/changelog"), rf"\Alibdecode \({re.escape(VERSION)}-\d+\) ")
        self.assertEqual(re.findall(r"^Version: +(\S+)$", SPEC, re.MULTILINE), [VERSION])
        self.assertRegex(SPEC, rf"(?m)^\* .* - {re.escape(VERSION)}-\d+$")
        self.assertIn(f"Package: libdecode{SOVERSION}\n", CONTROL)
        self.assertIn(f"%dir %{{_datadir}}/%{{name}}/{SOVERSION}\n", SPEC)

    def test_the_symbols_are_the_nodes_of_the_version_script(self):
        nodes = re.findall(r"^(\w+) \{", text_of("loader/libdecode.map"), re.MULTILINE)
        first, *lines = text_of(f"packaging/debian/libdecode{SOVERSION}.symbols").splitlines()
        self.assertEqual(first, f"libdecode.so.{SOVERSION} libdecode{SOVERSION} #MINVER#")
        self.assertEqual([re.fullmatch(r" \(symver\)(\w+) [\d.]+", line)[1] for line in lines], nodes)

    def test_they_need_what_the_build_needs(self):
        meson = re.search(r"meson_version: '>=([\d.]+)'", text_of("meson.build"))[1]
        python = re.search(r"version_compare\('<([\d.]+)'\)", text_of("meson.build"))[1]
        zstd = re.search(r"dependency\('libzstd', version: '>=([\d.]+)'", text_of("meson.build"))[1]
        for line in (f"meson (>= {meson})", f"python3 (>= {python})", f"libzstd-dev (>= {zstd})"):
            self.assertIn(line, CONTROL)
        for line in (f"meson >= {meson}", f"python3-devel >= {python}", f"pkgconfig(libzstd) >= {zstd}"):
            self.assertIn(f"BuildRequires:  {line}\n", SPEC)

    def test_every_file_that_they_take_is_there(self):
        lists = [path for kind in ("docs", "examples") for path in sorted(DEBIAN.glob(f"*.{kind}"))]
        self.assertTrue(lists)
        self.assertEqual({path.stem for path in lists} - set(PACKAGES), set())
        patterns = [line for path in lists for line in path.read_text(encoding="utf-8").split()]
        patterns += [name for names in re.findall(r"^%(?:doc|license) (.*)$", SPEC, re.MULTILINE) for name in names.split()]
        self.assertEqual([pattern for pattern in patterns if not list(ROOT.glob(pattern)) and not pattern.startswith("obj/")], [])

    def test_a_gpu_that_kernels_are_built_for_has_its_package(self):
        grid = subprocess.run([sys.executable, ROOT / "gen/grid.py", "--abi", ROOT / "kernels/abi.h",
                               *sorted(ROOT.glob("kernels/families/*.toml"))], capture_output=True, text=True, check=True).stdout
        targets = {line.split("\t")[1] for line in grid.splitlines()}
        self.assertEqual({f"libdecode-kernels-{target}" for target in targets},
                         {package for package in PACKAGES if package.startswith("libdecode-kernels-")})

    def test_a_cross_build_takes_libraries_of_this_machine_and_leaves_no_way_to_them(self):
        values = dict(re.findall(r"^(\w+) = (.*)$", text_of("packaging/arm64.ini"), re.MULTILINE))
        self.assertRegex(values["c_link_args"], "'-Wl,-rpath-link,' [+] libraries")
        self.assertNotIn("-rpath,", values["c_link_args"])

    def test_what_is_cross_built_runs_with_the_libraries_of_its_machine_after_those_of_the_test(self):
        values = dict(re.findall(r"^(\w+) = (.*)$", text_of("packaging/arm64.ini"), re.MULTILINE))
        wrapper = ast.literal_eval(values["exe_wrapper"].replace("libraries]", "'/arm64/lib']"))
        with tempfile.TemporaryDirectory() as folder:
            qemu = pathlib.Path(folder) / "qemu-aarch64"
            qemu.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
            qemu.chmod(0o755)
            for given, searched in ((None, "/arm64/lib"), ("/fake:/other", "/fake:/other:/arm64/lib")):
                environment = {"PATH": f"{folder}:{os.environ['PATH']}"} | ({"LD_LIBRARY_PATH": given} if given else {})
                words = subprocess.run([*wrapper, "a test", "b"], env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
                self.assertEqual(words, ["-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={searched}", "a test", "b"])

    @unittest.skipIf(shutil.which("make") is None, "no make on PATH")
    def test_zsh_of_debian_finds_the_completion(self):
        with tempfile.TemporaryDirectory() as folder:
            zsh = pathlib.Path(folder) / "debian/libdecode-tools/usr/share/zsh"
            move = ["make", "-C", folder, "-f", DEBIAN / "rules", "execute_after_dh_auto_install"]
            (zsh / "site-functions").mkdir(parents=True)
            (zsh / "site-functions/_libdecode").touch()
            for _ in range(2):  # also where there is nothing to move
                result = subprocess.run(move, capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual([path.relative_to(zsh) for path in zsh.rglob("*") if not path.is_dir()],
                             [pathlib.Path("vendor-completions/_libdecode")])
            self.assertFalse((zsh / "site-functions").exists())

    @unittest.skipIf(shutil.which("shellcheck") is None, "no shellcheck on PATH")
    def test_the_script_that_builds_them_is_sound(self):
        result = subprocess.run(["shellcheck", ROOT / "packaging/run"], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_every_action_of_the_script_is_in_its_usage(self):
        actions = re.findall(r"^    ([\w-]+)\) action=\w+ ;;$", RUN, re.MULTILINE)
        self.assertIn("deb", actions)
        self.assertEqual(re.findall(r"^(?:usage:|      ) packaging/run ([\w-]+)", RUN, re.MULTILINE), actions)
        self.assertTrue(os.access(ROOT / "packaging/run", os.X_OK) and os.access(DEBIAN / "rules", os.X_OK))


unittest.main(argv=sys.argv[:1])
