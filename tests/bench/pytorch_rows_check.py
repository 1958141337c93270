# SPDX-License-Identifier: Apache-2.0
"""Compares libdecode with attention written in PyTorch in float64, wherever rows of K and V lie: contiguous KV of every format and
any strides, pages of e5m2, and rows more than 2^32 elements apart.

    python3 pytorch_rows_check.py LIBDECODE_SO [--gpu] [--bundle PATH]... [--seed N] [--cases N] [--only TEXT] [--seconds N]

As pytorch_check.py, which has the tolerances: libdecode_reference, or with --gpu the kernels. Attention is that of pytorch_attended.py.
Whatever is no row of a request's tokens is NaN. Rows far apart lie in one buffer of up to 60 GB, of memory that is mapped where it is touched without
--gpu; where there is less of it those cases are skipped, and said so. A case depends on the seed and its number alone. Exits with 1 if a
case fails or none ran, with 77 if --gpu finds none. Problems that no kernel of the bundles serves are counted and named.
"""

import dataclasses
import math
import mmap
import random

import torch

from pytorch_check import alibi_slopes, draft_bits, make_runner
from pytorch_attended import (ALL_DTYPES, HEAD_DIMS, NAMES, NARROW_DIMS, POISON_ID, TORCH, WHOLE_BYTES, attended, compare, item_bytes, random_rows,
                              spread_rows, together)
from pytorch_command import Skipped, read_arguments, run_all, seeded_cases
import libdecode
from libdecode.abi import DTYPE_BF16, DTYPE_E4M3, DTYPE_E5M2, DTYPE_NVFP4, KV_HND, KV_NHD, SF_LINEAR, SF_V_INTERLEAVE4

from pytorch_elements import decode, unswizzled

PAGE_SIZES = [1, 5, 16, 16, 24, 64, 128]
FAR = 2**32  # elements
FAR_BYTES, FAR_MARGIN = 56 << 30, 4 << 30  # and what is left free beside it
MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


# ---------------------------------------------------------------------------------------------------- where rows lie


@dataclasses.dataclass
class Place:
    """Of K, V, or their scales, in units of item_bytes: where row (block, head, token) lies, a block being a page or a request."""

    strides: tuple  # block, head, token
    base: int = 0
    offsets: list = None  # of each request

    def row(self, block, head, token, request, paged):
        begin = self.base + (block * self.strides[0] if paged or self.offsets is None else 0)
        return begin + (self.offsets[request] if self.offsets is not None else 0) + head * self.strides[1] + token * self.strides[2]


def strides_of(extents, order, row, gaps):
    """Of axes b, h, t that lie in `order`, the innermost first, each with a gap behind what is inside; and the whole span."""
    strides, span = {}, row
    for axis, gap in zip(order, gaps):
        strides[axis] = span + gap
        span = strides[axis] * max(extents[axis], 1)
    return (strides["b"], strides["h"], strides["t"]), span


@dataclasses.dataclass
class Span:
    """Tokens of one request and one block, side by side."""

    request: int
    block: int
    first: int
    count: int


class Tensor:
    """K or V: random rows for every span, and their place in a buffer of bytes."""

    def __init__(self, dtype, heads, dim, spans):
        self.dtype, self.spans = dtype, spans
        most = max((span.count for span in spans), default=0)
        self.raw = random_rows(dtype, (len(spans), heads, most, dim))
        self.sf = None
        if dtype == DTYPE_NVFP4:
            self.sf = torch.randint(40, 64, (len(spans), heads, most, dim // 16), dtype=torch.uint8)
            self.sf[torch.rand(self.sf.shape) < 0.03] = 0

    def write(self, flat, place, paged, rows=None):
        """Each span's rows (or its scales) to where they lie in `flat`, of elements as rows are."""
        rows = self.raw if rows is None else rows
        for index, span in enumerate(self.spans):
            begin = place.row(span.block, 0, span.first, span.request, paged)
            view = torch.as_strided(flat, (rows.shape[1], span.count, rows.shape[3]), (*place.strides[1:], 1), begin)
            view.copy_(rows[index, :, : span.count])

    def write_interleaved(self, flat, place, paged):
        """V's scales: byte (token / 4) * 4 S + s * 4 + token % 4 of a block and head, one by one."""
        blocks = self.sf.shape[-1]
        for index, span in enumerate(self.spans):
            token = torch.arange(span.first, span.first + span.count)[:, None]
            at = token // 4 * 4 * blocks + torch.arange(blocks) * 4 + token % 4
            for head in range(self.sf.shape[1]):
                begin = place.row(span.block, head, 0, span.request, paged)
                flat[begin + at.flatten().to(flat.device)] = self.sf[index, head, : span.count].flatten().to(flat.device)

    def of_request(self, request, device):
        """[heads, tokens, D] in float64."""
        def whole(rows):
            parts = [rows[index, :, : span.count] for index, span in enumerate(self.spans) if span.request == request]
            return torch.cat([rows[:0].reshape(rows.shape[1], 0, rows.shape[3]), *parts], 1).to(device)

        return decode(self.dtype, whole(self.raw), None if self.sf is None else whole(self.sf))


class FarMemory:
    """One buffer of FAR_BYTES, or of what there is room for, made when it is first asked for."""

    def __init__(self, device):
        self.device, self.flat, self.map = device, None, None

    def make(self):
        """All poison on a GPU; untouched, and so zero, on the processor."""
        if self.device == "cuda":
            if self.flat is None:
                free = torch.cuda.mem_get_info()[0] - FAR_MARGIN
                if free < FAR_BYTES:
                    raise Skipped(f"rows more than 2^32 elements apart: {FAR_BYTES >> 30} GiB are needed on the GPU, {free >> 30} are free")
                self.flat = torch.empty(FAR_BYTES, dtype=torch.uint8, device="cuda")
            self.flat.fill_(0xFF)
        elif self.flat is None:
            try:
                self.map = mmap.mmap(-1, FAR_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
            except (OSError, ValueError) as error:
                raise Skipped(f"rows more than 2^32 elements apart: {FAR_BYTES >> 30} GiB cannot be mapped ({error})") from error
            self.flat = torch.frombuffer(self.map, dtype=torch.uint8)
        else:
            self.map.madvise(mmap.MADV_DONTNEED)
        return self.flat

    def poison(self, tensor, place, paged):
        """Around every row, and where an offset leads that was cut to 32 or 31 bits, of elements or of bytes."""
        if self.device == "cuda":
            return
        item, (_, heads, _, row) = item_bytes(tensor.dtype), tensor.raw.shape
        for span in tensor.spans:
            for head in range(heads):
                begin = place.row(span.block, head, span.first, span.request, paged) * item
                step, length = place.strides[2] * item, row * item
                for at in range(begin, begin + span.count * step, step):
                    for place_of in {at, at % 2**32, at % 2**31, at % (2**32 * item), at % (2**31 * item)}:
                        self.flat[max(place_of - 512, 0) : place_of + length + 512] = 0xFF


# --------------------------------------------------------------------------------------------------------------- cases


@dataclasses.dataclass
class Case:
    dtypes: tuple
    heads: tuple  # query, KV
    head_dim: int
    paged: bool
    tokens: int  # of a page, or that a request has room for
    seq_lens: list
    q_lens: list
    k: Place
    v: Place
    kv_layout: int = KV_HND
    k_sf: Place = None
    v_sf: Place = None
    table: list = None  # of pages, a list for each request
    num_pages: int = 0
    elements: int = 0  # of the buffer, or 0 where it is the far one
    given_strides: bool = True  # else those of the layout, which they must be
    given_scale_strides: bool = True  # likewise
    given_lengths: bool = True  # else all that there is room for
    ragged: bool = False
    mask: bool = False
    interleaved: bool = False
    in_turns: bool = False  # a row of V behind each of K
    window: int = -1
    sinks: bool = False
    soft_cap: float = 0.0
    rope: tuple = None
    alibi: bool = False
    natural_lse: bool = False
    from_zero: bool = False
    out_gap: int = 0  # units of 16 bytes behind each row of query and out
    out_sf_start: int = 0
    out_sf_scale: float = 1.0
    label: str = ""

    def name(self):
        words = [f"q_{NAMES[self.dtypes[0]]} kv_{NAMES[self.dtypes[1]]} out_{NAMES[self.dtypes[2]]} {self.heads[0]}/{self.heads[1]} "
                 f"d{self.head_dim} {'page' if self.paged else 'contiguous'} {self.tokens} {'NHD' if self.kv_layout else 'HND'} "
                 f"b{len(self.seq_lens)} q{max(self.q_lens)} w{self.window} {self.label}"]
        words += [flag for flag, on in (("strides", self.given_strides), ("offsets", self.k.offsets is not None),
                                        ("no_lengths", not self.given_lengths), ("ragged", self.ragged), ("mask", self.mask),
                                        ("interleaved", self.interleaved), ("in_turns", self.in_turns), ("sinks", self.sinks),
                                        (f"cap{self.soft_cap}", self.soft_cap), (f"rope{self.rope}", self.rope), ("alibi", self.alibi),
                                        ("lse_e", self.natural_lse), ("from_zero", self.from_zero)) if on]
        return " ".join(words)

    def length(self, request):
        """What the library makes of it."""
        return min(max(self.seq_lens[request], 0), self.tokens) if not self.paged else self.seq_lens[request]

    def spans(self):
        """Where the tokens of all requests lie; with a window, those that somebody may see."""
        spans = []
        for request in range(len(self.seq_lens)):
            length = self.length(request)
            if self.paged:
                spans += [Span(request, page, 0, min(self.tokens, length - number * self.tokens))
                          for number, page in enumerate(self.table[request])]
            elif length:
                first = max(0, length - self.q_lens[request] - self.window) if self.window >= 0 else 0
                spans.append(Span(request, request, first, length - first))
        return spans


def unit_of(dtype):
    """16 bytes."""
    return 16 // item_bytes(dtype)


def scale_places(case, extents):
    """Of K and V, in bytes: gaps as alignment wants them, and some more; where rows are dense, scales are, too, if they can be."""
    blocks = case.head_dim // 16
    unit = {8: 8, 16: 16}.get(blocks, 4)
    case.given_scale_strides = case.given_strides or blocks % 4 != 0
    for name in ("k_sf", "v_sf"):
        order = random.sample("bht", 3)
        if not case.given_scale_strides:
            order, gaps = ("htb" if case.kv_layout == KV_NHD and not (name == "v_sf" and case.interleaved) else "thb"), (0, 0, 0)
        elif name == "v_sf" and case.interleaved:
            order = ["t", *random.sample("bh", 2)]
            gaps = [0, *(unit * random.randrange(3) for _ in range(2))]
        else:
            gaps = [-blocks % unit + unit * random.randrange(2), *(unit * random.randrange(3) for _ in range(2))]
        strides, span = strides_of(extents, order, blocks, gaps)
        setattr(case, name, Place(strides, 16 * random.randrange(4)))
        case.elements = max(case.elements, getattr(case, name).base + span)


def near_places(case, any_element, offsets):
    """Axes in any order with any gaps, K and V each its own or row by row in turns; or dense, as the layout says."""
    dtype = case.dtypes[1]
    unit = 1 if any_element else unit_of(dtype)
    row = case.head_dim // (2 if dtype == DTYPE_NVFP4 else 1)
    row += 0 if any_element else -row % unit
    extents = {"b": case.num_pages if case.paged else len(case.seq_lens), "h": case.heads[1], "t": case.tokens}
    if dtype == DTYPE_NVFP4:
        scale_places(case, extents)
    case.in_turns = case.given_strides and random.random() < 0.25
    steps = random.sample(range(len(case.seq_lens) + 2), len(case.seq_lens)) if offsets else None
    for name in ("k", "v"):
        if case.in_turns and name == "v":
            case.v = dataclasses.replace(case.k, base=case.k.base + row)
            continue
        order, gaps = ("htb" if case.kv_layout == KV_NHD else "thb"), (0, 0, 0)
        if case.given_strides:
            order, gaps = random.sample("bht", 3), [unit * random.choice([0, 1, 2, 5, 11]) for _ in range(3)]
            gaps[0] += 1 if any_element and gaps[0] == 0 else 0  # with strides of 16 bytes the base must be one of those, too
        strides, span = strides_of(extents, order, 2 * row if case.in_turns else row, gaps)
        place = Place(strides, unit * random.randrange(9))
        if offsets:  # requests in an order of chance; with pages each in one of several copies of the pool
            axes = "bht" if case.paged else "ht"
            span = 2 * row + sum((max(extents[axis], 1) - 1) * stride for axis, stride in zip("bht", strides) if axis in axes) + 3 * unit
            place.offsets = [step * span + unit * random.randrange(3) for step in steps]
            span += max(place.offsets)
        setattr(case, name, place)
        case.elements = max(case.elements, place.base + span + 2 * row)


def options(case, plain):
    """Everything else by chance. `plain`: of what kernels for offsets and any strides can do."""
    case.window = random.choice([-1, -1, 0, 3, 17, 127])
    case.sinks, case.natural_lse = random.random() < 0.4, random.random() < 0.3
    case.mask = max(case.q_lens) > 1 and random.random() < 0.3
    if case.dtypes[2] == DTYPE_NVFP4:
        case.out_sf_start, case.out_sf_scale = random.choice([0, 1, 120, 128]), random.choice([1.0, 37.5, 2000.0])
    if plain:
        return
    case.soft_cap = random.choice([0.0, 0.0, 0.5, 30.0])
    case.alibi = random.random() < 0.3
    case.from_zero = case.alibi and random.random() < 0.5
    if case.dtypes[1] != DTYPE_NVFP4 or case.head_dim % 64 == 0:
        case.rope = random.choice([None, None, (0.0, 0.0), (4.0, 500000.0)])


def near_case(index):
    dtypes = ALL_DTYPES[index % len(ALL_DTYPES)]
    kv = dtypes[1]
    any_element = kv in WHOLE_BYTES and random.random() < 0.35
    offsets = kv in WHOLE_BYTES and random.random() < 0.15
    plain = any_element or offsets or random.random() < 0.3
    narrow = kv not in WHOLE_BYTES or any_element or offsets
    kv_heads, group = random.choice([1, 2, 3, 8]), random.choice([1, 4, 5, 8, 16])
    paged, batch = kv == DTYPE_E5M2 and random.random() < 0.5, random.choice([1, 2, 3, 5])
    tokens = random.choice(PAGE_SIZES if paged else [1, 7, 16, 33, 64, 100, 128, 260, 500])
    interleaved = kv == DTYPE_NVFP4 and random.random() < 0.5
    tokens += -tokens % 4 if interleaved else 0
    head_dim = random.choice(NARROW_DIMS if narrow else HEAD_DIMS)
    q_len = random.choice([1, 1, 2, 3, 4, 7, 16])
    ragged = q_len > 1 and random.random() < 0.3
    q_lens = [random.randrange(q_len + 1) for _ in range(batch - 1)] + [q_len] if ragged else [q_len] * batch
    lengths = [random.choice([0, 1, q_len - 1, tokens - 1, tokens, random.randrange(tokens * (3 if paged else 1) + 1),
                              random.randrange(tokens * (3 if paged else 1) + 1)]) for _ in range(batch)]
    case = Case(dtypes=dtypes, heads=(kv_heads * group, kv_heads), head_dim=head_dim, paged=paged, tokens=tokens, seq_lens=lengths, q_lens=q_lens,
                k=None, v=None, kv_layout=random.randrange(2), ragged=ragged, interleaved=interleaved, out_gap=random.choice([0, 0, 1, 2]))
    if paged:
        live = [-(-length // tokens) for length in lengths]
        case.num_pages = sum(live) + 2
        order = random.sample(range(case.num_pages), case.num_pages)
        case.table = [[order.pop() for _ in range(pages)] for pages in live]
    else:  # what is below 0 is 0, what is above all is all
        case.seq_lens = [random.choice([length, length, -2, tokens + 9]) for length in lengths]
        case.given_lengths = random.random() < 0.75
        case.seq_lens = case.seq_lens if case.given_lengths else [tokens] * batch
    case.given_strides = random.random() < 0.75 or (kv == DTYPE_NVFP4 and head_dim % 32 != 0) or any_element
    near_places(case, any_element, offsets)
    while any_element and not offsets and not any(stride % unit_of(kv) for place in (case.k, case.v) for stride in place.strides):
        near_places(case, any_element, offsets)  # by chance all are of 16 bytes, and then bases must be
    options(case, plain)
    case.label = "any_element" if any_element else ""
    return case


FAR_KINDS = ["token", "head", "block", "page", "ids", "late", "deep", "offsets", "page_token", "page_head", "page_offsets"]


def far_case(index):
    """K and V of which one axis, an id, a position or an offset leads beyond 2^32 elements. All are kinds that both dtypes have."""
    kind, kv = FAR_KINDS[index % len(FAR_KINDS)], (DTYPE_E4M3, DTYPE_BF16)[index % 2]
    limit = FAR_BYTES // item_bytes(kv)
    most = limit // FAR - 1  # steps of more than 2^32
    any_element = index % 3 == 1
    unit = 1 if any_element else unit_of(kv)
    stride = FAR + unit * random.randrange(1, 4000) | any_element  # with strides of 16 bytes bases must be, too
    head_dim, kv_heads, group = random.choice([64, 128, 256]), 2, random.choice([1, 4, 8])
    paged = kind in ("page", "ids", "page_token", "page_head", "page_offsets")
    tokens, batch = random.choice([16, 64] if paged else [100, 300]), min(3, most)
    q_len = random.choice([1, 1, 3])
    if kind in ("token", "page_token"):
        tokens = min(most, 9)
    if kind in ("head", "page_head"):
        kv_heads = min(most, 4)
    if kind in ("block", "deep"):
        batch = min(most, 3)
    pages = 2 if kind == "page" else 3  # of a request
    lengths = [random.randrange(1, tokens * (pages if paged else 1) + 1) for _ in range(batch - 1)]
    lengths += [tokens * (2 if paged else 1) - (random.random() < 0.5)]
    case = Case(dtypes=(DTYPE_BF16 if kv == DTYPE_BF16 else random.choice([DTYPE_BF16, DTYPE_E4M3]), kv, DTYPE_BF16),
                heads=(kv_heads * group, kv_heads), head_dim=head_dim, paged=paged, tokens=tokens, seq_lens=lengths, q_lens=[q_len] * batch,
                k=None, v=None, kv_layout=random.randrange(2), label=f"far_{kind}", sinks=random.random() < 0.3)
    live = [-(-length // tokens) for length in lengths]
    order = "thb"
    row = head_dim + unit * random.randrange(5)
    if paged:
        case.num_pages = most if kind == "page" else sum(live) + 1
        ids = random.sample(range(case.num_pages), sum(live))
        case.table = [[ids.pop() for _ in range(count)] for count in live]
    extents = {"b": case.num_pages if paged else batch, "h": kv_heads, "t": tokens}
    if kind in ("ids", "late", "deep"):
        case.given_strides = not any_element or kind == "ids"
        dense = head_dim if kind != "ids" else row
        order = "htb" if case.kv_layout == KV_NHD else "thb"
        base = limit // 2 // 4096 * 4096
        if kind == "ids":
            extents["b"] = case.num_pages = base // (dense * kv_heads * tokens) - 1
            numbers = random.sample(range(FAR // (dense * kv_heads * tokens) + 1, case.num_pages), sum(live) - 1) + [case.num_pages - 1]
            case.table = [[numbers.pop() for _ in range(count)] for count in live]
        elif kind == "late":  # the second half of what one request has room for, under a window
            case.kv_layout, order = KV_NHD, "htb"
            batch, case.q_lens = 1, [q_len]
            case.tokens = extents["t"] = base // (dense * kv_heads)
            extents["b"], case.window = 1, random.choice([17, 300])
            case.seq_lens = [random.randrange(FAR // (dense * kv_heads) + 1000, case.tokens + 1)]
        else:  # dense, and so much room that the next request is far
            case.tokens = extents["t"] = FAR // (dense * kv_heads) + random.randrange(1, 100)
            batch = extents["b"] = max(base // (case.tokens * dense * kv_heads), 1)
            case.q_lens, case.seq_lens = [q_len] * batch, [random.randrange(1, 200) for _ in range(batch)]
        strides, _ = strides_of(extents, order, dense, (0, 0, 0))
        case.k, case.v = Place(strides, 64 * unit_of(kv)), Place(strides, base + 64 * unit_of(kv))
        return case
    far_axis = {"token": "t", "page_token": "t", "head": "h", "page_head": "h", "block": "b", "page": "b"}.get(kind)
    if far_axis is not None:  # outermost; K's and V's rows in turns
        order = "".join(random.sample([axis for axis in "bht" if axis != far_axis], 2)) + far_axis
    strides, span = strides_of(extents, order, 2 * row, (0, unit * random.randrange(9), unit * random.randrange(9)))
    if far_axis is not None:
        strides = tuple(stride if axis == far_axis else own for axis, own in zip("bht", strides))
    case.k, case.v = Place(strides, 4096 + unit), Place(strides, 4096 + unit + row)
    if kind in ("offsets", "page_offsets"):
        slots = random.sample(range(FAR // span + 1, (limit - span) // span), batch)
        case.k.offsets = [slot * span + unit * random.randrange(span // unit // 2) for slot in slots]
        case.v.offsets = list(case.k.offsets)
    return case


# ----------------------------------------------------------------------------------------------------------------- a run


def place_rows(runner, case, far, k, v):
    """Buffers of K and V, with their rows among poison."""
    dtype, device = case.dtypes[1], runner.device
    if not case.elements:
        flat = far.make()
        for tensor, place in ((k, case.k), (v, case.v)):
            far.poison(tensor, place, case.paged)
        flats = [flat.view(TORCH[dtype])] * 2
    else:
        makers = [torch.full((case.elements * item_bytes(dtype) + 4096,), 0xFF, dtype=torch.uint8) for _ in range(2)]
        flats = [flat.view(TORCH[dtype]).to(device) for flat in makers]
        if case.in_turns:
            flats[1] = flats[0]
    for tensor, place, flat in ((k, case.k, flats[0]), (v, case.v, flats[1])):
        tensor.write(flat, place, case.paged)
    scales = [None, None]
    if dtype == DTYPE_NVFP4:
        scales = [torch.full((case.elements + 4096,), 0x7F, dtype=torch.uint8, device=device) for _ in range(2)]
        k.write(scales[0], case.k_sf, case.paged, k.sf)
        if case.interleaved:
            v.write_interleaved(scales[1], case.v_sf, case.paged)
        else:
            v.write(scales[1], case.v_sf, case.paged, v.sf)
    return flats, scales


def run_case(runner, case, far):
    """As of pytorch_check.py."""
    (heads, kv_heads), (query_dtype, kv_dtype, out_dtype), device = case.heads, case.dtypes, runner.device
    batch, tokens, dim, spans = len(case.seq_lens), sum(case.q_lens), case.head_dim, case.spans()
    k, v = (Tensor(kv_dtype, kv_heads, dim, spans) for _ in range(2))
    query, _ = spread_rows((tokens, heads, dim), TORCH[query_dtype], case.out_gap, device, 127)
    query.copy_(random_rows(query_dtype, (tokens, heads, dim)))
    per_byte = 2 if out_dtype == DTYPE_NVFP4 else 1
    out, whole_out = spread_rows((tokens, heads, dim // per_byte), TORCH[out_dtype], case.out_gap, device, 77)
    lse = torch.full((tokens, heads), 77.0, device=device)
    sf_rows, sf_columns = -(-(tokens + case.out_sf_start) // 128) * 128, -(-heads * dim // 16 // 4) * 4
    out_sf = torch.full((sf_rows * sf_columns,), 77, dtype=torch.uint8, device=device) if out_dtype == DTYPE_NVFP4 else None
    sinks = (torch.randn(heads) * 3).to(device) if case.sinks else None
    allowed, packed_mask = draft_bits(case, tokens) if case.mask else (None, None)
    slopes = alibi_slopes(heads).to(device) if case.alibi else None
    bmm1, bmm2 = torch.tensor(1 / math.sqrt(dim)).item(), torch.tensor(random.choice([1.0, 0.37, 2.5])).item()
    flats, scales = place_rows(runner, case, far, k, v)

    on = {"lse": True, "sinks": case.sinks, "ragged_q": case.ragged, "draft_mask": case.mask, "soft_cap": case.soft_cap, "alibi": case.alibi,
          "rope": case.rope, "lse_natural": case.natural_lse, "lse_alibi_from_zero": case.from_zero, "contiguous_kv": not case.paged,
          "kv_offsets": case.k.offsets is not None}
    fields = {"page_size": case.tokens, "num_pages": case.num_pages} if case.paged else {"kv_capacity_tokens": case.tokens}
    table = None
    if case.paged:
        table = torch.full((batch, max(map(len, case.table)) + 2), POISON_ID, dtype=torch.int32)
        for request, pages in enumerate(case.table):
            table[request, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        table, fields["page_table_request_stride"] = table.to(device), table.shape[1]
    if case.given_strides:
        for name in ("k", "v"):
            elements = 2 if kv_dtype == DTYPE_NVFP4 else 1
            for axis, stride in zip(("page", "head", "token"), getattr(case, name).strides):
                fields[f"{name}_{axis}_stride"] = stride * elements
    if kv_dtype == DTYPE_NVFP4 and case.given_scale_strides:
        fields.update({f"{name}_{axis}_stride": stride for name in ("k_sf", "v_sf")
                       for axis, stride in zip(("page", "head", "token"), getattr(case, name).strides)})
    problem = libdecode.Problem(
        features=[name for name, is_on in on.items() if is_on], query_dtype=query_dtype, kv_dtype=kv_dtype, out_dtype=out_dtype, batch_size=batch,
        num_qo_heads=heads, num_kv_heads=kv_heads, head_dim=dim, q_len=max(case.q_lens), window_left=case.window, kv_layout=case.kv_layout,
        v_sf_layout=SF_V_INTERLEAVE4 if case.interleaved else SF_LINEAR, logits_soft_cap=case.soft_cap,
        rope_scale=case.rope[0] if case.rope else 0.0, rope_theta=case.rope[1] if case.rope else 0.0,
        query_token_stride=query.stride(0), query_head_stride=query.stride(1),
        out_token_stride=out.stride(0) * per_byte, out_head_stride=out.stride(1) * per_byte, **fields)
    lengths, ends = torch.tensor(case.seq_lens, dtype=torch.int32), torch.tensor([0, *case.q_lens]).cumsum(0).int()
    tensors = {"k_sf": scales[0], "v_sf": scales[1], "page_table": table, "seq_lens": lengths.to(device) if case.given_lengths else None}
    for name, place, flat in (("k", case.k, flats[0]), ("v", case.v, flats[1])):
        tensors[f"{name}_cache"] = flat.data_ptr() + place.base * item_bytes(kv_dtype)
        if name == "k" and kv_dtype == DTYPE_NVFP4:
            tensors["k_sf"] = scales[0].data_ptr() + case.k_sf.base
        if name == "v" and kv_dtype == DTYPE_NVFP4:
            tensors["v_sf"] = scales[1].data_ptr() + case.v_sf.base
        if place.offsets is not None:
            tensors[f"{name}_offsets"] = torch.tensor(place.offsets).to(device)
    kernel = runner.run(
        problem, query=query, out=out, out_sf=out_sf, lse=lse, sinks=sinks, cum_seq_lens_q=ends.to(device) if case.ragged else None,
        draft_mask=None if packed_mask is None else packed_mask.to(device), alibi_slopes=slopes, bmm1_scale=bmm1, bmm2_scale=bmm2,
        out_sf_scale=case.out_sf_scale, out_sf_start_token=case.out_sf_start, **tensors)

    parts, query_values = [], decode(query_dtype, query.contiguous())
    for request in range(batch):
        rows = slice(int(ends[request]), int(ends[request + 1]))
        first = next((span.first for span in spans if span.request == request), 0)
        parts.append(attended(
            query_values[rows], k.of_request(request, device), v.of_request(request, device), scale=bmm1, first=first, window=case.window,
            soft_cap=case.soft_cap, slopes=slopes, rope=case.rope, sinks=sinks,
            drafts=None if allowed is None else allowed[rows, : rows.stop - rows.start]))
        if case.from_zero:
            positions = torch.arange(rows.stop - rows.start, device=device) + case.length(request) - (rows.stop - rows.start)
            parts[-1].lse += positions[:, None] * slopes.double()
    expected = together(parts)
    expected.out *= bmm2
    if not case.natural_lse:
        expected.lse /= math.log(2)
    result = out.contiguous()
    matrix = None if out_sf is None else unswizzled(out_sf, sf_rows, sf_columns)
    errors = compare(runner, case, expected, bmm2, result, lse, matrix)
    out.fill_(77)
    if (whole_out != 77).any():
        raise AssertionError(f"{case.name()}: something was written between the rows of out")
    return *errors, kernel


def make_case(number):
    """Of six the last is far."""
    return far_case(number // 6) if number % 6 == 5 else near_case(number - number // 6)


def main():
    arguments = read_arguments(__doc__, 264)
    runner = make_runner(arguments)
    far = FarMemory(runner.device)
    run_all(arguments, seeded_cases(arguments, make_case), lambda case: run_case(runner, case, far))


if __name__ == "__main__":
    main()
