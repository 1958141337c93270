# SPDX-License-Identifier: Apache-2.0
"""A description of kernels in, the bytes of an image out: a fatbin with one cubin, laid out as nvcc 13.0 does (loader/image.c).

The code inside is zeros: such an image is for the tests of pack and of the audit, which then need no nvcc and can make images
that nvcc would never make. As a program it writes one image: fatbin.py ABI_H SM KERNEL PARAMETER_BYTES OUTPUT
"""

import dataclasses
import pathlib
import re
import struct
import sys

ENTRY_SYMBOL = 0x10
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_NOBITS, SHT_INFO = 1, 2, 3, 8, 0x70000000
STT_OBJECT, STT_FUNC = 1, 2
INFO_MAX_THREADS, INFO_FRAME_BYTES, INFO_PARAMETER, INFO_REGISTERS = 0x05, 0x11, 0x17, 0x2F
SYSTEM_SHARED_BYTES = 1024


class Abi:
    """What kernels/abi.h says: the order of the contract's fields, and constants."""

    def __init__(self, header: pathlib.Path):
        text = header.read_text(encoding="utf-8")
        body = re.search(r"struct libdecode_launch_contract \{(.*?)\n\};", text, re.DOTALL).group(1)
        declared = ", ".join(re.findall(r"uint32_t ([^;]+);", body))
        self.fields = []
        for name, count in re.findall(r"(\w+)(?:\[(\d+)\])?", declared):
            self.fields += [name] if not count else [f"{name}{index}" for index in range(int(count))]
        self.constants = {name: int(value, 0) for name, value in re.findall(r"#define (\w+) (0x[0-9a-f]+|\d+)u", text)}
        self.constants |= {name: int(value) for name, value in re.findall(r"(KERNEL_\w+) = (\d+)", text)}

    def contract(self, **values: int) -> bytes:
        """A contract that pack accepts for a kernel as described below, but for `values`."""
        good = {
            "magic": self.constants["LIBDECODE_CONTRACT_MAGIC"], "abi": self.constants["LIBDECODE_KERNEL_ABI"],
            "family": self.constants["KERNEL_FAMILY_READ_CEILING"], "threads": 128, "dynamic_shared_bytes": 32768,
            "ctas_per_sm": 2, "cluster_size": 1, "query_dtypes": 2, "kv_dtype": 1, "out_dtypes": 2, "head_dim": 128,
            "row_tile": 8, "tile_tokens": 64, "max_box_tokens": 64, "stages": 4, "min_page_size": 16, "max_page_size": 1024,
            "max_q_len": 1, "record_bytes": 4192, "consumer_warps": 2,
        } | values
        unknown = good.keys() - set(self.fields)
        if unknown:
            raise ValueError(f"the contract of abi.h has no {unknown}")
        return struct.pack(f"<{len(self.fields)}I", *(good.get(field, 0) for field in self.fields))


@dataclasses.dataclass
class Kernel:
    name: str
    contract: bytes | None  # None: the image carries none
    parameter_bytes: int
    registers: int = 32
    max_threads: int = 128  # 0: no launch bounds
    local_bytes: int = 0
    static_shared_bytes: int = 0


def attribute(what: int, data: bytes) -> bytes:
    return struct.pack("<BBH", 4, what, len(data)) + data


class Strings:
    def __init__(self) -> None:
        self.bytes = b"\0"

    def add(self, text: str) -> int:
        offset = len(self.bytes)
        self.bytes += text.encode() + b"\0"
        return offset


def cubin(sm: int, kernels: list[Kernel]) -> bytes:
    section_names, symbol_names = Strings(), Strings()
    contracts = b"".join(kernel.contract or b"" for kernel in kernels)
    symbols = bytes(24)
    info = b""
    # name, type, contents (or the size of a section without any), link, info, entry size
    sections = [("", 0, b"", 0, 0, 0), (".shstrtab", SHT_STRTAB, None, 0, 0, 0), (".strtab", SHT_STRTAB, None, 0, 0, 0),
                (".symtab", SHT_SYMTAB, None, 2, 1, 24), (".nv.info", SHT_INFO, None, 3, 0, 0),
                (".nv.global.init", SHT_PROGBITS, contracts, 0, 0, 0)]
    contract_offset = 0
    for kernel in kernels:
        text_section = len(sections)
        symbol = len(symbols) // 24
        symbols += struct.pack("<IBBHQQ", symbol_names.add(kernel.name), 0x10 | STT_FUNC, ENTRY_SYMBOL, text_section, 0, 128)
        if kernel.contract is not None:
            symbols += struct.pack("<IBBHQQ", symbol_names.add(kernel.name + "_contract"), STT_OBJECT, 0, 5, contract_offset,
                                   len(kernel.contract))
            contract_offset += len(kernel.contract)
        info += attribute(INFO_REGISTERS, struct.pack("<II", symbol, kernel.registers))
        info += attribute(INFO_FRAME_BYTES, struct.pack("<II", symbol, kernel.local_bytes))
        kernel_info = attribute(INFO_PARAMETER, struct.pack("<IHHI", 0, 0, 0, kernel.parameter_bytes << 18))
        if kernel.max_threads:
            kernel_info += attribute(INFO_MAX_THREADS, struct.pack("<III", kernel.max_threads, 1, 1))
        sections += [(f".text.{kernel.name}", SHT_PROGBITS, bytes(128), 3, symbol, 0),
                     (f".nv.info.{kernel.name}", SHT_INFO, kernel_info, 3, text_section, 0),
                     (f".nv.shared.{kernel.name}", SHT_NOBITS, SYSTEM_SHARED_BYTES + kernel.static_shared_bytes, 0, text_section,
                      0)]
    name_offsets = [section_names.add(section[0]) for section in sections]
    late = {".shstrtab": section_names.bytes, ".strtab": symbol_names.bytes, ".symtab": symbols, ".nv.info": info}

    body, headers = b"", b""
    for name_offset, (name, kind, contents, link, extra, entry_bytes) in zip(name_offsets, sections, strict=True):
        contents = late.get(name, contents)
        size = contents if kind == SHT_NOBITS else len(contents)
        headers += struct.pack("<IIQQQQIIQQ", name_offset, kind, 0, 0, 64 + len(body), size, link, extra, 8, entry_bytes)
        if kind != SHT_NOBITS:
            body += contents + bytes(-len(contents) % 8)
    identification = b"\x7fELF" + bytes([2, 1, 1, 0x41, 8]) + bytes(7)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 64, 0, 0, len(body), len(body), 8)
    section_offset = 64 + len(body)
    header = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, section_offset + len(headers), section_offset, 0x6000002 | sm << 8,
                         64, 56, 1, 64, len(sections), 1)
    return identification + header + body + headers + segment


def entry(sm: int, payload: bytes, kind: int = 2, uncompressed_bytes: int = 0) -> bytes:
    header = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(payload), 0, 0, 8, 1, sm, 0, 0, 0x100011, 0, uncompressed_bytes)
    return header + payload


def fatbin(*entries: bytes) -> bytes:
    payload = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(payload)) + payload


def image(sm: int, *kernels: Kernel) -> bytes:
    return fatbin(entry(sm, cubin(sm, list(kernels))))


def main() -> None:
    header, sm, name, parameter_bytes, output = sys.argv[1:]
    contract = Abi(pathlib.Path(header)).contract(parameter_bytes=int(parameter_bytes), threads=96)
    kernel = Kernel(name, contract, int(parameter_bytes), max_threads=96, static_shared_bytes=400)
    pathlib.Path(output).write_bytes(image(int(sm), kernel))


if __name__ == "__main__":
    main()
