# SPDX-License-Identifier: Apache-2.0
"""Compares libdecode's MLA with attention written in PyTorch in float64, over random batches: dense, and sparse in every kind of row.

    python3 pytorch_mla_check.py LIBDECODE_SO [--gpu] [--bundle PATH]... [--seed N] [--cases N] [--only TEXT] [--seconds N]

Without --gpu it is libdecode_reference that is compared, on the processor: a result may differ from the exact value by half a unit
in the last place of its dtype, and by nothing else. With --gpu it is the kernels that libdecode chooses: beside that by what
rounding explains (kernel_tolerance). The PyTorch side is written another way on purpose: whole matrices, boolean masks, logsumexp,
rows of 656 and 352 bytes taken apart as bytes. Every row that no query token sees, what lies between rows, and page ids past the
last live one are poison. A case depends on the seed and its own number alone, so that --only makes it again. Exits with 1 if a case
fails or none ran, with 77 if --gpu finds no GPU. Problems that no kernel of the bundles serves are counted and named.
"""

import dataclasses
import math
import random

import torch

from pytorch_check import (DTYPES, ELEMENTS_OF_16_BYTES, NAMES, POISON_ID, TORCH, libdecode, make_runner, nvfp4_error, pair_squares,
                           random_elements, words_of)
from pytorch_command import read_arguments, run_all
from pytorch_elements import decode, e4m3_decode, half_units, nvfp4_decode, unswizzled

from libdecode.abi import (DTYPE_BF16, DTYPE_E4M3, DTYPE_FP16, DTYPE_NVFP4, KV_ROW_FP8_SCALED_656, KV_ROW_NVFP4_352, KV_ROW_PLAIN,
                           OP_MLA_DECODE)

LATENT, ROPE = 512, 64  # elements of rows of 656 and 352 bytes
ROW_NAMES = {KV_ROW_PLAIN: "", KV_ROW_FP8_SCALED_656: " rows656", KV_ROW_NVFP4_352: " rows352"}
DENSE = [dtypes for dtypes in DTYPES if dtypes[1] != DTYPE_NVFP4]
SCALED = [dtypes for dtypes in DTYPES if dtypes[1] == DTYPE_E4M3]
HALF_BYTES = [dtypes for dtypes in DTYPES if dtypes[1] == DTYPE_NVFP4]
HEADS = [1, 2, 3, 7, 8, 12, 16, 16, 17, 32, 33, 48, 63, 64, 64, 65, 96, 100, 128, 128, 129, 192]
PAGE_SIZES = [16, 16, 32, 32, 64, 64, 64, 128, 256, 512, 1024]
SPARSE_PAGE_SIZES = [1, 2, 5, 16, 24, 32, 48, 64, 64, 64, 128, 256, 1024]
TOP_KS = [1, 3, 17, 63, 64, 65, 128, 200, 256, 512, 777, 1024, 2048]
ROW_TOKENS = 300_000  # query heads times query tokens times KV tokens of a case, at most
UNTOUCHED = 77
OTHER_ORDER = 2.0**-44  # of the largest |v|, and of an lse: what sums of float64 may differ by where they cancel


@dataclasses.dataclass
class Case:
    dtypes: tuple  # query, KV, out
    row_format: int
    head_dim: int
    heads: int
    page_size: int
    q_lens: list
    seq_lens: list  # as given, which may be more than there is room for, and less than 0
    ragged: bool = False
    top_k: int = 0  # 0: dense
    top_k_lens: bool = False  # sparse: lengths of each query token's own
    window: int = -1
    mask: bool = False
    query_positions: list = None
    position_stride: int = 1
    position_offset: int = 0
    capacity: int = 0  # KV tokens that a request has at most
    no_lens: bool = False  # with capacity: as many as that
    full_table: bool = False  # dense: the table has no entry behind the longest request's, whose length says more
    holes: bool = False  # dense: page ids that name no page, so that their rows are zero
    bounded: bool = True  # dense: num_pages is given
    split_query: bool = False
    sinks: bool = False
    soft_cap: float = 0.0
    lse: tuple = ()  # features of it
    scales: str = "host"  # or "device", "log2"
    scale_rule: str = ""  # of rows of 656 bytes: powers of two, any, or as far apart as they may be
    wide_strides: bool = False
    skip: float = 0.0  # skip-softmax, which MLA computes densely
    invariant: bool = False
    out_sf_start: int = 0
    out_sf_scale: float = 1.0

    @property
    def v_dim(self):
        return LATENT if self.head_dim == LATENT else self.head_dim - ROPE

    def name(self):
        flags = [flag for flag, on in (
            (f"ids{self.top_k}", self.top_k), ("lens", self.top_k_lens), ("ragged", self.ragged), (f"w{self.window}", self.window >= 0),
            ("mask", self.mask), ("positions", self.query_positions), (f"every{self.position_stride}", self.position_stride > 1),
            (f"capacity{self.capacity}", self.capacity), ("nolens", self.no_lens), ("full", self.full_table), ("holes", self.holes),
            ("split", self.split_query), ("sinks", self.sinks), (f"cap{self.soft_cap}", self.soft_cap), (" ".join(self.lse), self.lse),
            (f"{self.scales}_scales", self.scales != "host"), (self.scale_rule, self.scale_rule), ("strides", self.wide_strides),
            ("skip", self.skip), ("invariant", self.invariant)) if on]
        return (f"{'sparse' if self.top_k else 'dense'} q_{NAMES[self.dtypes[0]]} kv_{NAMES[self.dtypes[1]]}{ROW_NAMES[self.row_format]} "
                f"out_{NAMES[self.dtypes[2]]} h{self.heads} d{self.head_dim} p{self.page_size} q{max(self.q_lens)} "
                f"s{max(self.seq_lens)} {' '.join(flags)}").strip()


def scaled_row_values(rows):
    """[..., 656] bytes: 512 e4m3, four float32 that each scale 128 of them, 64 bf16."""
    latent = e4m3_decode(rows[..., :512].contiguous()).unflatten(-1, (4, 128))
    scales = rows[..., 512:528].contiguous().view(torch.float32).double()
    return torch.cat([(latent * scales[..., None]).flatten(-2), rows[..., 528:].contiguous().view(torch.bfloat16).double()], -1)


def half_byte_row_values(rows):
    """[..., 352] bytes: 512 e2m1, 64 e4m3, 32 scales: four groups, of which each has every fourth block's."""
    scales = rows[..., 320:].unflatten(-1, (4, 8)).transpose(-1, -2).flatten(-2)
    return torch.cat([nvfp4_decode(rows[..., :256], scales.contiguous()), e4m3_decode(rows[..., 256:320].contiguous())], -1)


def scaled_rows(rule, shape):
    """Bytes of rows whose scales are powers of two, as FlashMLA's quantiser makes them; any numbers; or tiny and huge ones, too, where
    query_rows has 0."""
    scales = torch.exp2(torch.randint(-4, 2, (*shape, 4)).float())
    if rule != "pow2":
        scales = torch.rand(*shape, 4) * 1.9 + 0.05
    if rule == "far":
        scales[..., 2] = torch.exp2(torch.randint(-60, -20, shape).float())
        scales[..., 3] = torch.where(torch.rand(shape) < 0.01, 1.5 * 2.0**12, 2.0**-3)
    scales[torch.rand(scales.shape) < 0.03] = 0
    rope = torch.randn(*shape, ROPE).bfloat16()
    return torch.cat([random_elements(DTYPE_E4M3, (*shape, LATENT)), scales.view(torch.uint8), rope.view(torch.uint8)], -1)


def half_byte_rows(shape):
    scales = torch.randint(40, 64, (*shape, LATENT // 16), dtype=torch.uint8)  # 2^-2 to just below 2
    scales[torch.rand(scales.shape) < 0.03] = 0
    return torch.cat([random_elements(DTYPE_NVFP4, (*shape, LATENT)), random_elements(DTYPE_E4M3, (*shape, ROPE)), scales], -1)


class Rows:
    """The KV cache as [pages * page_size, row] on the processor; and laid out for the library, poison where nobody may look."""

    def __init__(self, case, pages):
        self.case, self.pages = case, pages
        shape = (pages * case.page_size,)
        if case.row_format == KV_ROW_PLAIN:
            self.raw = random_elements(case.dtypes[1], (*shape, case.head_dim))
        else:
            self.raw = half_byte_rows(shape) if case.row_format == KV_ROW_NVFP4_352 else scaled_rows(case.scale_rule, shape)

    def values(self, indices, device):
        """Of rows by their number, [n, head_dim]; zero for those below 0."""
        raw = self.raw[indices.clamp(min=0)].to(device)
        if self.case.row_format == KV_ROW_PLAIN:
            values = decode(self.case.dtypes[1], raw)
        else:
            values = half_byte_row_values(raw) if self.case.row_format == KV_ROW_NVFP4_352 else scaled_row_values(raw)
        return values.masked_fill((indices < 0).to(device)[:, None], 0.0)

    def place(self, seen, device):
        """(memory, page stride, token stride), in elements: rows that are not seen, and gaps, are NaN of either sign."""
        case, row = self.case, self.raw.shape[1]
        unit = 16 // self.raw.element_size()
        token = row + unit * (random.choice([0, 1, 5]) if case.wide_strides else 0)
        page = case.page_size * token + unit * (random.choice([0, 3, 2 * token]) if case.wide_strides else 0)
        if case.wide_strides and random.random() < 0.2:  # the pages lie side by side, token by token
            page, token = token, self.pages * token + unit
        elements = (self.pages - 1) * page + (case.page_size - 1) * token + row
        per_element, nan = 2 if case.row_format == KV_ROW_NVFP4_352 else 1, 0xFF if self.raw.dtype == torch.uint8 else math.nan
        flat, poison = torch.full((elements,), nan, dtype=self.raw.dtype), torch.full_like(self.raw, nan)
        if nan == 0xFF:  # of float32 and bf16, too, which 0x7F is not
            poison[1::2, : case.v_dim // per_element] = 0x7F
        rows = torch.as_strided(flat, (self.pages, case.page_size, row), (page, token, 1))
        rows.copy_(torch.where(seen[:, None], self.raw, poison).view(rows.shape))
        return flat.to(device), page * per_element, token * per_element


@dataclasses.dataclass
class View:
    """Query tokens and the KV tokens that one of them at least might see: rows by their number (-1: zero), [q, n] whether they do."""

    tokens: slice
    rows: torch.Tensor
    visible: torch.Tensor


def lengths_in(case, room):
    """Of the requests, as they count."""
    room = case.capacity or room
    return [room if case.no_lens else min(max(length, 0), room) for length in case.seq_lens]


def visible_tokens(case, request, q_len, seq_len, drafts):
    """[q_len, seq_len]: said as a number of local keys, as context parallelism defines it, rather than as a comparison."""
    stride, offset, own = case.position_stride, case.position_offset, torch.arange(q_len) + seq_len - q_len
    position = own * stride + offset if case.query_positions is None else torch.arange(q_len) + case.query_positions[request]
    keys = torch.div(position - offset, stride, rounding_mode="floor") + 1
    visible = torch.arange(seq_len)[None, :] < keys[:, None]
    if drafts is not None:
        shown = min(q_len, seq_len)
        visible[:, seq_len - shown :] = drafts[:, q_len - shown : q_len]
    if case.window >= 0:
        visible &= position[:, None] - (torch.arange(seq_len) * stride + offset)[None, :] <= case.window
    if case.query_positions is None:
        visible &= own[:, None] >= 0
    return visible


def dense_views(case, slices, drafts):
    """(views, page table, pages of the pool): pages in a random order, ids past the last live one poison."""
    pages = [-(-length // case.page_size) for length in lengths_in(case, 2**31)]
    if case.full_table:
        longest = max(range(len(pages)), key=lambda request: case.seq_lens[request])
        pages[longest] -= 1  # whose length says more
    width = max(*pages, -(-case.capacity // case.page_size), 1) + (0 if case.full_table else random.randrange(3))
    table = torch.full((len(pages), width), POISON_ID, dtype=torch.int32)
    pool = sum(pages) + 3
    order, views = torch.randperm(pool, dtype=torch.int32), []
    for request, (length, tokens) in enumerate(zip(lengths_in(case, width * case.page_size), slices)):
        ids, order = order[: pages[request]].clone(), order[pages[request] :]
        if case.holes:
            outside = [-1, -(2**31), -7] + ([pool, POISON_ID] if case.bounded else [])
            for page in range(len(ids)):
                ids[page] = random.choice(outside) if random.random() < 0.2 else ids[page]
        table[request, : len(ids)] = ids
        token = torch.arange(length)
        page = ids[token // case.page_size].long()
        rows = torch.where((page >= 0) & (page < pool), page * case.page_size + token % case.page_size, -1)
        visible = visible_tokens(case, request, tokens.stop - tokens.start, length, None if drafts is None else drafts[tokens])
        views.append(View(tokens, rows, visible))
    return views, table, pool


def sparse_views(case, slices):
    """(views, ids, lengths or None, pages of the pool): ids of live rows, of none, and behind those that count of poison."""
    tokens, top_k = slices[-1].stop, case.top_k
    pages = -(-random.randrange(top_k // 2 + 40, 2 * top_k + 200) // case.page_size) + 1
    num_rows = pages * case.page_size
    order = torch.randperm(num_rows, dtype=torch.int32)
    live, dead = order[: num_rows * 2 // 3], order[num_rows * 2 // 3 :]
    counts = [length - rows.stop + token + 1 for length, rows in zip(lengths_in(case, 2**31), slices) for token in range(tokens)[rows]]
    if case.top_k_lens:
        choices = [0, 1, -1, top_k - 1, top_k, top_k + 1, 2**31 - 1, -(2**31)]
        counts = [random.choice(choices) if random.random() < 0.3 else random.randrange(top_k + 1) for _ in range(tokens)]
    outside = torch.tensor([-1, -2, -num_rows, -(2**31), num_rows, 2**31 - 1], dtype=torch.int32)
    ids, views = torch.empty(tokens, top_k, dtype=torch.int32), []
    for token, count in enumerate(counts):
        count = min(max(count, 0), top_k)
        row = outside[torch.randint(len(outside), (top_k,))]
        picked = live[torch.randperm(len(live))][:top_k]
        twice = torch.rand(len(picked)) < 0.05
        picked = torch.where(twice, picked.roll(1), picked)
        row[: len(picked)] = picked
        gaps = torch.rand(top_k) < random.choice([0.0, 0.15, 0.15, 0.6, 1.0 if token % 5 == 0 else 0.0])
        row[gaps] = outside[torch.randint(len(outside), (int(gaps.sum()),))]
        row[:count] = row[:count][torch.randperm(count)]
        row[count:] = dead[torch.randint(len(dead), (top_k - count,))]
        ids[token] = row
        named = row[:count].long()
        named = named[(named >= 0) & (named < num_rows)]
        views.append(View(slice(token, token + 1), named, torch.ones(1, len(named), dtype=torch.bool)))
    return views, ids, torch.tensor(counts, dtype=torch.int32) if case.top_k_lens else None, dead, pages


@dataclasses.dataclass
class Expected:
    """Exact results [q, H, ...], the lse in base 2, and what rounding depends on: sqrt(sum (w v)^2), sqrt(sum w^2), the tokens that
    are seen, the largest |v| of these, and of their scores the largest sqrt(sum over pairs of |q|^2 |k|^2), times the scale."""

    out: torch.Tensor
    lse: torch.Tensor
    spread: torch.Tensor
    weight: torch.Tensor
    tokens: torch.Tensor
    largest: torch.Tensor
    turned: torch.Tensor


def attention(case, query, keys, visible, sinks, scale):
    """Of query rows [q, H, D] and KV rows [n, D], of which the first elements are V."""
    values = keys[:, : case.v_dim]
    logits = torch.einsum("qhd,nd->qhn", query, keys) * scale
    if case.soft_cap:
        logits = torch.tanh(logits / case.soft_cap) * case.soft_cap
    hidden = ~visible[:, None, :]
    logits = logits.masked_fill(hidden, -math.inf)
    nothing = logits.new_full((*logits.shape[:2], 1), -math.inf)
    sink = nothing if sinks is None else sinks.double()[None, :, None].expand(nothing.shape)
    total = torch.logsumexp(torch.cat([logits, sink], -1), -1)
    weights = torch.exp(logits - total.masked_fill(total == -math.inf, 0.0)[..., None])
    lse = torch.logsumexp(torch.cat([logits, nothing], -1), -1) if "lse_without_sink" in case.lse else total
    if "lse_empty_infinity" in case.lse:
        lse = lse.masked_fill(lse == -math.inf, math.inf)
    turned = torch.zeros_like(lse)
    if case.dtypes[:2] == (DTYPE_E4M3, DTYPE_E4M3) and keys.shape[0]:  # whose sums kernels may cut
        pairs = torch.einsum("qhd,nd->qhn", pair_squares(query), pair_squares(keys))
        turned = abs(scale) * pairs.masked_fill(hidden, 0.0).amax(-1).sqrt()
    magnitude = torch.nn.functional.pad(visible * values.abs().amax(-1), (0, 1))
    return Expected(
        out=torch.einsum("qhn,nd->qhd", weights, values), lse=lse / math.log(2),
        spread=torch.einsum("qhn,nd->qhd", weights**2, values**2).sqrt(), weight=weights.square().sum(-1).sqrt(),
        tokens=visible.sum(-1).double()[:, None].expand(lse.shape),
        largest=magnitude.amax(-1)[:, None].expand(lse.shape), turned=turned)


def kernel_tolerance(case, expected):
    """How far a kernel may lie before it rounds its result, of out and of the lse in base 2: what loader/cli/compare.c derives for
    `libdecode check`, of which here are the parts that MLA has. P meets V in bf16 with bf16 KV and rows of 656 bytes, whose V is
    rounded twice beside it, and in fp16 with every other: errors that agree, and a random walk of those that do not (8 sigma); P
    below 2^-14 loses digits in fp16. Partial results change hands as fp16 twice, in units of which the last digit is 2^-36 of the
    largest |v|. Scores are sums of f32 over more than 256 dims; of e4m3 with e4m3 the tensor core cuts them. A score times its scale
    is rounded, or not. The soft cap has steps of its own. The factor that a far sink leaves ends at 2^-126. half_units has the
    final rounding, of a value that is off by as much, and so that is not in here. Where no token weighs anything, out is 0."""
    scales_v = case.row_format == KV_ROW_FP8_SCALED_656
    p = 2.0**-8 if case.dtypes[1] == DTYPE_BF16 or scales_v else 2.0**-11
    p_roundings, p_floor = 3 if scales_v else 1, 0.0 if case.dtypes[1] == DTYPE_BF16 else 2.0**-25
    halves, scores, sigmas = 2.0**-11, 2.0**-11, 8 / math.sqrt(3)
    bias = 2.0**-21 * min(case.soft_cap, 100.0)
    size = expected.lse.abs().nan_to_num(posinf=0.0)
    turned, scaled = 2 * p * expected.turned, math.log(2) * 2.0**-24 * size
    out, weight, largest = expected.out.abs(), expected.weight, expected.largest
    apart = torch.minimum(expected.spread + weight[..., None] * out,
                          (2 * largest * weight * (1 - weight.square()).clamp(min=0).sqrt())[..., None])
    walk = (math.sqrt(p_roundings * p**2 + 2 * halves**2) + bias + turned)[..., None] * expected.spread
    walk += (turned * weight)[..., None] * out + scaled[..., None] * apart
    floor = (sigmas * p_floor * weight + 2.0**-110) * expected.tokens.sqrt() * largest + 2.0**-36 * largest
    tolerance = (p_roundings * p + 2 * halves + scores + bias) * out + sigmas * walk + floor[..., None]
    roundings = (1 if case.scales == "log2" else 2) + ("lse_natural" in case.lse) - 0.5  # the last half of a unit is half_units'
    lse = 2 * 2.0**-11 + bias + sigmas * turned / math.log(2) + roundings * 2.0**-23 * size
    return tolerance.masked_fill((weight == 0)[..., None], 0.0), lse


class Strided:
    """[tokens, heads, dim] in memory where the rows lie apart, or head by head; between them `fill`."""

    def __init__(self, shape, unit, dtype, fill, device, apart):
        tokens, heads, dim = shape
        row = dim + unit * (random.choice([0, 1, 3]) if apart else 0)
        gap = unit * (random.choice([0, 2, 7]) if apart else 0)
        self.token_stride, self.head_stride = heads * row + gap, row
        if apart and random.random() < 0.2:
            self.token_stride, self.head_stride = row, tokens * row + gap
        elements = (tokens - 1) * self.token_stride + (heads - 1) * self.head_stride + dim
        self.fill, self.memory = fill, torch.full((elements,), fill, dtype=dtype, device=device)
        self.view = torch.as_strided(self.memory, shape, (self.token_stride, self.head_stride, 1))

    def take(self, name):
        """What was written; nothing else may have been."""
        taken = self.view.clone()
        self.view.fill_(self.fill)
        if (self.memory != self.fill).any():
            raise AssertionError(f"{name}: something was written between the rows of out or lse")
        return taken


def query_rows(case, device):
    """(values [tokens, H, D], tensors, fields of the problem)."""
    dtype = case.dtypes[0]
    raw = random_elements(dtype, (sum(case.q_lens), case.heads, case.head_dim)).to(device)
    if case.scale_rule == "far":  # no score shows the blocks that are far larger than others
        raw[..., 256:512] = 0
    values, tensors, fields = decode(dtype, raw), {}, {}
    for name, part in zip(("query", "query_rope"), raw.split([case.v_dim, ROPE] if case.split_query else case.head_dim, -1)):
        nan = 0x7F if dtype == DTYPE_E4M3 else math.nan
        placed = Strided(part.shape, ELEMENTS_OF_16_BYTES[dtype], raw.dtype, nan, device, case.wide_strides)
        placed.view.copy_(part)
        tensors[name] = placed.view
        fields |= {f"{name}_token_stride": placed.token_stride, f"{name}_head_stride": placed.head_stride}
    return values, tensors, fields


def draft_bits(case):
    """Random masks [tokens, 16], most with every token seeing itself, and packed; bits of drafts that a request lacks are random, too."""
    allowed, first = torch.randint(0, 2, (sum(case.q_lens), 16), dtype=torch.bool), 0
    for length in case.q_lens:
        if random.random() < 0.7:
            allowed[first : first + length, :length] |= torch.eye(length, dtype=torch.bool)
        first += length
    packed = torch.randint(-(2**15), 2**15, (len(allowed), 2), dtype=torch.int32)
    packed[:, 0] = (allowed.int() << torch.arange(16)).sum(-1)
    return allowed, packed.to(torch.int16)


def scale_arguments(case, device):
    """(bmm1 and bmm2 as they count, tensors): random, of either sign, and where they lie on the device bmm1 may be 0."""
    bmm1 = torch.tensor(random.choice([1.0, 1.0, 1.0, 0.2, 2.5, -0.7] + [0.0] * (case.scales != "host")) / math.sqrt(case.head_dim))
    bmm2, log2 = torch.tensor(random.choice([1.0, 0.37, 2.5, -1.5])), bmm1 * math.log2(math.e)
    counted = log2.double().item() * math.log(2) if case.scales == "log2" else bmm1.double().item()
    tensors = {"host": {"bmm1_scale": bmm1.item(), "bmm2_scale": bmm2.item()},
               "device": {"bmm1_scale_device": bmm1.to(device), "bmm2_scale_device": bmm2.to(device)},
               "log2": {"bmm1_scale_log2_device": log2.to(device), "bmm1_scale_device": torch.tensor(math.nan).to(device),
                        "bmm2_scale": bmm2.item()}}
    return counted, bmm2.double().item(), tensors[case.scales]


def length_tensor(case, device):
    """None where the problem needs none."""
    if case.no_lens or (case.top_k_lens and random.random() < 0.5):
        return None, {}
    step = random.choice([1, 3]) if case.wide_strides else 1
    spread = torch.full((len(case.seq_lens), step), POISON_ID, dtype=torch.int32)
    spread[:, 0] = torch.tensor(case.seq_lens, dtype=torch.int32)
    return spread.to(device), {"seq_lens_request_stride": step}


def sink_values(case):
    sinks = torch.randn(case.heads) * 3
    odd = torch.rand(case.heads).index_fill(0, torch.tensor([0]), 1.0)
    return torch.where(odd < 0.05, -math.inf, torch.where(odd < 0.08, math.inf, torch.where(odd < 0.12, sinks * 30, sinks)))


def run_case(runner, case):
    """Returns the largest error of out and of lse, in half units beyond the tolerance, those of out over its rms, and the kernel."""
    device, tokens, out_dtype = runner.device, sum(case.q_lens), case.dtypes[2]
    cum = [0, *torch.tensor(case.q_lens).cumsum(0).tolist()]
    slices = [slice(*ends) for ends in zip(cum, cum[1:])]
    drafts, packed_mask = draft_bits(case) if case.mask else (None, None)
    fields, tensors = {}, {"k_cache": None, "v_cache": None, "page_table": None}
    if case.top_k:
        views, ids, lens, dead, pages = sparse_views(case, slices)
        padded = torch.cat([ids, dead[torch.randint(len(dead), (tokens, 5 if case.wide_strides else 0))]], -1)
        tensors |= {"sparse_token_ids": padded.to(device), "sparse_top_k_lens": None if lens is None else lens.to(device)}
        fields |= {"sparse_top_k": case.top_k, "sparse_token_ids_stride": padded.shape[1], "kv_row_format": case.row_format,
                   "num_pages": pages}
    else:
        views, table, pages = dense_views(case, slices, drafts)
        tensors["page_table"] = table.to(device)
        fields |= {"page_table_request_stride": table.shape[1], "num_pages": pages if case.bounded else 0}
    rows, seen = Rows(case, pages), torch.zeros(pages * case.page_size, dtype=torch.bool)
    for view in views:
        shown = view.rows[view.visible.any(0)]
        seen[shown[shown >= 0]] = True
    tensors["k_cache"], fields["k_page_stride"], fields["k_token_stride"] = rows.place(seen, device)
    query, query_tensors, query_fields = query_rows(case, device)
    sinks = sink_values(case).to(device) if case.sinks else None
    bmm1, bmm2, scale_tensors = scale_arguments(case, device)
    tensors["seq_lens"], length_fields = length_tensor(case, device)
    in_byte = 2 if out_dtype == DTYPE_NVFP4 else 1
    out = Strided((tokens, case.heads, case.v_dim // in_byte), 8 if in_byte == 2 else ELEMENTS_OF_16_BYTES[out_dtype], TORCH[out_dtype],
                  UNTOUCHED, device, case.wide_strides)
    lse = Strided((tokens, case.heads, 1), 1, torch.float32, UNTOUCHED, device, case.wide_strides)
    sf_rows, sf_columns = -(-(tokens + case.out_sf_start) // 128) * 128, case.heads * case.v_dim // 16
    out_sf = torch.full((sf_rows * sf_columns,), UNTOUCHED, dtype=torch.uint8, device=device) if in_byte == 2 else None
    positions = None if case.query_positions is None else torch.tensor(case.query_positions, dtype=torch.int32, device=device)
    on = {"lse": True, "sinks": case.sinks, "ragged_q": case.ragged, "draft_mask": case.mask, "query_positions": positions is not None,
          "soft_cap": case.soft_cap, "batch_invariant": case.invariant, "query_rope": case.split_query,
          "sparse_top_k_lens": case.top_k_lens}
    problem = libdecode.Problem(
        op=OP_MLA_DECODE, features=[*case.lse, *(name for name, is_on in on.items() if is_on)], query_dtype=case.dtypes[0],
        kv_dtype=case.dtypes[1], out_dtype=out_dtype, batch_size=len(case.q_lens), num_qo_heads=case.heads, head_dim=case.head_dim,
        page_size=case.page_size, q_len=max(case.q_lens), max_seq_len=random.choice([0, 0, 1, 4096]), window_left=case.window,
        position_stride=case.position_stride, position_offset=case.position_offset, logits_soft_cap=case.soft_cap,
        kv_capacity_tokens=case.capacity, skip_softmax_threshold_scale_factor=case.skip, kv_layout=random.randrange(2),
        out_token_stride=out.token_stride * in_byte, out_head_stride=out.head_stride * in_byte, lse_token_stride=lse.token_stride,
        lse_head_stride=lse.head_stride, **fields, **query_fields, **length_fields)
    cum_on_device = torch.tensor(cum, dtype=torch.int32, device=device) if case.ragged else None
    mask = None if packed_mask is None else packed_mask.to(device)
    kernel = runner.run(problem, out=out.view, out_sf=out_sf, lse=lse.view, sinks=sinks, cum_seq_lens_q=cum_on_device,
                        query_positions=positions, draft_mask=mask, out_sf_scale=case.out_sf_scale, out_sf_start_token=case.out_sf_start,
                        **tensors, **query_tensors, **scale_tensors)

    parts = []
    for view in views:
        keys = rows.values(view.rows.masked_fill(~view.visible.any(0), -1), device)
        parts.append(attention(case, query[view.tokens], keys, view.visible.to(device), sinks, bmm1))
    expected = Expected(*(torch.cat([getattr(part, field.name) for part in parts]) for field in dataclasses.fields(Expected)))
    expected.out, expected.spread, expected.largest = expected.out * bmm2, expected.spread * abs(bmm2), expected.largest * abs(bmm2)
    tolerance, lse_tolerance = kernel_tolerance(case, expected)
    if device == "cpu":
        tolerance = OTHER_ORDER * expected.largest[..., None].expand(expected.out.shape)
        lse_tolerance = torch.full_like(expected.lse, OTHER_ORDER)
    written = out.take(case.name())
    if in_byte == 2:
        out_error, actual = nvfp4_error(case, written, unswizzled(out_sf, sf_rows, sf_columns), expected.out, tolerance)
    else:
        actual = decode(out_dtype, written)
        rounded = expected.out.clamp(-448, 448) if out_dtype == DTYPE_E4M3 else expected.out
        out_error = half_units(actual, rounded, out_dtype, tolerance).max().item()
    lse_unit = math.log(2) if "lse_natural" in case.lse else 1.0
    lse_error = half_units(lse.take(case.name())[..., 0].double(), expected.lse * lse_unit, None, lse_tolerance * lse_unit).max().item()
    if torch.isnan(actual).any() or (actual[expected.weight == 0] != 0).any():  # where nothing is seen, there is exactly nothing
        out_error = math.inf
    lse_error = math.inf if math.isnan(lse_error) else lse_error
    rms = expected.out.square().mean().sqrt().item() or 1.0
    difference = actual - expected.out
    return out_error, lse_error, difference.abs().max().item() / rms, difference.square().mean().sqrt().item() / rms, kernel


def random_lengths(budget, page_size, q_len, longest):
    """Of one to six requests, at the edges of pages and anywhere: the first is the longest, and the sum is less than the budget."""
    lengths = [max(1, min(longest, budget))]
    edges = [0, 1, q_len - 1, q_len, q_len + 1, page_size - 1, page_size, page_size + 1, 3 * page_size + 5, random.randrange(1, 400), -3]
    for length in random.sample(edges, random.randrange(6)):
        if sum(lengths) + length <= budget:
            lengths.append(length)
    random.shuffle(lengths)
    return lengths


def random_case(seed, index):
    """Dense and sparse in turn, each with every triple of dtypes in turn; everything else by chance. The seeds of PyTorch and of
    random are this case's from here on."""
    random.seed(f"{seed} {index}")
    torch.manual_seed(seed * 1_000_003 + index)
    turn, is_sparse = index // 2, index % 2 == 1
    row_format = (KV_ROW_PLAIN, KV_ROW_FP8_SCALED_656, KV_ROW_PLAIN, KV_ROW_NVFP4_352)[turn % 4] if is_sparse else KV_ROW_PLAIN
    table = {KV_ROW_PLAIN: DENSE, KV_ROW_FP8_SCALED_656: SCALED, KV_ROW_NVFP4_352: HALF_BYTES}[row_format]
    dtypes = table[(turn // 4 if row_format else turn // 2 if is_sparse else turn) % len(table)]
    if row_format == KV_ROW_FP8_SCALED_656 and random.random() < 0.6:  # what FlashMLA has, and kernels do
        dtypes = (DTYPE_BF16, DTYPE_E4M3, random.choice([DTYPE_BF16, DTYPE_BF16, DTYPE_FP16, DTYPE_E4M3]))
    head_dim = 576 if row_format else random.choice([576, 576, 320, 512] if is_sparse else [576, 576, 320])
    page_size = random.choice(SPARSE_PAGE_SIZES if is_sparse else PAGE_SIZES)
    shape = random.choice(["wide", "long", "any", "many"])
    heads = random.choice(HEADS + [random.randrange(1, 193)] * 6)
    q_len = random.choice([1, 1, 1, 2, 3, 4])
    if shape == "wide":
        heads = random.choice([64, 65, 96, 127, 128, 128, 192])
    elif shape == "long":
        heads, q_len = random.choice([1, 3, 8, 16, 16, 24]), random.choice([1, 1, 2])
    elif shape == "many":
        heads, q_len = random.choice([1, 4, 5, 8, 13, 16, 16, 32]), random.randrange(5, 17)
    budget = max(ROW_TOKENS // (heads * q_len), q_len)
    longest = budget if shape == "long" and not is_sparse else random.randrange(1, 1500)
    lengths = random_lengths(min(budget, 8000), page_size, q_len, longest)
    if is_sparse:
        lengths = lengths[:4]
    ragged = q_len > 1 and random.random() < 0.4
    q_lens = [random.randrange(q_len + 1) for _ in lengths[1:]] + [q_len] if ragged else [q_len] * len(lengths)
    case = Case(
        dtypes=dtypes, row_format=row_format, head_dim=head_dim, heads=heads, page_size=page_size, q_lens=q_lens, seq_lens=lengths,
        ragged=ragged, split_query=head_dim != LATENT and random.random() < 0.4, sinks=random.random() < 0.5,
        soft_cap=random.choice([0.0, 0.0, 0.0, 0.5, 30.0]), scales=random.choice(["host", "host", "device", "log2"]),
        wide_strides=random.random() < 0.4, invariant=random.random() < 0.1,
        out_sf_start=random.choice([0, 1, 120, 200]) if dtypes[2] == DTYPE_NVFP4 else 0,
        out_sf_scale=random.choice([1.0, 37.5, 2000.0]) if dtypes[2] == DTYPE_NVFP4 else 1.0)
    case.lse = tuple(name for name in ("lse_natural", "lse_without_sink", "lse_empty_infinity") if random.random() < 0.3)
    if random.random() < 0.15:
        case.capacity = random.randrange(1, max(lengths) + 2)
        case.no_lens = case.capacity * len(lengths) <= budget and random.random() < 0.5
    if is_sparse:
        most = max(1, budget // len(lengths))
        case.top_k = random.choice([top_k for top_k in TOP_KS if top_k <= most])
        case.top_k_lens = random.random() < 0.5
        case.seq_lens = [random.choice([length, length, case.top_k, case.top_k + q_len, 2**31 - 1]) for length in lengths]
        case.scale_rule = random.choice(["pow2", "any", "any", "far"]) if row_format == KV_ROW_FP8_SCALED_656 else ""
        return case
    case.window = random.choice([-1, -1, -1, 0, 7, page_size, 127, 1000])
    case.mask = q_len > 1 and random.random() < 0.4
    case.holes, case.bounded = random.random() < 0.12, random.random() < 0.7
    case.skip = 1e-30 if random.random() < 0.06 else 0.0
    if random.random() < 0.12:  # dealt out over GPUs: where the queries stand depends on what the others have
        case.position_stride = random.choice([1, 2, 3, 8])
        case.position_offset = random.randrange(case.position_stride)
        case.query_positions = [max(length, 0) * case.position_stride + random.choice([0, -q_len, 1, -5, 40]) for length in lengths]
    if not case.capacity and random.random() < 0.1:
        at = lengths.index(max(lengths))
        pages = -(-lengths[at] // page_size)
        lengths[at], case.full_table = pages * page_size + random.randrange(1, page_size + 1), True
    return case


def main():
    arguments = read_arguments(__doc__, 300)
    runner = make_runner(arguments)
    if arguments.gpu:
        runner.workspace = libdecode.Workspace(160 << 20, context=runner.context)  # batch-invariant MLA takes most
    cases = (random_case(arguments.seed, number) for number in range(arguments.cases))
    run_all(arguments, cases, lambda case: run_case(runner, case), lambda case, kernel: [
        f"{'sparse' if case.top_k else 'dense'}{ROW_NAMES[case.row_format]} {words_of(case)}", f"kernel {kernel}"])


if __name__ == "__main__":
    main()
