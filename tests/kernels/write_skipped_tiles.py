#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The grids in, a program out that prints, of each kernel that takes skip-softmax, its name and 1 where it passes over tiles, 0 where it computes densely.

write_skipped_tiles.py ABI OUTPUT FAMILY.toml...

Kernels whose source asks Traits::skips answer by their Traits, which stand here once for each of them, with the macros of its variant.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "kernels/families"
WITH_SKIP_SOFTMAX = ("1", "3")  # of batch decode's axis `options`
HEAD = """/* Written by write_skipped_tiles.py. */
#include <algorithm>
#include <cstdio>

#include "device.cuh"

#include "abi.h"
#include "tile/kv_format.cuh"
"""


def takes_skip_softmax(name, macros):
    return name.startswith("mla_decode_") or macros.get("VARIANT_OPTIONS") in WITH_SKIP_SOFTMAX


def traits_of(place, macros, text):
    """The file without its includes, which came before, in a namespace of its own."""
    lines = [f"namespace variant_{place} {{", f"namespace variant {{ constexpr int target_sm = {macros['VARIANT_TARGET_SM']}; }}"]
    lines += [line for name, value in macros.items() for line in (f"#undef {name}", f"#define {name} {value}")]
    return [*lines, *(line for line in text.splitlines() if not line.startswith("#")), "}"]


def main():
    abi, output, *families = sys.argv[1:]
    grid = subprocess.run([sys.executable, "-B", ROOT / "gen/grid.py", "--abi", abi, *families], capture_output=True, text=True, check=True).stdout
    traits = (FAMILIES / "gqa_decode_traits.cuh").read_text(encoding="utf-8")
    program, answers = [HEAD], []
    for place, line in enumerate(grid.splitlines()):
        name, _, source, arguments = line.split("\t")
        macros = dict(argument[2:].split("=", 1) for argument in arguments.split() if argument.startswith("-DVARIANT_"))
        if not takes_skip_softmax(name, macros):
            continue
        asks = "Traits::skips" in (FAMILIES / source).read_text(encoding="utf-8")
        program += traits_of(place, macros, traits) if asks else []
        answers.append(f'    {{"{name}", {f"variant_{place}::gqa_decode::Traits::skips" if asks else "false"}}},')
    program += ["static const struct {", "    const char *name;", "    bool skips;", "} kernels[] = {", *answers, "};",
                "int main() {", "    for (const auto &kernel : kernels)", '        std::printf("%s %d\\n", kernel.name, kernel.skips);', "}", ""]
    pathlib.Path(output).write_text("\n".join(program), encoding="utf-8")


if __name__ == "__main__":
    main()
