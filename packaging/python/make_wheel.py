# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of the package, the library and the bundles of one build: make_wheel.py --help.

A wheel is a zip file, so this is all that it takes; nothing is asked of the network. Same inputs, same bytes: the time in it is
SOURCE_DATE_EPOCH, else 1980.

The tag is what the library's ELF file says: manylinux_2_N of the newest glibc symbol that it needs, for its processor. A library
that needs anything but the C library at run time is refused, since that is what the tag promises.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import struct
import sys
import time
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parent / "libdecode"
ROOT = PACKAGE.parents[2]
# Of the manylinux policies: what every system has beside the loader itself.
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
                    "ld-linux-aarch64.so.1"}
OLDEST_GLIBC = {"x86_64": 17, "aarch64": 17}  # manylinux_2_17 is the oldest that pip knows by this scheme
MACHINES = {62: "x86_64", 183: "aarch64"}
SHT_DYNAMIC, SHT_GNU_VERNEED, DT_NEEDED = 6, 0x6FFFFFFE, 1
EARLIEST = 315532800  # 1980-01-01, with which zip's calendar begins


class WheelError(Exception):
    """What is wrong with the inputs, in one line."""


class Elf:
    """Machine, needed libraries and needed symbol versions of a 64-bit shared library."""

    def __init__(self, path):
        self.data = pathlib.Path(path).read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01" or len(self.data) < 64:
            raise WheelError(f"{path} is no little-endian 64-bit ELF file")
        number, = struct.unpack_from("<H", self.data, 18)
        if number not in MACHINES:
            raise WheelError(f"{path} is for ELF machine {number}: wheels are made for {', '.join(MACHINES.values())}")
        self.machine = MACHINES[number]
        start, = struct.unpack_from("<Q", self.data, 40)
        size, count = struct.unpack_from("<HH", self.data, 58)
        # (type, offset, bytes, linked section, count of entries)
        headers = [struct.unpack_from("<4xI16xQQII", self.data, start + index * size) for index in range(count)]
        self.sections = headers
        self.needed = [self.text(link, value) for kind, offset, length, link, _ in headers if kind == SHT_DYNAMIC
                       for tag, value in struct.iter_unpack("<qQ", self.data[offset : offset + length]) if tag == DT_NEEDED]
        self.versions = sorted({version for section in headers if section[0] == SHT_GNU_VERNEED
                                for version in self.needed_versions(section)})

    def text(self, section, at):
        start = self.sections[section][1] + at
        return self.data[start : self.data.index(b"\0", start)].decode()

    def needed_versions(self, section):
        """Of .gnu.version_r: chains of libraries, each with a chain of versions."""
        at = section[1]
        while True:
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + first
            for _ in range(count):
                _, _, _, name, step = struct.unpack_from("<IHHII", self.data, entry)
                yield self.text(section[3], name)
                entry += step
            if following == 0:
                return
            at += following


def platform_tag(path):
    """manylinux_2_N_MACHINE."""
    elf = Elf(path)
    foreign = sorted(set(elf.needed) - SYSTEM_LIBRARIES)
    if foreign:
        raise WheelError(f"{path} needs {', '.join(foreign)}, which manylinux does not promise: configure with -Dprefer_static=true")
    newest = OLDEST_GLIBC[elf.machine]
    for version in elf.versions:
        found = re.fullmatch(r"GLIBC_2\.(\d+)(?:\.\d+)?", version)
        if not found:
            raise WheelError(f"{path} needs the symbol version {version}, which is none of glibc 2")
        newest = max(newest, int(found[1]))
    return f"manylinux_2_{newest}_{elf.machine}"


def version_of_package():
    return re.search(r'^__version__ = "([^"]+)"', (PACKAGE / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)[1]


def metadata(version):
    description = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    return (f"Metadata-Version: 2.1\nName: libdecode\nVersion: {version}\n"
            "Summary: LLM decode attention by kernels compiled ahead of time\nLicense: Apache-2.0\n"
            "Classifier: Operating System :: POSIX :: Linux\nClassifier: Programming Language :: Python :: 3\n"
            "Requires-Python: >=3.10\nDescription-Content-Type: text/markdown\n\n" + description)


def contents(version, tag, library, bundles, licences):
    """[(name in the wheel, bytes, mode, whether to compress)]."""
    info = f"libdecode-{version}.dist-info"
    files = [(f"libdecode/{path.name}", path.read_bytes(), 0o644, True) for path in sorted(PACKAGE.iterdir())
             if path.suffix in (".py", ".md") or path.name == "py.typed"]
    files.append(("libdecode/lib/libdecode.so.0", library.read_bytes(), 0o755, True))
    files += [(f"libdecode/bundles/{path.name}", path.read_bytes(), 0o644, False) for path in sorted(bundles)]  # compressed already
    files += [(f"{info}/licenses/{name}", path.read_bytes(), 0o644, True) for name, path in sorted(licences)]
    files.append((f"{info}/METADATA", metadata(version).encode(), 0o644, True))
    wheel = f"Wheel-Version: 1.0\nGenerator: libdecode make_wheel\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    files.append((f"{info}/WHEEL", wheel.encode(), 0o644, True))
    rows = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
            for name, data, _, _ in files]
    files.append((f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,\n"]).encode(), 0o644, True))
    return files


def write(path, files):
    seconds = max(int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST)), EARLIEST)
    moment = time.gmtime(seconds)[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data, mode, compress in files:
            entry = zipfile.ZipInfo(name, moment)
            entry.create_system, entry.external_attr = 3, (0o100000 | mode) << 16  # 3: Unix, whatever this runs on
            entry.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            archive.writestr(entry, data)


def make(library, bundles, licences, output):
    """Returns the path of the wheel."""
    version, tag = version_of_package(), platform_tag(library)
    path = output / f"libdecode-{version}-py3-none-{tag}.whl"
    output.mkdir(parents=True, exist_ok=True)
    write(path, contents(version, tag, library, bundles, licences))
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True, metavar="FILE", help="libdecode.so.0")
    parser.add_argument("--bundles", type=pathlib.Path, metavar="FOLDER", help="whose *.bundle go into the wheel")
    parser.add_argument("--licence", action="append", default=[], metavar="NAME=FILE", help="of code that is linked into the library")
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args()
    licences = [("LICENSE", ROOT / "LICENSE")]
    for text in arguments.licence:
        name, _, path = text.partition("=")
        licences.append((name, pathlib.Path(path)))
    try:
        bundles = list(arguments.bundles.glob("*.bundle")) if arguments.bundles else []
        if arguments.bundles and not bundles:
            raise WheelError(f"{arguments.bundles} holds no *.bundle")
        print(make(arguments.library, bundles, licences, arguments.output))
    except (WheelError, OSError) as error:
        sys.exit(f"make_wheel.py: {error}")


if __name__ == "__main__":
    main()
