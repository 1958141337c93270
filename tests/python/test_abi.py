# SPDX-License-Identifier: Apache-2.0
"""The mirror of the public headers against the C compiler: sizes, offsets, enumerators, functions. Arguments: none; CC_COMMAND,
INCLUDE_DIR."""

import ctypes
import inspect
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

from libdecode import abi, errors

INCLUDE = pathlib.Path(os.environ["INCLUDE_DIR"])
HEADERS = "".join(path.read_text(encoding="utf-8") for path in sorted(INCLUDE.glob("*.h")))
HEADER = re.sub(r"/\*.*?\*/", "", HEADERS, flags=re.DOTALL)


def of_compiler(lines):
    """What a C program with these statements prints."""
    program = ["#include <stdio.h>", "#include <libdecode.h>", "int main(void) {", *lines, "return 0; }"]
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "layout.c"), pathlib.Path(folder, "layout")
        source.write_text("\n".join(program), encoding="utf-8")
        subprocess.run([*os.environ["CC_COMMAND"].split(), "-I", INCLUDE, "-o", binary, source], check=True)
        return subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()


def enumerators(enum):
    body = re.search(rf"typedef enum {enum} {{(.*?)}} {enum};", HEADER, re.DOTALL)[1]
    return re.findall(r"(LIBDECODE_\w+) =", body)


class MirrorTest(unittest.TestCase):
    def test_every_struct_of_the_header_has_a_mirror(self):
        structs = set(re.findall(r"typedef struct (libdecode_\w+) {", HEADER))
        self.assertEqual(set(abi.C_NAMES.values()), structs)

    def test_sizes_and_offsets_are_those_of_the_compiler(self):
        lines, ours = [], []
        for mirror, name in abi.C_NAMES.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            ours.append(f"{name} {ctypes.sizeof(mirror)}")
            for field, *_ in mirror._fields_:
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
                ours.append(f"{name}.{field} {getattr(mirror, field).offset} {getattr(mirror, field).size}")
        self.assertEqual(of_compiler(lines), ours)

    def test_no_field_is_missing(self):
        # sizes agree, and there is no padding (tests/unit/header_layout.c): so fields that add up to the size are all of them
        for mirror, name in abi.C_NAMES.items():
            self.assertEqual(sum(getattr(mirror, field).size for field, *_ in mirror._fields_), ctypes.sizeof(mirror), name)

    def test_signedness_and_kind_of_the_fields(self):
        lines, ours = [], []
        for mirror, name in abi.C_NAMES.items():
            for field, kind in mirror._fields_:
                if kind in (ctypes.c_float, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64):
                    lines.append(f"{{ {name} s; s.{field} = 0; s.{field} = s.{field} - 1; __typeof__(s.{field}) half = "
                                 f"(__typeof__(s.{field}))0.5; printf(\"{name}.{field} %d %d\\n\", s.{field} < 0, half > 0); }}")
                    ours.append(f"{name}.{field} {int(kind(-1).value < 0)} {int(kind is ctypes.c_float)}")
        # the type behind an enum is the compiler's choice
        enums = [f"{name}.{field}" for name, field in re.findall(r"(libdecode_\w+)\.(\w+)", "\n".join(ours))
                 if re.search(rf"libdecode_(dtype|op|kv_layout|sf_layout|kv_row_format|log_level) (\w+, )*{field}\b", HEADER)]
        said = [line for line in of_compiler(lines) if line.split()[0] not in enums]
        self.assertEqual(said, [line for line in ours if line.split()[0] not in enums])

    def test_packed_tensors_are_the_bytes_of_the_struct(self):
        numbers = [7 + index for index in range(len(abi.Tensors._fields_) - 1)]
        tensors = abi.Tensors(**dict(zip([name for name, _ in abi.Tensors._fields_[1:]], numbers)))
        self.assertEqual(abi.TENSORS_STRUCT.pack(abi.TENSORS_BYTES, *numbers), bytes(tensors))
        self.assertEqual(struct.calcsize(abi.TENSORS_STRUCT.format), ctypes.sizeof(abi.Tensors))

    def test_enumerators_are_those_of_the_compiler(self):
        enums = ["libdecode_dtype", "libdecode_op", "libdecode_kv_layout", "libdecode_sf_layout", "libdecode_kv_row_format", "libdecode_features",
                 "libdecode_launch_flags", "libdecode_open_flags", "libdecode_log_level", "libdecode_merge_flags"]
        self.assertEqual({*enums, "libdecode_status"}, set(re.findall(r"typedef enum (libdecode_\w+) {", HEADER)))
        names = [name for enum in enums for name in enumerators(enum)]
        said = of_compiler([f'printf("%d\\n", (int){name});' for name in names])
        self.assertEqual([f"{name} {getattr(abi, name.removeprefix('LIBDECODE_'))}" for name in names],
                         [f"{name} {value}" for name, value in zip(names, said)])
        ours = [name for name in vars(abi) if re.match(r"(DTYPE|OP|KV|SF|FEATURE|LAUNCH|OPEN|LOG|MERGE)_[A-Z0-9_]+$", name)]
        self.assertEqual({f"LIBDECODE_{name}" for name in ours} - {"LIBDECODE_LOG_FUNCTION"}, set(names))

    def test_versions_agree(self):
        import libdecode
        of_header = ".".join(re.search(rf"define LIBDECODE_VERSION_{part} (\d+)", HEADER)[1] for part in ("MAJOR", "MINOR", "PATCH"))
        self.assertEqual((libdecode.__version__, libdecode.version()), (of_header, of_header))

    def test_every_function_has_a_prototype_of_as_many_parameters(self):
        declared = re.findall(r"LIBDECODE_API [^;]*?(libdecode_\w+)\(([^;]*)\);", HEADER)
        counts = {name: 0 if text.strip() == "void" else text.count(",") + 1 for name, text in declared}
        self.assertEqual({name: len(arguments) for name, (_, arguments) in abi.PROTOTYPES.items()}, counts)


class ErrorsTest(unittest.TestCase):
    def test_every_status_is_a_class_of_its_own(self):
        names = [name for name in enumerators("libdecode_status") if name != "LIBDECODE_OK"]
        said = of_compiler([f'printf("%d\\n", (int){name});' for name in names])
        for name, number in zip(names, map(int, said)):
            error = errors.from_status(number, "words")
            self.assertEqual((error.status, type(error).status, type(error).status_name(), str(error)), (number, number, name, "words"))
        self.assertEqual(len({type(errors.from_status(int(number), "")) for number in said}), len(names))

    def test_hundreds_are_exceptions_of_python(self):
        for hundred, kind in ((100, ValueError), (200, NotImplementedError), (300, RuntimeError), (400, RuntimeError), (500, RuntimeError)):
            for number in (hundred, hundred + 1, hundred + 98):  # the last is no status of today
                error = errors.from_status(number, "words")
                self.assertIsInstance(error, kind)
                self.assertIsInstance(error, errors.LibdecodeError)
                self.assertEqual(error.status, number)

    def test_result_of_cuda_belongs_to_its_error_alone(self):
        self.assertEqual(errors.from_status(403, "", 700).cuda_result, 700)
        self.assertEqual(errors.from_status(100, "", 700).cuda_result, 0)

    def test_package_exports_every_class(self):
        import libdecode
        classes = {name for name, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, Exception)}
        self.assertEqual({name for name in classes if not hasattr(libdecode, name)}, set())


unittest.main()
