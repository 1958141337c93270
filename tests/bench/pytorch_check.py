# SPDX-License-Identifier: Apache-2.0
"""Compares libdecode with attention written in PyTorch in float64, over random batches of every format, and of requests at offsets.

    python3 pytorch_check.py LIBDECODE_SO [--gpu] [--bundle PATH]... [--seed N] [--cases N] [--only TEXT] [--seconds N]

Without --gpu it is libdecode_reference that is compared, on the processor: a result may differ from the exact value by half a unit
in the last place of its dtype, and by nothing else. With --gpu it is the kernels that libdecode chooses: beside that by what
rounding P explains (kernel_tolerance). The PyTorch side is written another way on purpose: whole matrices, boolean masks,
logsumexp, PyTorch's own float8_e4m3fn, NVFP4 by table, and results read back through an inverse of their own of the scales' swizzle.
Every unused page, every row past the end of a sequence and every page id past the last live one is poison. Exits with 1 if a
case fails or none ran, with 77 if --gpu finds none. Problems that no kernel of the bundles serves are counted and named.
"""

import dataclasses
import math
import os
import pathlib
import random
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/python"))
import libdecode
from libdecode.abi import DTYPE_BF16, DTYPE_E4M3, DTYPE_FP16, DTYPE_NVFP4, KV_HND, KV_NHD, SF_LINEAR, SF_V_INTERLEAVE4

from pytorch_command import ROUNDING_SLACK, read_arguments, run_all
from pytorch_elements import E2M1_VALUES, decode, e4m3_decode, half_units, nearest, nvfp4_decode, unswizzled

NAMES = {DTYPE_BF16: "bf16", DTYPE_FP16: "fp16", DTYPE_E4M3: "e4m3", DTYPE_NVFP4: "nvfp4"}
TORCH = {DTYPE_BF16: torch.bfloat16, DTYPE_FP16: torch.float16, DTYPE_E4M3: torch.uint8, DTYPE_NVFP4: torch.uint8}
ELEMENTS_OF_16_BYTES = {DTYPE_BF16: 8, DTYPE_FP16: 8, DTYPE_E4M3: 16, DTYPE_NVFP4: 32}
# (query, KV, out): every combination that the operation defines
DTYPES = [(query, kv, out) for kv in NAMES for query in NAMES for out in NAMES
          if query != DTYPE_NVFP4 and (kv not in (DTYPE_BF16, DTYPE_FP16) or query == kv)
          and (out != DTYPE_E4M3 or DTYPE_E4M3 in (query, kv)) and (out != DTYPE_NVFP4 or query == DTYPE_E4M3)]
HEAD_DIMS = [64, 80, 96, 112, 128, 128, 128, 192, 256, 512]
NVFP4_HEAD_DIMS = [32, 64, 80, 96, 112, 128, 128, 160, 192, 256]
PAGE_SIZES = [1, 2, 4, 8, 16, 16, 16, 32, 64, 64, 128, 256, 512, 1024]
POISON_ID = 2**31 - 1


@dataclasses.dataclass
class Case:
    dtypes: tuple
    heads: tuple  # query, KV
    head_dim: int
    page_size: int
    kv_layout: int
    seq_lens: list
    q_lens: list
    ragged: bool = False
    window: int = -1
    sinks: bool = False
    mask: bool = False
    own_v_pages: bool = False
    interleaved: bool = False
    device_scales: bool = False
    out_sf_start: int = 0
    out_sf_scale: float = 1.0
    # context parallelism: the positions of local tokens, and of each request's first query token
    position_stride: int = 1
    position_offset: int = 0
    query_positions: list = None
    soft_cap: float = 0.0
    rope: tuple = None  # scale and theta; 0: the default
    alibi: bool = False
    natural_lse: bool = False
    flash_lse: bool = False  # without the sink; +infinity where it is empty
    from_zero: bool = False  # with alibi: the lse of biases that count from position 0
    own_places: bool = False  # requests lie in query and out where offsets say
    kv_gap: int = None  # elements between rows of K and V; then requests lie in one of several copies of the pool, at offsets

    def name(self):
        flags = [flag for flag, on in (("ragged", self.ragged), ("sinks", self.sinks), ("mask", self.mask),
                                       ("vpages", self.own_v_pages), ("interleaved", self.interleaved),
                                       ("dscales", self.device_scales), (f"cap{self.soft_cap}", self.soft_cap),
                                       (f"rope{self.rope}", self.rope), ("alibi", self.alibi), ("lse_e", self.natural_lse), ("lse_flash", self.flash_lse), ("from_zero", self.from_zero),
                                       ("places", self.own_places), (f"gap{self.kv_gap}", self.kv_gap is not None)) if on]
        return (f"q_{NAMES[self.dtypes[0]]} kv_{NAMES[self.dtypes[1]]} out_{NAMES[self.dtypes[2]]} "
                f"{self.heads[0]}/{self.heads[1]} d{self.head_dim} p{self.page_size} {'NHD' if self.kv_layout else 'HND'} "
                f"q{max(self.q_lens)} w{self.window} {' '.join(flags)}").strip()


def random_elements(dtype, shape):
    """Random raw elements of a dtype; e4m3: every magnitude from 0 to just below 4, NVFP4: every code, two a byte."""
    if dtype == DTYPE_E4M3:
        return torch.randint(0, 72, shape, dtype=torch.uint8) | torch.randint(0, 2, shape, dtype=torch.uint8) << 7
    if dtype == DTYPE_NVFP4:
        return torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), dtype=torch.uint8)
    return torch.randn(shape).to(TORCH[dtype])


class Pool:
    """K or V as [pages, heads, tokens, ...] on the processor, and the same bytes laid out for the library on the device."""

    def __init__(self, case, num_pages):
        self.dtype, self.case = case.dtypes[1], case
        shape = (num_pages, case.heads[1], case.page_size, case.head_dim)
        self.raw = random_elements(self.dtype, shape)
        self.sf = None
        if self.dtype == DTYPE_NVFP4:
            self.sf = torch.randint(40, 64, (*shape[:3], case.head_dim // 16), dtype=torch.uint8)  # 2^-2 to just below 2
            self.sf[torch.rand(self.sf.shape) < 0.03] = 0

    def spoil(self, page, first_token):
        """Rows that nobody may read: NaN of either sign. NVFP4 has none: its scales do."""
        if self.sf is not None:
            self.sf[page, :, first_token:] = 0x7F if page % 2 else 0xFF
        elif self.dtype == DTYPE_E4M3:
            self.raw[page, :, first_token:] = 0x7F if page % 2 else 0xFF
        else:
            self.raw[page, :, first_token:] = math.nan

    def place(self, interleaved, device):
        """(rows, scales, strides of the scales) as the case says. V's scales are interleaved by four tokens where asked; others
        get 16 bytes a token where 16-byte steps would not lead to them otherwise."""
        nhd = self.case.kv_layout == KV_NHD
        raw = self.raw
        if self.sf is not None and raw.shape[-1] % 16:  # rows begin at multiples of 16 bytes
            raw = torch.nn.functional.pad(raw, (0, -raw.shape[-1] % 16), value=0x55)
        rows = (raw.transpose(1, 2).contiguous() if nhd else raw).to(device)
        if self.sf is None:
            return rows, None, (0, 0, 0)
        pages, heads, tokens, blocks = self.sf.shape
        if interleaved:
            sf = self.sf.view(pages, heads, tokens // 4, 4, blocks).transpose(-1, -2).contiguous()
            return rows, sf.to(device), (heads * tokens * blocks, tokens * blocks, blocks)
        sf = self.sf
        if blocks % 4:  # no whole number of words
            sf = torch.nn.functional.pad(sf, (0, -blocks % 4), value=0x7F)
        elif (heads if nhd else tokens) * blocks % 16:
            sf = torch.nn.functional.pad(sf, (0, 16 - blocks), value=0x7F)
        sf = sf.transpose(1, 2).contiguous() if nhd else sf
        page, first, second, _ = sf.stride()
        return rows, sf.to(device), (page, second, first) if nhd else (page, first, second)

    def place_apart(self, pages_of_request, device):
        """(elements, strides of page, head and token, offset of each request): a copy of the pool for every other request, at an odd
        place, in which the pages of the others are poison; between the rows lies as much poison as the case says."""
        nhd, (pages, heads, tokens, dim) = self.case.kv_layout == KV_NHD, self.raw.shape
        row = dim + self.case.kv_gap
        strides = (heads * tokens * row, row, heads * row) if nhd else (heads * tokens * row, tokens * row, row)
        poison = 0x7F if self.dtype == DTYPE_E4M3 else math.nan
        bases = [random.randrange(1, 4000) + copy * (pages * strides[0] + 4000) for copy in range(3)]
        flat = torch.full((3 * (pages * strides[0] + 4000) + 4000,), poison, dtype=self.raw.dtype)
        for request, ids in enumerate(pages_of_request):
            rows = torch.as_strided(flat, self.raw.shape, (*strides, 1), bases[request % 3])
            rows[ids] = self.raw[ids]
        offsets = [bases[request % 3] for request in range(len(pages_of_request))]
        return flat.to(device), strides, torch.tensor(offsets, device=device)

    def gathered(self, ids, seq_len, device):
        """The rows of one request: [heads, seq_len, head_dim] values."""
        def tokens(pages):
            return pages[ids].permute(1, 0, 2, 3).flatten(1, 2)[:, :seq_len].to(device)

        return decode(self.dtype, tokens(self.raw), None if self.sf is None else tokens(self.sf))


def draft_bits(case, rows):
    """A random mask [rows, max q_len] in which every token sees itself, and its packed form."""
    q_len = max(case.q_lens)
    allowed = torch.randint(0, 2, (rows, q_len), dtype=torch.bool)
    first = 0
    for length in case.q_lens:
        allowed[first : first + length, :length] |= torch.eye(length, dtype=torch.bool)
        first += length
    packed = torch.zeros(rows, (q_len + 31) // 32 * 2, dtype=torch.int32)
    for column in range(q_len):
        packed[:, column // 16] |= allowed[:, column].int() << column % 16
    return allowed, packed.to(torch.int16)


@dataclasses.dataclass
class Expected:
    """Exact results [rows, H, ...], and what the rounding of P depends on: sqrt(sum (w v)^2), sqrt(sum w^2), sqrt(tokens) max|v|;
    and of rotated rows the largest sqrt(sum over pairs of |q|^2 |k|^2) of a token that is seen, times the scale."""

    out: torch.Tensor
    lse: torch.Tensor
    spread: torch.Tensor
    weight: torch.Tensor
    reach: torch.Tensor
    turned: torch.Tensor


def positions_of(case, q_len, seq_len, request, device):
    """Of the KV tokens and of the query tokens of a request."""
    q_position = (torch.arange(q_len, device=device) + seq_len - q_len) * case.position_stride + case.position_offset
    if case.query_positions is not None:
        q_position = torch.arange(q_len, device=device) + case.query_positions[request]
    return torch.arange(seq_len, device=device) * case.position_stride + case.position_offset, q_position


def rotated(values, positions, scale, theta):
    """[..., tokens, D] as D/2 complex numbers, the halves of a row their two parts, each turned by its angle."""
    half = values.shape[-1] // 2
    turns = torch.logspace(0, -1 + 1 / half, half, base=theta or 10000.0, dtype=torch.float64, device=values.device)
    angle = positions.double()[:, None] * turns / (scale or 1.0)
    turned = torch.complex(values[..., :half], values[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], -1)


def pair_squares(values):
    half = values.shape[-1] // 2
    return values[..., :half].square() + values[..., half:].square()


def alibi_slopes(heads):
    """The usual ones: a geometric series over the largest power of two of heads, and every other of twice as many for the rest."""
    power = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    return torch.tensor(slopes + [2.0 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)])


def expected_rows(case, scores, turned, v, sinks, first_row, allowed_drafts, request, scale):
    """Softmax of one request: scores [q, H, S] before scaling, turned likewise (the roots of sums over pairs), v [H, S, D]."""
    q_len, heads, seq_len = scores.shape
    device = scores.device
    own = torch.arange(q_len, device=device) + seq_len - q_len
    kv_position, q_position = positions_of(case, q_len, seq_len, request, device)
    # Said as a number of local keys, as context parallelism defines it, rather than as a comparison of positions.
    local_keys = torch.div(q_position - case.position_offset, case.position_stride, rounding_mode="floor") + 1
    visible = torch.arange(seq_len, device=device)[None, :] < local_keys[:, None]
    if allowed_drafts is not None and q_len <= seq_len:
        visible[:, seq_len - q_len :] = allowed_drafts[first_row : first_row + q_len, :q_len]
    elif allowed_drafts is not None:
        visible = allowed_drafts[first_row : first_row + q_len, q_len - seq_len : q_len].clone()
    if case.window >= 0:
        visible &= q_position[:, None] - kv_position[None, :] <= case.window
    if case.query_positions is None:
        visible &= own[:, None] >= 0
    logits = scores * scale
    if case.soft_cap:
        logits = torch.tanh(logits / case.soft_cap) * case.soft_cap
    if case.alibi:
        distance = q_position[:, None, None] - kv_position
        logits = logits - distance * alibi_slopes(heads).double().to(device)[:, None]
    logits = logits.masked_fill(~visible[:, None, :], -math.inf)
    seen = logits
    if sinks is not None:
        sink_column = sinks.double()[None, :, None].expand(q_len, -1, 1)
        logits = torch.cat([logits, sink_column], -1)
    lse = torch.logsumexp(torch.cat([logits, torch.full_like(logits[..., :1], -math.inf)], -1), -1)
    weights = torch.exp(logits - lse.masked_fill(lse == -math.inf, 0.0)[..., None])[..., :seq_len]
    said = torch.logsumexp(torch.cat([seen, torch.full_like(seen[..., :1], -math.inf)], -1), -1) if case.flash_lse else lse
    if case.from_zero:
        said = said + q_position[:, None] * alibi_slopes(heads).double().to(device)
    if case.flash_lse:
        said = said.masked_fill(said == -math.inf, math.inf)
    largest_v = v.abs().amax((-1, -2)) if seq_len else v.new_zeros(v.shape[0])
    return Expected(
        out=torch.einsum("qhs,hsd->qhd", weights, v), lse=said if case.natural_lse else said / math.log(2),
        spread=torch.einsum("qhs,hsd->qhd", weights**2, v**2).sqrt(), weight=weights.square().sum(-1).sqrt(),
        reach=visible.sum(-1).double().sqrt()[:, None] * largest_v[None, :],
        turned=abs(scale) * torch.cat([turned, turned.new_zeros(q_len, heads, 1)], -1).masked_fill(
            ~torch.cat([visible, visible.new_ones(q_len, 1)], -1)[:, None, :], 0.0).amax(-1))


def kernel_tolerance(case, expected, bmm2):
    """How far a kernel may lie before it rounds its result. P is rounded to the dtype of the matrix operands, bf16 with bf16 KV
    and fp16 with every other: errors that agree, and a random walk of those that do not (8 sigma); P below 2^-14 loses digits in
    fp16; scores are sums in f32, of rotated rows rounded to 16 bits: errors of a few roundings that do not agree (8 sigma)."""
    bf16 = case.dtypes[1] == DTYPE_BF16
    unit_roundoff, smallest = (2.0**-8, 0.0) if bf16 else (2.0**-11, 2.0**-25)
    scores = 2.0**-12 if case.head_dim <= 256 else 2.0**-11
    walk = 8 / math.sqrt(3) * (unit_roundoff * expected.spread + (smallest * expected.weight * expected.reach)[..., None]) * bmm2
    turned = 8 / math.sqrt(3) * 2 * unit_roundoff * expected.turned
    walk += turned[..., None] * (expected.spread * bmm2 + expected.weight[..., None] * expected.out.abs())
    lse = 2 * scores + 2.0**-22 * expected.lse.abs().nan_to_num(posinf=0) + turned / math.log(2)
    return (unit_roundoff + scores) * expected.out.abs() + walk, lse


def nvfp4_error(case, codes, scales, expected, tolerance):
    """0 if every scale and every code is what rounding makes of some value within the tolerance, else infinity; and the values."""
    tokens, heads, dim = expected.shape
    used, columns = heads * dim // 16, scales.shape[1]
    own = scales[case.out_sf_start : case.out_sf_start + tokens]
    factor = case.out_sf_scale
    x, t = expected.view(tokens, used, 16), tolerance.view(tokens, used, 16) + ROUNDING_SLACK * expected.abs().view(tokens, used, 16)
    e4m3 = e4m3_decode(torch.arange(127, dtype=torch.uint8, device=codes.device))
    e2m1 = E2M1_VALUES.unique().to(codes.device)
    scale = e4m3_decode(own[:, :used].contiguous())
    low = nearest((x.abs() - t).clamp(min=0).amax(-1) * factor / 6 * (1 - ROUNDING_SLACK), e4m3)
    high = nearest((x.abs() + t).amax(-1) * factor / 6 * (1 + ROUNDING_SLACK), e4m3)
    one = torch.full((tokens, heads, dim // 16), 0x38, dtype=torch.uint8, device=codes.device)
    code_values = nvfp4_decode(codes[..., : dim // 2].contiguous(), one).view(tokens, used, 16)
    unit = (scale / factor)[..., None]
    reach = unit.clamp(min=1e-300)
    good = (scale >= low) & (scale <= high)
    inside = (code_values >= nearest((x - t) / reach, e2m1)) & (code_values <= nearest((x + t) / reach, e2m1))
    good &= (inside | (unit == 0)).all(-1)
    padding = (own[:, used:columns] == 0).all()
    untouched = (scales[: case.out_sf_start] == 77).all() & (scales[case.out_sf_start + tokens :] == 77).all()
    error = 0.0 if bool(good.all() & padding & untouched) else math.inf
    return error, (code_values * unit).view_as(expected)


def build_tables(case, k_pool, v_pool, order):
    """Page tables over a random order of the pool, [B, 1 or 2, width]; poisons what no request reaches."""
    batch, tensors = len(case.seq_lens), 2 if case.own_v_pages else 1
    live = [(length + case.page_size - 1) // case.page_size for length in case.seq_lens]
    table = torch.full((batch, tensors, max(live) + 2), POISON_ID, dtype=torch.int32)
    unused = [set(range(k_pool.raw.shape[0])), set(range(v_pool.raw.shape[0]))]
    for request, pages in enumerate(live):
        for tensor in range(tensors):
            ids = [order.pop() for _ in range(pages)]
            table[request, tensor, :pages] = torch.tensor(ids, dtype=torch.int32)
            for pool_index in ([tensor] if tensors == 2 else [0, 1]):
                unused[pool_index] -= set(ids)
                if pages and case.seq_lens[request] % case.page_size:
                    (k_pool, v_pool)[pool_index].spoil(ids[-1], case.seq_lens[request] % case.page_size)
    for pool, pages in zip((k_pool, v_pool), unused):
        for page in pages:
            pool.spoil(page, 0)
    return table, live


def places(lengths, row_elements):
    """Where each request's query tokens begin, in an order of chance and 16 bytes apart or more, and the elements of all."""
    offsets, end = [0] * len(lengths), 0
    for request in random.sample(range(len(lengths)), len(lengths)):
        offsets[request] = end + 32 * random.randrange(5)
        end = offsets[request] + lengths[request] * row_elements
    return torch.tensor(offsets), end


class Reference:
    """libdecode_reference on the processor."""

    device = "cpu"

    def run(self, problem, **tensors):
        libdecode.reference(problem, **tensors)
        return "reference"

    @staticmethod
    def tolerance(_case, expected, _bmm2):
        return torch.zeros_like(expected.out), torch.zeros_like(expected.lse)


class Kernels:
    """What libdecode chooses for the current GPU."""

    device = "cuda"

    def __init__(self, bundles):
        self.context = libdecode.open(bundles)
        self.workspace = libdecode.Workspace(64 << 20, context=self.context)

    def run(self, problem, **tensors):
        plan = libdecode.Plan(problem, context=self.context, workspace=self.workspace)
        plan.run(**tensors)
        torch.cuda.synchronize()
        kernel = plan.info.kernel
        plan.close()
        return kernel

    tolerance = staticmethod(kernel_tolerance)


def run_case(runner, case):
    """Returns the largest error of out and of lse, in half units beyond the tolerance, those of out over its rms, and the kernel."""
    heads, kv_heads = case.heads
    group, batch, device = heads // kv_heads, len(case.seq_lens), runner.device
    tokens, out_dtype = sum(case.q_lens), case.dtypes[2]
    page_count = sum(-(-length // case.page_size) for length in case.seq_lens) * (2 if case.own_v_pages else 1) + 3
    k_pool, v_pool = Pool(case, page_count), Pool(case, page_count)
    table, live = build_tables(case, k_pool, v_pool, torch.randperm(page_count).tolist())
    query = random_elements(case.dtypes[0], (tokens, heads, case.head_dim)).to(device)
    query_values = decode(case.dtypes[0], query)
    sinks = (torch.randn(heads) * 3).to(device) if case.sinks else None
    allowed_drafts, packed_mask = draft_bits(case, tokens) if case.mask else (None, None)
    bmm1, bmm2 = torch.tensor(1 / math.sqrt(case.head_dim)), torch.tensor(random.choice([1.0, 0.37, 2.5]))
    unit = ELEMENTS_OF_16_BYTES[out_dtype]
    out_stride = -(-case.head_dim // unit) * unit
    out = torch.full((tokens, heads, out_stride // (2 if out_dtype == DTYPE_NVFP4 else 1)), 77, dtype=TORCH[out_dtype], device=device)
    lse = torch.full((tokens, heads), 77.0, device=device)
    sf_rows, sf_columns = -(-(tokens + case.out_sf_start) // 128) * 128, -(-heads * case.head_dim // 16 // 4) * 4
    out_sf = torch.full((sf_rows * sf_columns,), 77, dtype=torch.uint8, device=device) if out_dtype == DTYPE_NVFP4 else None

    # what the library is given: `query` and `out` as they are, or their rows where offsets say
    given_query, given_out, offsets = query, out, {}
    if case.own_places:
        row_elements = heads * case.head_dim
        offsets["query_offsets"], elements = places(case.q_lens, row_elements)
        given_query = torch.full((elements,), 0x7F if case.dtypes[0] == DTYPE_E4M3 else math.nan, dtype=query.dtype, device=device)
        offsets["out_offsets"], elements = places(case.q_lens, heads * out_stride)
        given_out = torch.full((elements,), 77, dtype=out.dtype, device=device)

    device_table = table.to(device)
    seq_lens = torch.tensor(case.seq_lens, dtype=torch.int32, device=device)
    cum = torch.tensor([0, *torch.tensor(case.q_lens).cumsum(0).tolist()], dtype=torch.int32)
    positions = None
    if case.query_positions is not None:
        positions = torch.tensor(case.query_positions, dtype=torch.int32, device=device)
    (k_rows, k_sf, k_sf_strides), (v_rows, v_sf, v_sf_strides) = (
        k_pool.place(False, device), v_pool.place(case.interleaved, device))
    on = {"lse": True, "sinks": case.sinks, "ragged_q": case.ragged, "draft_mask": case.mask,
          "v_page_table": case.own_v_pages, "query_positions": positions is not None, "soft_cap": case.soft_cap, "alibi": case.alibi,
          "rope": case.rope, "lse_natural": case.natural_lse, "lse_without_sink": case.flash_lse,
          "lse_empty_infinity": case.flash_lse, "lse_alibi_from_zero": case.from_zero, "query_offsets": case.own_places,
          "kv_offsets": case.kv_gap is not None}
    slopes = alibi_slopes(heads).to(device) if case.alibi else None
    problem = libdecode.Problem(
        features=[name for name, is_on in on.items() if is_on], query_dtype=case.dtypes[0], kv_dtype=case.dtypes[1],
        out_dtype=out_dtype, batch_size=batch, num_qo_heads=heads, num_kv_heads=kv_heads, head_dim=case.head_dim, page_size=case.page_size, q_len=max(case.q_lens),
        window_left=case.window, position_stride=case.position_stride, position_offset=case.position_offset,
        kv_layout=case.kv_layout, v_sf_layout=SF_V_INTERLEAVE4 if case.interleaved else SF_LINEAR,
        num_pages=page_count, out_head_stride=out_stride, logits_soft_cap=case.soft_cap,
        rope_scale=case.rope[0] if case.rope else 0.0, rope_theta=case.rope[1] if case.rope else 0.0,
        page_table_request_stride=table.stride(0), page_table_v_offset=table.stride(1) if case.own_v_pages else 0)
    if case.dtypes[1] == DTYPE_NVFP4:  # the inner one; V's is as K's
        setattr(problem, "k_head_stride" if case.kv_layout == KV_NHD else "k_token_stride", -(-case.head_dim // 32) * 32)
    problem.k_sf_page_stride, problem.k_sf_head_stride, problem.k_sf_token_stride = k_sf_strides
    problem.v_sf_page_stride, problem.v_sf_head_stride, problem.v_sf_token_stride = v_sf_strides

    if case.kv_gap is not None:
        pages_of = [[table[request, tensor, : live[request]].long() for request in range(batch)] for tensor in (0, -1)]
        k_rows, k_strides, offsets["k_offsets"] = k_pool.place_apart(pages_of[0], device)
        v_rows, v_strides, offsets["v_offsets"] = v_pool.place_apart(pages_of[1], device)
        problem.k_page_stride, problem.k_head_stride, problem.k_token_stride = k_strides
        problem.v_page_stride, problem.v_head_stride, problem.v_token_stride = v_strides

    scales = {"bmm1_scale": bmm1.item(), "bmm2_scale": bmm2.item()}
    device_scales = [scale.to(device) for scale in (bmm1, bmm2)]
    if case.device_scales:
        scales = {"bmm1_scale_device": device_scales[0], "bmm2_scale_device": device_scales[1]}
    mask = None if packed_mask is None else packed_mask.to(device)
    cum_on_device = cum.to(device)
    slices = [slice(int(cum[request]), int(cum[request + 1])) for request in range(batch)]
    for request, rows in enumerate(slices if case.own_places else []):
        begin = int(offsets["query_offsets"][request])
        given_query[begin : begin + query[rows].numel()] = query[rows].flatten()
    offsets = {name: value.to(device) for name, value in offsets.items()}
    kernel = runner.run(
        problem, query=given_query, k_cache=k_rows, v_cache=v_rows, k_sf=k_sf, v_sf=v_sf, page_table=device_table, seq_lens=seq_lens, out=given_out,
        out_sf=out_sf, lse=lse, sinks=sinks, cum_seq_lens_q=cum_on_device if case.ragged else None, query_positions=positions,
        draft_mask=mask, alibi_slopes=slopes, out_sf_scale=case.out_sf_scale, out_sf_start_token=case.out_sf_start, **offsets, **scales)
    for request, rows in enumerate(slices if case.own_places else []):
        begin = int(offsets["out_offsets"][request])
        out[rows] = given_out[begin : begin + out[rows].numel()].view_as(out[rows])
        given_out[begin : begin + out[rows].numel()] = 77
    if case.own_places and (given_out != 77).any():
        raise AssertionError(f"{case.name()}: something was written between the rows of out")

    parts = []
    for request in range(batch):
        rows = slices[request]
        k_ids, v_ids = (table[request, tensor, : live[request]].long() for tensor in (0, -1))
        k, v = (pool.gathered(ids, case.seq_lens[request], device).repeat_interleave(group, 0)
                for pool, ids in ((k_pool, k_ids), (v_pool, v_ids)))
        q = query_values[rows]
        if case.rope:
            kv_position, q_position = positions_of(case, rows.stop - rows.start, case.seq_lens[request], request, device)
            q = rotated(q.transpose(0, 1), q_position, *case.rope).transpose(0, 1)
            k = rotated(k, kv_position, *case.rope)
        scores, turned = torch.einsum("qhd,hsd->qhs", q, k), q.new_zeros(q.shape[0], q.shape[1], k.shape[1])
        if case.rope:
            turned = torch.einsum("qhd,hsd->qhs", pair_squares(q), pair_squares(k)).sqrt()
        allowed = None if allowed_drafts is None else allowed_drafts.to(device)
        parts.append(expected_rows(case, scores, turned, v, sinks, rows.start, allowed, request, bmm1.double().item()))
    expected = Expected(*(torch.cat([getattr(part, field.name) for part in parts]) for field in dataclasses.fields(Expected)))
    expected.out *= bmm2.double().item()
    tolerance, lse_tolerance = runner.tolerance(case, expected, bmm2.item())
    if out_dtype == DTYPE_NVFP4:
        matrix = unswizzled(out_sf, sf_rows, sf_columns)
        out_error, actual = nvfp4_error(case, out, matrix, expected.out, tolerance)
    else:
        actual = decode(out_dtype, out[..., : case.head_dim].contiguous())
        rounded = expected.out.clamp(-448, 448) if out_dtype == DTYPE_E4M3 else expected.out
        out_error = half_units(actual, rounded, out_dtype, tolerance).max().item()
    lse_error = half_units(lse.double(), expected.lse, None, lse_tolerance).max().item()
    if torch.isnan(actual).any():
        out_error = math.inf
    rms = expected.out.square().mean().sqrt().item() or 1.0
    difference = actual - expected.out
    return out_error, lse_error, difference.abs().max().item() / rms, difference.square().mean().sqrt().item() / rms, kernel


def random_cases(count):
    """Each dtype triple, group size and query length in turn; everything else by chance."""
    for index in range(count):
        dtypes = DTYPES[index % len(DTYPES)]
        group = (1, 4, 5, 8, 16, 40)[index % 6]
        page_size = random.choice(PAGE_SIZES)
        head_dim = random.choice(NVFP4_HEAD_DIMS if dtypes[1] == DTYPE_NVFP4 else HEAD_DIMS)
        kv_heads = random.choice([1, 2, 8] if group < 16 and page_size < 256 and head_dim < 512 else [1, 2])
        lengths = [0, 1, page_size - 1, page_size, page_size + 1, 3 * page_size + 5, random.randrange(1, 600)]
        random.shuffle(lengths)
        q_len = (1, 3, 1, 6, 35)[index % 5]
        ragged = q_len > 1 and random.random() < 0.4
        q_lens = [random.randrange(0, q_len + 1) for _ in lengths[1:]] + [q_len] if ragged else [q_len] * len(lengths)
        can_interleave = dtypes[1] == DTYPE_NVFP4 and page_size % 4 == 0
        can_rotate = dtypes[1] != DTYPE_NVFP4 or head_dim % 64 == 0
        yield Case(
            dtypes=dtypes, heads=(kv_heads * group, kv_heads), head_dim=head_dim, page_size=page_size,
            kv_layout=random.randrange(2), seq_lens=lengths, q_lens=q_lens, ragged=ragged,
            window=random.choice([-1, -1, 0, 7, page_size, 127]), sinks=random.random() < 0.4,
            mask=q_len > 1 and random.random() < 0.5, own_v_pages=random.random() < 0.3,
            interleaved=can_interleave and random.random() < 0.6, device_scales=random.random() < 0.3,
            out_sf_start=random.choice([0, 1, 120, 128, 200]) if dtypes[2] == DTYPE_NVFP4 else 0,
            out_sf_scale=random.choice([1.0, 37.5, 2000.0]) if dtypes[2] == DTYPE_NVFP4 else 1.0,
            soft_cap=random.choice([0.0, 0.0, 0.5, 30.0]), alibi=(alibi := random.random() < 0.3), natural_lse=random.random() < 0.3,
            flash_lse=random.random() < 0.3, from_zero=alibi and random.random() < 0.5,
            rope=random.choice([None, None, (0.0, 0.0), (4.0, 500000.0)] if can_rotate else [None]))


def placed_cases(count):
    """Offsets of requests, and rows of K and V at any element; NVFP4 has no such, nor have kernels with options or head_dim 512."""
    whole_elements = [dtypes for dtypes in DTYPES if DTYPE_NVFP4 not in dtypes]
    for index in range(count):
        group, q_len = ((1, 1), (4, 1), (8, 1), (2, 3), (4, 2))[index % 5]
        page_size = random.choice(PAGE_SIZES[:-2])
        lengths = [0, 1, page_size - 1, page_size, page_size + 1, 3 * page_size + 5, random.randrange(1, 600)]
        random.shuffle(lengths)
        kv_gap = (None, 0, 8, 3, 1)[index % 5 if index % 7 else 0]
        yield Case(
            dtypes=whole_elements[index % len(whole_elements)], heads=(2 * group, 2), head_dim=random.choice(HEAD_DIMS[:-1]),
            page_size=page_size, kv_layout=random.randrange(2), seq_lens=lengths, q_lens=[q_len] * len(lengths),
            window=random.choice([-1, 7, 127]), sinks=random.random() < 0.4, own_v_pages=random.random() < 0.3,
            natural_lse=random.random() < 0.3, own_places=kv_gap is None or random.random() < 0.6, kv_gap=kv_gap)


def context_parallel_case(ranks, q_len):
    """Requests dealt out over ranks: what rank r holds of a request, and where its queries stand."""
    totals = [3, 5, 64, 333]
    rank = random.randrange(ranks)
    return Case(
        dtypes=DTYPES[0], heads=(8, 2), head_dim=64, page_size=16, kv_layout=KV_HND,
        seq_lens=[max(0, -(-(total - rank) // ranks)) for total in totals], q_lens=[q_len] * len(totals),
        window=random.choice([-1, 20]), position_stride=ranks, position_offset=rank,
        query_positions=[total - q_len for total in totals],
        rope=(0.0, 0.0), alibi=ranks == 3)


def make_runner(arguments):
    os.environ["LIBDECODE_LIBRARY"] = arguments.library
    if not arguments.gpu:
        return Reference()
    if not torch.cuda.is_available():
        print("no GPU: nothing was run")
        sys.exit(77)
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    return Kernels(arguments.bundle)


def words_of(case):
    return " ".join(f"{what} {NAMES[dtype]}" for what, dtype in zip(("query", "KV", "out"), case.dtypes))


def main():
    arguments = read_arguments(__doc__, 270)
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    runner = make_runner(arguments)
    cases = list(random_cases(arguments.cases)) + list(placed_cases(arguments.cases // 4))
    cases += [context_parallel_case(ranks, 3) for ranks in (2, 3, 4, 8)]
    run_all(arguments, cases, lambda case: run_case(runner, case), lambda case, _kernel: [words_of(case)])


if __name__ == "__main__":
    main()
