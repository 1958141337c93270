#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gen/pack.c counted of every bundle in, one table out (Markdown): variants, images and bytes by family and target.

Its bytes are those of the build alone: the same bundles, the same table. Only with --ninja-log it has also what differs from
machine to machine: the seconds that nvcc took for the images. A tally (tab-separated):
    bundle  <target>  <bytes of the file>  <of its tables>  <of its dictionary>
    family  <name>  <target>  <variants>  <images>  <bytes of the images>  <of their zstd frames>
Python standard library only.
"""

import argparse
import pathlib
import sys
from typing import NamedTuple


class Family(NamedTuple):
    name: str
    target: str
    variants: int
    images: int
    image_bytes: int
    frame_bytes: int


class Bundle(NamedTuple):
    target: str
    file_bytes: int
    tables_bytes: int
    dictionary_bytes: int


def read_tally(path: pathlib.Path) -> tuple[Bundle, list[Family]]:
    bundles, families = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        word, *fields = line.split("\t")
        if word == "bundle":
            bundles.append(Bundle(fields[0], *map(int, fields[1:])))
        else:
            families.append(Family(*fields[:2], *map(int, fields[2:])))
    (bundle,) = bundles
    return bundle, families


def read_seconds(ninja_log: pathlib.Path) -> dict[str, float]:
    """Of every image, by its file name: from the start to the end of nvcc, the last time that it was compiled."""
    seconds = {}
    for line in ninja_log.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        begin, end, _, output, *_ = line.split("\t")
        if output.endswith(".fatbin"):
            seconds[pathlib.PurePath(output).name] = (int(end) - int(begin)) / 1000
    return seconds


def seconds_of(family: Family, seconds: dict[str, float]) -> str:
    own = [value for name, value in seconds.items()
           if name.startswith(family.name + "_") and name.endswith(f"_sm{family.target}.fatbin")]
    # An image that was there before has no time in the log.
    return f"{sum(own):,.0f}" if len(own) >= family.images else "?"


def row(*cells: object) -> str:
    return "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells) + " |"


def table(tallies: list[tuple[Bundle, list[Family]]], seconds: dict[str, float] | None) -> list[str]:
    head = ["family", "image", "variants", "images", "bytes", "compressed", "an image"]
    if seconds is not None:
        head.append("compile s")
    lines = [row(*head), "|" + "---|" * len(head)]
    for _, families in tallies:
        for family in families:
            cells = [family.name, f"sm_{family.target}", family.variants, family.images, family.image_bytes, family.frame_bytes,
                     family.frame_bytes // family.images]
            lines.append(row(*cells) if seconds is None else row(*cells, seconds_of(family, seconds)))
    lines.append("")
    for bundle, families in tallies:
        images = sum(family.images for family in families)
        lines.append(f"* `libdecode-sm{bundle.target}.bundle`: {bundle.file_bytes:,} bytes, {bundle.file_bytes // images:,} an image: "
                     f"tables {bundle.tables_bytes:,}, dictionary {bundle.dictionary_bytes:,}, the rest are images.")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--built-by", required=True, metavar="TEXT", help="what made the images and how they were compressed")
    parser.add_argument("--ninja-log", type=pathlib.Path, help="the .ninja_log of the build, for a column of compile seconds")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("tallies", nargs="+", type=pathlib.Path, metavar="TALLY")
    arguments = parser.parse_args()
    seconds = read_seconds(arguments.ninja_log) if arguments.ninja_log else None
    lines = ["# The kernels of this build", "", arguments.built_by, ""]
    lines += table(sorted((read_tally(path) for path in arguments.tallies), key=lambda tally: int(tally[0].target)), seconds)
    arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
