#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The families' .toml grids in, one line per kernel variant out; or with --manifest what one bundle is made of, with --served which
GPUs the variants serve, with --table what the loader knows of all variants.

Meson runs this at configure time and turns every line into one nvcc rule; gen/pack.c reads the manifests. Python 3.11 or
newer, standard library only.

A line (tab-separated):  name, target, source file beside the .toml, nvcc arguments (space-separated)
A manifest (the same):
    target  <sm number>
    image   <file name>
    kernel  <name>  <GPUs that it serves, comma-separated>  <reason why it may spill, or nothing>

--grid cover chooses, for each family and target, few variants that among them have all that a grid consists of: every [[grid]],
every value of every axis, and every pair of values of the axes that the family's .toml names:

    [cover]
    pairs = [["kv_dtype", "head_dim"]]
"""

import argparse
import fnmatch
import itertools
import pathlib
import re
import sys
import tomllib
from typing import NamedTuple


class Target(NamedTuple):
    sm: int
    gencode: str
    gpus: tuple[str, ...]


# One image serves every GPU of its family, whichever was asked for: compiled for the family's lowest member, with the family's features.
TARGETS = {
    "sm90": Target(90, "arch=compute_90a,code=sm_90a", ("sm_90",)),
    "sm100": Target(100, "arch=compute_100f,code=sm_100f", ("sm_100", "sm_103")),
    "sm120": Target(120, "arch=compute_120f,code=sm_120f", ("sm_120", "sm_121")),
}
GPUS = [gpu for target in TARGETS.values() for gpu in target.gpus]

OWN_MACROS = ("VARIANT_NAME", "VARIANT_TARGET_SM", "VARIANT_MAY_SPILL")
SHOWN_NAMES = 6


class GridError(Exception):
    """What is wrong, in one line that begins with the file."""


class Axis(NamedTuple):
    name: str
    prefix: str
    macro: str
    enumerator: str

    def expression(self, value: str) -> str:
        return self.enumerator + value.upper() if self.enumerator else value

    def definition(self, value: str) -> str:
        return f"-D{self.macro}={self.expression(value)}"

    def initializer(self, value: str) -> str:
        return f".{self.name} = {self.expression(value)}"


class Variant(NamedTuple):
    name: str
    target: str
    source: str
    macros: tuple[str, ...]
    may_spill: str
    grid: str  # where it was declared, for messages
    initializer: str  # of loader/grid.h's struct grid_variant
    family: str
    point: tuple[tuple[str, str], ...]  # its value of every axis
    cover_pairs: tuple[tuple[str, ...], ...]

    def nvcc_arguments(self) -> list[str]:
        target = TARGETS[self.target]
        own = (self.name, target.sm, 1 if self.may_spill else 0)
        arguments = [f"-gencode={target.gencode}", *self.macros]
        arguments += [f"-D{macro}={value}" for macro, value in zip(OWN_MACROS, own, strict=True)]
        # Together with -Werror=all-warnings a spill is then an error.
        return arguments if self.may_spill else [*arguments, "-Xptxas=--warn-on-spills"]


def check_keys(where: str, table: object, required: set[str], optional: set[str] = frozenset()) -> None:
    if not isinstance(table, dict):
        raise GridError(f"{where}: a table is expected")
    for key in sorted(required - table.keys()):
        raise GridError(f"{where}: '{key}' is missing")
    for key in sorted(table.keys() - required - optional):
        raise GridError(f"{where}: unknown key '{key}'; known are {', '.join(sorted(required | optional))}")


def check_word(where: str, key: str, value: object, pattern: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise GridError(f"{where}: {key} = {value!r} does not match {pattern}")
    return value


def check_unique(where: str, what: str, values: list[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise GridError(f"{where}: {what} '{value}' is there {values.count(value)} times")


def read_axes(where: str, tables: object, known_names: str) -> list[Axis]:
    if not isinstance(tables, list):
        raise GridError(f"{where}: an axis is written [[axis]]")
    axes = []
    for number, table in enumerate(tables, 1):
        here = f"{where}: axis {number}"
        check_keys(here, table, {"name", "prefix", "macro"}, {"enumerator"})
        axes.append(Axis(
            check_word(here, "name", table["name"], r"[a-z][a-z0-9_]*"),
            check_word(here, "prefix", table["prefix"], r"[a-z]+"),
            check_word(here, "macro", table["macro"], r"VARIANT_[A-Z0-9_]+"),
            check_word(here, "enumerator", table.get("enumerator", ""), r"([A-Z][A-Z0-9_]*_)?"),
        ))
        if axes[-1].enumerator and axes[-1].enumerator not in known_names:
            raise GridError(f"{here}: no enumerator of kernels/abi.h begins with {axes[-1].enumerator}")
    for field in ("name", "prefix", "macro"):
        check_unique(where, f"axis {field}", [getattr(axis, field) for axis in axes])
    check_unique(where, "macro", [axis.macro for axis in axes] + list(OWN_MACROS))
    return axes


def read_values(where: str, key: str, values: object) -> list[str]:
    """The values of one axis as text; whole numbers and words, each once."""
    if not isinstance(values, list) or not values:
        raise GridError(f"{where}: {key} must be a list of at least one value")
    texts = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, str)) or not re.fullmatch(r"[a-z0-9]+", str(value)):
            raise GridError(f"{where}: {key} has the value {value!r}; accepted are whole numbers and words of a-z and 0-9")
        texts.append(str(value))
    check_unique(where, key, texts)
    return texts


def read_cover(where: str, table: object, axes: list[Axis]) -> tuple[tuple[str, ...], ...]:
    """The pairs of axes whose values are to meet in a cover."""
    check_keys(where, table, {"pairs"})
    names = [axis.name for axis in axes]
    pairs = table["pairs"]
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1] or not all(name in names for name in pair):
            raise GridError(f"{where}: pairs has {pair!r}; accepted are two of the axes {', '.join(names)}")
    return tuple(tuple(pair) for pair in pairs)


def enumerate_grid(where: str, table: object, family: str, source: str, axes: list[Axis], known_names: str,
                   cover_pairs: tuple[tuple[str, ...], ...]) -> list[Variant]:
    check_keys(where, table, {"targets"} | {axis.name for axis in axes}, {"may_spill", "source"})
    targets = read_values(where, "targets", table["targets"])
    for target in targets:
        if target not in TARGETS:
            raise GridError(f"{where}: unknown target '{target}'; known are {', '.join(TARGETS)}")
    may_spill = table.get("may_spill", "")
    if "may_spill" in table and (not isinstance(may_spill, str) or not may_spill.strip() or not may_spill.isprintable()):
        raise GridError(f"{where}: may_spill must be the reason, in one line")
    values = [read_values(where, axis.name, table[axis.name]) for axis in axes]
    for axis, texts in zip(axes, values, strict=True):
        for text in texts:
            if axis.enumerator and not re.search(rf"\b{axis.enumerator}{text.upper()}\b", known_names):
                known = sorted(set(re.findall(rf"\b{axis.enumerator}(\w+)", known_names)))
                raise GridError(f"{where}: unknown {axis.name} '{text}'; kernels/abi.h knows {', '.join(known).lower()}")
    variants = []
    for target, *point in itertools.product(targets, *values):
        fields = [axis.prefix + value for axis, value in zip(axes, point, strict=True)]
        macros = tuple(axis.definition(value) for axis, value in zip(axes, point, strict=True))
        members = [f".family = KERNEL_FAMILY_{family.upper()}", f".target = {TARGETS[target].sm}",
                   *(axis.initializer(value) for axis, value in zip(axes, point, strict=True))]
        variants.append(Variant("_".join([family, *fields, target]), target, source, macros, may_spill, where,
                                "{" + ", ".join(members) + "},", family,
                                tuple((axis.name, value) for axis, value in zip(axes, point, strict=True)), cover_pairs))
    return variants


def read_source(path: pathlib.Path, section: str, table: dict) -> str:
    source = check_word(f"{path}: {section}", "source", table["source"], r"[a-z0-9_]+\.cu")
    if not (path.parent / source).is_file():
        raise GridError(f"{path}: {section}: there is no source '{source}' beside it")
    return source


def read_family(path: pathlib.Path, known_names: str) -> list[Variant]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise GridError(f"{path}: {error}") from None
    check_keys(str(path), document, {"family", "grid"}, {"axis", "cover"})
    check_keys(f"{path}: family", document["family"], {"name", "source"})
    name = check_word(f"{path}: family", "name", document["family"]["name"], r"[a-z][a-z0-9_]*")
    source = read_source(path, "family", document["family"])
    if not isinstance(document["grid"], list):
        raise GridError(f"{path}: a grid is written [[grid]]")
    axes = read_axes(str(path), document.get("axis", []), known_names)
    cover_pairs = read_cover(f"{path}: cover", document["cover"], axes) if "cover" in document else ()
    variants = []
    for number, table in enumerate(document["grid"], 1):
        own_source = read_source(path, f"grid {number}", table) if isinstance(table, dict) and "source" in table else source
        variants += enumerate_grid(f"{path}: grid {number}", table, name, own_source, axes, known_names, cover_pairs)
    return variants


def check_no_duplicates(variants: list[Variant]) -> None:
    seen: dict[str, Variant] = {}
    for variant in variants:
        if variant.name in seen:
            raise GridError(f"{variant.grid}: variant '{variant.name}' is also in {seen[variant.name].grid}")
        seen[variant.name] = variant


def covered_by(variant: Variant) -> set[tuple]:
    """What a cover must have, as far as this variant has it."""
    value = dict(variant.point)
    return {variant.grid, *variant.point, *((pair, value[pair[0]], value[pair[1]]) for pair in variant.cover_pairs)}


def cover_of(variants: list[Variant]) -> list[Variant]:
    """
    Of one family and target: as long as something is missing, the variant that has most of it; of several the one that brings
    most values together which have not met yet, then the first that was declared: small tiles stand in front, and compile faster.
    """
    missing = set().union(*map(covered_by, variants))
    met: set[tuple] = set()
    chosen = []
    while missing:
        best = max(variants, key=lambda variant: (len(covered_by(variant) & missing),
                                                  len(set(itertools.combinations(variant.point, 2)) - met)))
        missing -= covered_by(best)
        met |= set(itertools.combinations(best.point, 2))
        chosen.append(best)
    return chosen


def cover(variants: list[Variant]) -> list[Variant]:
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        groups.setdefault((variant.family, variant.target), []).append(variant)
    return [variant for group in groups.values() for variant in cover_of(group)]


def choose(variants: list[Variant], gpus: list[str], globs: list[str]) -> list[Variant]:
    """The variants that serve a wanted GPU and match a glob. A glob without a match is a mistake."""
    served = [variant for variant in variants if set(TARGETS[variant.target].gpus) & set(gpus)]
    names = [variant.name for variant in served]
    for glob in globs:
        if not fnmatch.filter(names, glob):
            step = max(1, len(names) // SHOWN_NAMES)
            examples = ", ".join(names[::step][:SHOWN_NAMES])
            raise GridError(f"variants: '{glob}' matches none of the {len(names)} variants for {', '.join(gpus)}; "
                            f"some are: {examples}")
    return [variant for variant in served if any(fnmatch.fnmatchcase(variant.name, glob) for glob in globs)]


def served_by(variants: list[Variant]) -> list[str]:
    targets = {variant.target for variant in variants}
    return [gpu for name, target in TARGETS.items() if name in targets for gpu in target.gpus]


def manifest(target: str, variants: list[Variant]) -> str:
    served = ",".join(TARGETS[target].gpus)
    lines = [f"target\t{TARGETS[target].sm}"]
    for variant in (variant for variant in variants if variant.target == target):
        lines += [f"image\t{variant.name}.fatbin", f"kernel\t{variant.name}\t{served}\t{variant.may_spill}"]
    return "\n".join(lines) + "\n"


def split_list(option: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise GridError(f"{option}: '{text}' has an empty item")
    return items


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpu-archs", default=",".join(GPUS), help="comma list of " + " ".join(GPUS))
    parser.add_argument("--grid", choices=["full", "cover"], default="full", help="all variants, or few that have all of it")
    parser.add_argument("--variants", default="*", help="comma list of globs over variant names")
    parser.add_argument("--abi", type=pathlib.Path, required=True, help="kernels/abi.h, which owns the enumerators")
    parser.add_argument("--manifest", choices=TARGETS, metavar="TARGET", help="print the manifest of this target's bundle")
    parser.add_argument("--served", action="store_true", help="print the GPUs that the variants serve")
    parser.add_argument("--table", action="store_true", help="print the variants as initializers of loader/grid.h")
    parser.add_argument("families", nargs="+", type=pathlib.Path, metavar="FAMILY.toml")
    arguments = parser.parse_args()
    try:
        gpus = split_list("gpu_archs", arguments.gpu_archs)
        for gpu in gpus:
            if gpu not in GPUS:
                raise GridError(f"gpu_archs: unknown GPU '{gpu}'; known are {', '.join(GPUS)}")
        known_names = arguments.abi.read_text(encoding="utf-8")
        variants = [variant for path in arguments.families for variant in read_family(path, known_names)]
        check_no_duplicates(variants)
        variants = sorted(cover(variants) if arguments.grid == "cover" else variants)
        chosen = choose(variants, gpus, split_list("variants", arguments.variants))
    except (GridError, OSError) as error:
        print(f"grid: {error}", file=sys.stderr)
        return 1
    if arguments.manifest:
        print(manifest(arguments.manifest, chosen), end="")
        return 0
    if arguments.served:
        print(",".join(served_by(chosen)))
        return 0
    if arguments.table:
        print("\n".join(variant.initializer for variant in chosen))
        return 0
    for variant in chosen:
        print(variant.name, variant.target, variant.source, " ".join(variant.nvcc_arguments()), sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
