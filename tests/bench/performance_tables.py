# SPDX-License-Identifier: Apache-2.0
"""The tables of packaging/doc/performance.md: performance_tables.py [--write] REPORT.json...

A report is what `libdecode bench --set all --json` prints; of several the median of each time counts, of two the lower. Prints the tables, or writes them
into the page, between its two marks.
"""

import json
import pathlib
import statistics
import sys

DOC = pathlib.Path(__file__).resolve().parents[2] / "packaging/doc/performance.md"
BEGIN, END = "<!-- performance_tables.py: begin -->\n", "<!-- performance_tables.py: end -->\n"


class Row:
    """A problem of a set, with what each run measured of it."""

    def __init__(self, results):
        (self.facts, *_), self.results = results, results

    def median(self, name):
        values = [result[name] for result in self.results if result[name] is not None]
        return statistics.median_low(values) if values else None

    @property
    def us(self):
        return time(self.median("us"))

    @property
    def share(self):
        return f"{100 * self.median('ceiling_us') / self.median('us'):.0f} %"

    @property
    def heads(self):
        of = self.facts["head_dim"]
        return f"{self.facts['num_qo_heads']}/{self.facts['num_kv_heads']}" + (f" of {of}" if of != 128 else "")

    @property
    def shape(self):
        label, batch, page = self.facts["label"], self.facts["batch_size"], self.facts["page_size"]
        tokens = f"{self.facts['tokens'] // batch:,}"
        of_trace = "ragged trace" in label
        text = f"{batch} of a real trace" if of_trace else f"{batch} x {tokens}" + (", as many tokens" if "uniform trace" in label else "")
        text += f", pages of {page}" if page != 16 else ""
        for word in ("sinks", "window 128"):
            text += f", {word}" if word in label else ""
        return text


SHAPES = {"1x4k": "1 x 4,096", "16x4k": "16 x 4,096", "64x4k": "64 x 4,096", "128x4k": "128 x 4,096", "128x8k": "128 x 8,192", "1x32k": "1 x 32,768"}
DTYPES = {"nvfp4": "NVFP4"}


def named(label):
    """A label in the words of the page: "64x4k nvfp4 page 1" is "64 x 4,096, NVFP4, page 1"."""
    shape, kv, *rest = label.split(" ", 2)
    return ", ".join([SHAPES[shape], DTYPES.get(kv, kv), *rest])


def time(us):
    return "" if us is None else f"{us:.2f}" if us < 10 else f"{us:.1f}"


def table(head, lines):
    cells = [head, ["---"] * len(head), *lines]
    return "".join("| " + " | ".join(line) + " |\n" for line in cells)


def with_ceilings(rows, with_kv):
    head = [*(["KV"] if with_kv else []), "heads", "requests x tokens", "us", "TB/s", "of the ceiling", "its copies alone, us"]
    return table(head, [[*([DTYPES.get(row.facts["kv_dtype"], row.facts["kv_dtype"])] if with_kv else []), row.heads, row.shape, row.us,
                         f"{row.facts['kv_bytes'] / row.median('us') / 1e6:.2f}", row.share, time(row.median("page_ceiling_us"))] for row in rows])


def by_label(rows, first, names, columns):
    """A line for every name, of the rows whose labels are that and a column's."""
    found = {row.facts["label"]: row.us for row in rows}
    return table([first, *columns], [[named(name), *(found.get(f"{name} {column}", "") for column in columns)]
                                     for name in names])


def single(rows):
    found = {row.facts["label"]: row.us for row in rows}
    return table(["heads, tokens", "us", "with RoPE"],
                 [[label, us, found[f"{label} RoPE"]] for label, us in found.items() if "RoPE" not in label])


def mla(rows):
    lines = {}
    for row in rows:
        heads, _, rest = row.facts["label"].partition(" heads ")
        shape, _, kv = rest.replace("trace ", "trace, ").replace(" bf16", "; bf16", 1).replace(" e4m3", "; e4m3", 1).partition("; ")
        lines.setdefault((heads, kv), {})[shape.rstrip(",")] = row.us
    shapes = {**{shape: SHAPES[shape] for shape in ("1x4k", "16x4k", "64x4k", "128x4k", "128x8k")},
              "ragged trace": "64 of a real trace", "uniform trace": "as many tokens evenly"}
    return table(["heads", "KV", *shapes.values()],
                 [[heads, kv.replace(" queries", ", queries"), *(found.get(shape, "") for shape in shapes)]
                  for (heads, kv), found in lines.items()])


def sparse(rows):
    lines = {}
    for row in rows:
        heads, _, rest = row.facts["label"].partition(" heads 128 of 2k ")
        lines.setdefault(rest.replace("q_len 2", "rows of 656, two query tokens of a request"), {})[heads] = row.us
    return table(["rows", "16 heads", "64", "128"],
                 [[name, *(found.get(heads, "") for heads in ("16", "64", "128"))] for name, found in lines.items()])


def drafts(rows):
    names = {}
    for row in rows:
        name, _, q_len = row.facts["label"].partition(" q_len ")
        names.setdefault(name, {})[q_len] = row.us
    return table(["requests x tokens, KV", "1", "4", "8", "16"],
                 [[named(name), *(found.get(q_len, "") for q_len in ("1", "4", "8", "16"))] for name, found in names.items()])


def tables(reports):
    found = {}
    for report in reports:
        for result in report["results"]:
            found.setdefault((result["set"], result["label"]), []).append(result)
    of = lambda *sets: [Row(results) for (name, _), results in found.items() if name in sets]
    options = of("options")
    names = list(dict.fromkeys(" ".join(row.facts["label"].split()[:2]) for row in options))
    return "\n".join([
        "## bf16, head_dim 128\n", with_ceilings(of("standard"), False),
        "## Other formats, pages and head sizes\n", with_ceilings(of("e4m3", "nvfp4", "pages", "head_dims"), True),
        "## Options\n\n32/8 heads, us:\n", by_label(options, "requests x tokens, KV", names, ["plain", "soft cap", "ALiBi", "RoPE", "batch-invariant"]),
        "## Several query tokens\n\n64/8 heads, so 8 rows for each, us by query tokens:\n", drafts(of("drafts")),
        "## Single decode\n\nfp16, contiguous NHD, one request:\n", single(of("single")),
        "## MLA\n\nPages of 64 tokens, us:\n", mla(of("mla")),
        "Sparse, 128 requests, of whose 16,384 rows each query token names 2,048, us:\n", sparse(of("mla_sparse")),
    ])


def main():
    arguments = sys.argv[1:]
    write = arguments[:1] == ["--write"]
    reports = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in arguments[write:]]
    text = tables(reports)
    if not write:
        print(text, end="")
        return
    before, _, rest = DOC.read_text(encoding="utf-8").partition(BEGIN)
    _, mark, behind = rest.partition(END)
    if not mark:
        sys.exit(f"{DOC} has no marks")
    DOC.write_text(before + BEGIN + text + END + behind, encoding="utf-8")


if __name__ == "__main__":
    main()
