# SPDX-License-Identifier: Apache-2.0
"""The tables of packaging/doc/performance.md as a drawing: performance_plot.py [--write].

A bar for every row that says how much of the read ceiling it reaches. Prints the SVG, or writes it beside the tables.
"""

import pathlib
import re
import sys

DOC = pathlib.Path(__file__).resolve().parents[2] / "packaging/doc"
LINE, LABELS, SCALE, TOP = 20, 390, 400, 40  # pixels: a row's height, the width of the labels, of 100 %, of the head

# In light and in dark: text as the page has it would be best, but an image has no page.
STYLE = """
text { font: 12px sans-serif; fill: #333 } .grid { stroke: #bbb } .gqa { fill: #2a7f62 } .other { fill: #7a5fa5 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #555 } .gqa { fill: #54b893 } .other { fill: #a48bd0 } }
"""


def rows():
    """(label, percent, whether the KV is bf16) of each row of the first two tables; of cells with two figures the first."""
    tables = re.findall(r"(?:^\|.*\n)+", (DOC / "performance.md").read_text(encoding="utf-8"), re.MULTILINE)
    for table in tables[:2]:
        head, _, *lines = ([cell.strip() for cell in line.strip("|\n ").split("|")] for line in table.splitlines())
        for cells in lines:
            row = dict(zip(head, cells))
            plain = {name: re.split(r"; | \(pages", text)[0] for name, text in row.items()}
            heads, _, head_dim = plain["heads"].partition(" of ")
            label = f"{plain.get('KV', 'bf16')}, {heads} heads{head_dim and ' of '}{head_dim}, {plain['requests x tokens']}"
            yield label, int(row["of the ceiling"].split()[0]), "KV" not in row


def drawing():
    bars = list(rows())
    height = TOP + LINE * len(bars) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABELS + SCALE + 60}" height="{height}" role="img">',
             "<title>Share of the read ceiling on an H200</title>", f"<style>{STYLE}</style>",
             '<text x="8" y="16">the time in which the same H200 reads as many bytes and does nothing else, over that of the kernel: requests x tokens</text>']
    for percent in range(0, 101, 25):
        x = LABELS + SCALE * percent // 100
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP - 4}" y2="{height - 8}"/>'
                     f'<text x="{x}" y="{TOP - 8}" text-anchor="middle">{percent} %</text>')
    for number, (label, percent, is_bf16) in enumerate(bars):
        y = TOP + LINE * number
        parts.append(f'<text x="{LABELS - 8}" y="{y + 14}" text-anchor="end">{label}</text>'
                     f'<rect class="{"gqa" if is_bf16 else "other"}" x="{LABELS}" y="{y + 3}" width="{SCALE * percent // 100}" '
                     f'height="{LINE - 6}"/><text x="{LABELS + SCALE * percent // 100 + 6}" y="{y + 14}">{percent} %</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        (DOC / "performance.svg").write_text(drawing(), encoding="utf-8")
    else:
        print(drawing(), end="")
