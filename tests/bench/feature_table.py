#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""packaging/doc/features.md from what the library answers: which options of a problem it has kernels for, by format of KV cache and query,
and which not together; and from what the kernels' Traits say, which of them pass over tiles with skip-softmax.

feature_table.py LIBDECODE_SO SKIPPED_TILES TABLE    exits with 1 where TABLE says something else (SKIPPED_TILES: tests/kernels/skipped_tiles)
feature_table.py --write LIBDECODE_SO SKIPPED_TILES TABLE

Asked without a bundle: what the library then refuses as not in a bundle, it has kernels for; what it refuses as unsupported or as an
invalid argument, it has none for, and says why.
"""

import ctypes
import itertools
import os
import pathlib
import re
import subprocess
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/python"))
from libdecode import abi

OK, INVALID_ARGUMENT, UNSUPPORTED = 0, 100, 200
HAS_KERNELS = {201, 202}  # NOT_IN_BUNDLE, NO_GPU_IMAGE: a bundle is all that is missing
GPUS = {"sm_90": "sm90", "sm_100": "sm100", "sm_103": "sm100", "sm_120": "sm120", "sm_121": "sm120"}  # and the targets of their kernels
NAMES = {abi.DTYPE_BF16: "bf16", abi.DTYPE_FP16: "fp16", abi.DTYPE_E4M3: "e4m3", abi.DTYPE_NVFP4: "nvfp4",
         abi.DTYPE_E5M2: "e5m2"}
COLUMNS = [(abi.DTYPE_BF16, [abi.DTYPE_BF16]), (abi.DTYPE_FP16, [abi.DTYPE_FP16]), (abi.DTYPE_E4M3, [abi.DTYPE_BF16, abi.DTYPE_FP16]), (abi.DTYPE_E4M3, [abi.DTYPE_E4M3]),
           (abi.DTYPE_E5M2, [abi.DTYPE_BF16, abi.DTYPE_FP16]), (abi.DTYPE_E5M2, [abi.DTYPE_E4M3]),
           (abi.DTYPE_NVFP4, [abi.DTYPE_BF16, abi.DTYPE_FP16]), (abi.DTYPE_NVFP4, [abi.DTYPE_E4M3])]

PLAIN = {"batch_size": 64, "num_qo_heads": 32, "num_kv_heads": 8, "head_dim": 128, "page_size": 16, "max_seq_len": 4096,
         "page_table_request_stride": 4096}
DRAFTS = {"features": abi.FEATURE_DRAFT_MASK, "q_len": 64}
V_TABLE = {"page_table_v_offset": 4096, "page_table_request_stride": 65536}
PER_HEAD = {"seq_lens_request_stride": 8, "seq_lens_head_stride": 1, "page_table_head_stride": 8192,
            "page_table_request_stride": 65536}
CONTIGUOUS = {"features": abi.FEATURE_CONTIGUOUS_KV, "kv_capacity_tokens": 4096, "page_size": 0, "page_table_request_stride": 0}
APART = {"k_token_stride": 128}  # and scales of NVFP4 8
NARROW = {"head_dim": [64, 128, 192, 256], "page_size": [1, 16, 24]}
ODD = {"k_token_stride": 259}
MLA = {"op": abi.OP_MLA_DECODE, "num_kv_heads": 1, "num_qo_heads": 128, "head_dim": 576, "page_size": 64}
FLASH_LSE = abi.FEATURE_LSE | abi.FEATURE_LSE_NATURAL | abi.FEATURE_LSE_WITHOUT_SINK | abi.FEATURE_LSE_EMPTY_INFINITY
MLA_FEATURES = (0x1fff & ~(abi.FEATURE_V_PAGE_TABLE | abi.FEATURE_ALIBI | abi.FEATURE_ROPE) | abi.FEATURE_QUERY_ROPE | FLASH_LSE
                | abi.FEATURE_HOST_SEQ_LENS)

SPARSE = {**MLA, "page_table_request_stride": 0, "num_pages": 4096, "sparse_top_k": 2048}
SPARSE_FEATURES = (abi.FEATURE_SINKS | FLASH_LSE | abi.FEATURE_RAGGED_Q | abi.FEATURE_SOFT_CAP
                   | abi.FEATURE_BATCH_INVARIANT | abi.FEATURE_QUERY_ROPE | abi.FEATURE_SPARSE_TOP_K_LENS)

# A row: its words, and what it asks for beside PLAIN. These are asked for in pairs, too.
OPTIONS = [
    ("FEATURE_WINDOW", {"features": abi.FEATURE_WINDOW, "window_left": 127}),
    ("FEATURE_SINKS", {"features": abi.FEATURE_SINKS}),
    ("FEATURE_LSE", {"features": abi.FEATURE_LSE}),
    ("FEATURE_LSE_NATURAL", {"features": abi.FEATURE_LSE | abi.FEATURE_LSE_NATURAL}),
    ("FEATURE_LSE_WITHOUT_SINK, FEATURE_LSE_EMPTY_INFINITY", {"features": FLASH_LSE}),
    ("FEATURE_RAGGED_Q", {"features": abi.FEATURE_RAGGED_Q, "q_len": 64}),
    ("FEATURE_DRAFT_MASK, up to 64 tokens", DRAFTS),
    ("FEATURE_V_PAGE_TABLE", {"features": abi.FEATURE_V_PAGE_TABLE, **V_TABLE}),
    ("FEATURE_QUERY_POSITIONS", {"features": abi.FEATURE_QUERY_POSITIONS}),
    ("FEATURE_SKIP_SOFTMAX", {"features": abi.FEATURE_SKIP_SOFTMAX, "skip_softmax_threshold_scale_factor": 1.0}),
    ("FEATURE_SOFT_CAP", {"features": abi.FEATURE_SOFT_CAP, "logits_soft_cap": 30.0}),
    ("FEATURE_ALIBI", {"features": abi.FEATURE_ALIBI}),
    ("FEATURE_LSE_ALIBI_FROM_ZERO", {"features": abi.FEATURE_ALIBI | abi.FEATURE_LSE | abi.FEATURE_LSE_ALIBI_FROM_ZERO}),
    ("FEATURE_ROPE", {"features": abi.FEATURE_ROPE}),
    ("FEATURE_BATCH_INVARIANT", {"features": abi.FEATURE_BATCH_INVARIANT}),
    ("FEATURE_CONTIGUOUS_KV", CONTIGUOUS),
    ("FEATURE_HOST_SEQ_LENS", {"features": abi.FEATURE_HOST_SEQ_LENS}),
    ("FEATURE_QUERY_OFFSETS", {"features": abi.FEATURE_QUERY_OFFSETS}),
    ("FEATURE_KV_OFFSETS", {"features": abi.FEATURE_KV_OFFSETS}),
    ("strides of K and V that are no multiples of 16 bytes", ODD),
    ("lengths and page tables per KV head", PER_HEAD),
    ("position_stride and position_offset", {"position_stride": 4, "position_offset": 3}),
    ("kv_layout NHD", {"kv_layout": abi.KV_NHD}),
    ("v_sf_layout V_INTERLEAVE4", {"v_sf_layout": abi.SF_V_INTERLEAVE4}),
    ("result e4m3", {"out_dtype": abi.DTYPE_E4M3}),
    ("result nvfp4", {"out_dtype": abi.DTYPE_NVFP4}),
    ("head_dim 256", {"head_dim": 256}),
    ("head_dim 512", {"head_dim": 512}),
    ("pages of 1", {"page_size": 1}),
    ("pages of 24", {"page_size": 24}),
]

ROWS = [
    *OPTIONS,
    ("FEATURE_DRAFT_MASK, 65 tokens", {**DRAFTS, "q_len": 65}),
    ("FEATURE_CONTIGUOUS_KV, NHD, room for 1 to 131072 tokens", {**CONTIGUOUS, "kv_layout": abi.KV_NHD, "kv_capacity_tokens": [1, 1237, 131072]}),
    ("FEATURE_QUERY_OFFSETS, head_dim up to 256", {"features": abi.FEATURE_QUERY_OFFSETS, **NARROW}),
    ("FEATURE_KV_OFFSETS, head_dim up to 256", {"features": abi.FEATURE_KV_OFFSETS, **NARROW}),
    ("strides of K and V that are no multiples of 16 bytes, head_dim up to 256", {**ODD, **NARROW}),
    ("all of the paged ones together", {"features": 0x1fff | FLASH_LSE | abi.FEATURE_LSE_ALIBI_FROM_ZERO | abi.FEATURE_HOST_SEQ_LENS, "q_len": 8, "window_left": 127, "logits_soft_cap": 30.0, **V_TABLE}),
    ("q_len 2 to 1024", {"q_len": [2, 64, 1024]}),
    ("q_len 1025", {"q_len": 1025}),
    ("groups of 1 to 71 query heads", {"num_kv_heads": 1, "num_qo_heads": [1, 5, 8, 16, 32, 71]}),
    ("result bf16, fp16", {"out_dtype": [abi.DTYPE_BF16, abi.DTYPE_FP16]}),
    ("head_dim 16 to 48, 80, 96, 112, rows 128 elements apart", {**APART, "head_dim": [16, 32, 48, 80, 96, 112]}),
    ("FEATURE_ROPE, head_dim 80, 96, 112, rows 128 elements apart", {**APART, "features": abi.FEATURE_ROPE, "head_dim": [80, 96, 112]}),
    ("head_dim 64, 128, 192, 256", {"head_dim": [64, 128, 192, 256]}),
    ("pages of 16 to 1024, powers of two", {"page_size": [16, 32, 64, 128, 256, 512, 1024]}),
    ("pages of 1 to 1024, any other size", {"page_size": [1, 2, 5, 8, 24, 48, 1000]}),
    ("MLA, head_dim 576 and 320, 1 to 192 heads", {**MLA, "head_dim": [576, 320], "num_qo_heads": [1, 16, 17, 128, 192]}),
    ("MLA, pages of 16 to 1024, powers of two", {**MLA, "page_size": [16, 32, 64, 128, 256, 512, 1024]}),
    ("MLA, other pages", {**MLA, "page_size": 24}),
    ("MLA, q_len 1025", {**MLA, "q_len": 1025}),
    ("MLA with its features together", {**MLA, "features": MLA_FEATURES, "q_len": 8, "window_left": 127, "logits_soft_cap": 30.0}),
    ("MLA, result e4m3", {**MLA, "out_dtype": abi.DTYPE_E4M3}),
    ("MLA, result nvfp4", {**MLA, "out_dtype": abi.DTYPE_NVFP4}),
    ("sparse MLA, head_dim 576, 512 and 320, any page, any sparse_top_k", {**SPARSE, "head_dim": [576, 512, 320], "page_size": [1, 24, 64], "sparse_top_k": [1, 2048, 5001]}),
    ("sparse MLA, KV_ROW_FP8_SCALED_656", {**SPARSE, "kv_row_format": abi.KV_ROW_FP8_SCALED_656}),
    ("sparse MLA, KV_ROW_NVFP4_352", {**SPARSE, "kv_row_format": abi.KV_ROW_NVFP4_352}),
    ("sparse MLA, FEATURE_HOST_SEQ_LENS", {**SPARSE, "features": abi.FEATURE_HOST_SEQ_LENS}),
    ("sparse MLA with its features together", {**SPARSE, "features": SPARSE_FEATURES, "q_len": 8, "logits_soft_cap": 30.0}),
]


def alternatives(asked):
    """One problem for every value of what has several."""
    several = next((name for name, value in asked.items() if isinstance(value, list)), None)
    return [asked] if several is None else [one for value in asked[several] for one in alternatives({**asked, several: value})]


class Oracle:
    def __init__(self, path):
        self.library = abi.Library(path)
        self.context = ctypes.c_void_p()
        options = abi.OpenOptions(flags=abi.OPEN_IGNORE_ENVIRONMENT | abi.OPEN_BUNDLES_ONLY)
        self.library.check(self.library.open(ctypes.byref(options), ctypes.byref(self.context)))
        self.devices = {}
        for name in GPUS:
            self.devices[name] = abi.Device()
            self.library.check(self.library.device_preset(name.encode(), ctypes.byref(self.devices[name])))

    def answer(self, gpu, problem):
        """"yes", or why not."""
        plan = ctypes.c_void_p()
        status = self.library.plan_create(self.context, ctypes.byref(problem), ctypes.byref(self.devices[gpu]), ctypes.byref(plan))
        message = self.library.error_message().decode()
        if status in HAS_KERNELS:
            return "yes"
        if status not in (INVALID_ARGUMENT, UNSUPPORTED):
            raise SystemExit(f"an answer that says neither yes nor no: {status} {message}")
        return message.replace(f" on {gpu}", "").split("; ")[0]

    def cell(self, kv_dtype, query_dtypes, asked):
        """(answer, GPUs) of every different answer."""
        answers = {}
        for gpu in GPUS:
            for query_dtype in query_dtypes:
                gaps = {"k_sf_token_stride": 8} if kv_dtype == abi.DTYPE_NVFP4 and APART.items() <= asked.items() else {}
                for fields in alternatives({"kv_dtype": kv_dtype, "query_dtype": query_dtype, "out_dtype": abi.DTYPE_BF16, **PLAIN, **asked, **gaps}):
                    answers.setdefault(self.answer(gpu, abi.Problem(**fields)), set()).add(gpu)
        return answers


def together(first, second):
    """What both ask for; None if they contradict each other, as two pages do."""
    if any(second.get(name, value) != value for name, value in first.items() if name != "features"):
        return None
    features = first.get("features", 0) | second.get("features", 0)
    return {**first, **second, **({"features": features} if features else {})}


def refused_together(oracle):
    """(both's words, a cell for each column) of pairs of options of which one format at least has each, but not both at once."""
    for (first_words, first), (second_words, second) in itertools.combinations(OPTIONS, 2):
        asked = together(first, second)
        if asked is None:
            continue
        cells = []
        for column in COLUMNS:
            alone = oracle.cell(*column, first), oracle.cell(*column, second)
            cells.append(oracle.cell(*column, asked) if all("yes" in cell and len(cell) == 1 for cell in alone) else None)
        if any(cell is not None and set(cell) != {"yes"} for cell in cells):
            yield first_words, second_words, cells


def words_of(cell, notes):
    def word(answer):
        if answer == "yes":
            return answer
        if answer not in notes:
            notes.append(answer)
        return f"no ({notes.index(answer) + 1})"

    if len(cell) == 1 or all(answer != "yes" and gpus == set(GPUS) for answer, gpus in cell.items()):
        return word(next(iter(cell)))  # of several values that are refused the first one's words stand for all
    return "; ".join(word(answer) if gpus == set(GPUS) else f"{word(answer)} on {', '.join(gpu for gpu in GPUS if gpu in gpus)}"
                     for answer, gpus in cell.items())


def table_lines(heads, rows):
    return ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *("| " + " | ".join(row) + " |" for row in rows), ""]


def skips_on(clusters):
    """Of a target's kernels that differ in nothing but the size of their clusters: {size: whether they pass over tiles}."""
    if len(set(clusters.values())) == 1:
        return "yes" if all(clusters.values()) else "no"
    return "in clusters of " + ", ".join(str(size) for size in sorted(clusters) if clusters[size])


def skip_cell(kernels):
    """{target: {cluster size: whether}}: "yes", or "no on sm_90; yes on sm_100"."""
    answers = {}
    for gpu, target in GPUS.items():
        if target in kernels:
            answers.setdefault(skips_on(kernels[target]), []).append(gpu)
    if len(answers) == 1:
        return next(iter(answers))
    return "; ".join(f"{answer} on {', '.join(gpus)}" for answer, gpus in answers.items())


def skip_rows(skipped_tiles):
    """Of each head_dim, rows of a pass and kind of pages, whether V of tiles that no row wants is left unread; of MLA it never is."""
    found, dtypes = {}, ["bf16", "fp16", "e4m3", "e5m2", "nvfp4"]
    for line in subprocess.run([skipped_tiles], capture_output=True, text=True, check=True).stdout.splitlines():
        name, skips = line.split()
        dtype, head_dim, rows, page, cluster, target = re.fullmatch(r"\w+_decode_kv([a-z0-9]+)_d(\d+)_r(\d+)(?:_p(\d+))?_c(\d+)(?:_o\d)?_(sm\d+)", name).groups()
        row = ("MLA", 0, 0) if page is None else (int(head_dim), int(rows), page == "1")
        clusters = found.setdefault(row, {}).setdefault(dtype, {}).setdefault(target, {})
        if clusters.setdefault(int(cluster), skips == "1") != (skips == "1"):
            raise SystemExit(f"{name} does otherwise than its like: the table has no words for that")
    latent = found.pop(("MLA", 0, 0))
    cells = {row: [skip_cell(found[row].get(dtype, {})) if dtype in found[row] else "" for dtype in dtypes] for row in sorted(found)}
    for head_dim, rows, is_gathered in cells:
        others = cells.get((head_dim, rows, not is_gathered))
        if is_gathered and cells[head_dim, rows, True] == others:
            continue
        pages = "" if cells[head_dim, rows, is_gathered] == others else ", pages copied row by row" if is_gathered else ", pages copied whole"
        narrower = {64: 16, 128: 80, 256: 144, 512: 272}[head_dim]
        yield [f"head_dim {narrower} to {head_dim}, row tile {rows}{pages}", *cells[head_dim, rows, is_gathered]]
    yield ["MLA", *(skip_cell(latent[dtype]) if dtype in latent else "" for dtype in dtypes)]


def table(library, skipped_tiles):
    oracle, notes = Oracle(library), []
    columns = [f"{NAMES[kv]} KV, {' or '.join(NAMES[query] for query in queries)} query" for kv, queries in COLUMNS]
    rows = [[words, *(words_of(oracle.cell(*column, asked), notes) for column in COLUMNS)] for words, asked in ROWS]
    pairs = [[first, second, *("" if cell is None else words_of(cell, notes) for cell in cells)] for first, second, cells in refused_together(oracle)]
    return "\n".join([
        "<!-- Written by tests/bench/feature_table.py; a test compares it with what the library and the kernels' Traits answer. -->", "",
        "# What there are kernels for", "",
        "On each of the five GPUs, where none is named. \"no\" is an error of the library: its words stand below. What is not asked for is",
        "plain: 32 query heads, 8 KV heads of 128, pages of 16, one query token, a bf16 result. That FEATURE_SKIP_SOFTMAX is taken does not say",
        "that V is left unread: where it is, stands below, too.", "",
        *table_lines(["", *columns], rows),
        "## What there is, but not together", "",
        *textwrap.wrap("Of these options every pair that is refused though there is each alone; an empty cell: one of the two is refused alone. All other pairs there "
                       "are, but those that contradict each other, as two sizes of pages do. The options: " + "; ".join(words for words, _ in OPTIONS) + ".", 140), "",
        *table_lines(["", "with", *columns], pairs),
        "## Where skip-softmax leaves V unread", "",
        "FEATURE_SKIP_SOFTMAX allows kernels to pass over tiles whose V no row wants, and the dense result alike. \"yes\": they pass over them;",
        "\"no\": they read all of V. The row tile is the first of those with room for all rows of a KV head (query heads of its group times query",
        "tokens), or the largest; sparse MLA does not take the feature.", "",
        *table_lines(["", "bf16 KV", "fp16 KV", "e4m3 KV", "e5m2 KV", "nvfp4 KV"], skip_rows(skipped_tiles)),
        "## Why not", "",
        *(f"{number}. {note}" for number, note in enumerate(notes, 1))]) + "\n"


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 3:
        sys.exit("usage: feature_table.py [--write] LIBDECODE_SO SKIPPED_TILES TABLE")
    library, skipped_tiles, file = os.path.abspath(arguments[0]), os.path.abspath(arguments[1]), pathlib.Path(arguments[2])
    text = table(library, skipped_tiles)
    if "--write" in sys.argv:
        file.write_text(text, encoding="utf-8")
    elif file.read_text(encoding="utf-8") != text:
        sys.exit(f"{file} is not what the library answers; write it anew: {sys.argv[0]} --write {' '.join(arguments)}\n{text}")


if __name__ == "__main__":
    main()
