# SPDX-License-Identifier: Apache-2.0
"""Compares libdecode_reference with attention written in PyTorch, both in float64, over random batches.

    python3 pytorch_check.py LIBDECODE_SO [--seed N] [--cases N] [--only TEXT]

The PyTorch side is written another way on purpose: whole matrices, boolean masks, logsumexp, and dequantisation by table. A
result may differ from the exact value by half a unit in the last place of its dtype, and by nothing else. Every unused page,
every row past the end of a sequence and every page id past the last live one is poison. Exits with 1 if a case fails. Needs no
GPU.
"""

import argparse
import dataclasses
import math
import random
import sys

import torch

import libdecode_ctypes as ld

NAMES = {ld.BF16: "bf16", ld.FP16: "fp16", ld.E4M3: "e4m3", ld.NVFP4: "nvfp4"}
TORCH = {ld.BF16: torch.bfloat16, ld.FP16: torch.float16, ld.E4M3: torch.uint8, ld.NVFP4: torch.uint8}
FRACTION_BITS = {ld.BF16: 7, ld.FP16: 10, ld.E4M3: 3}
MIN_EXPONENT = {ld.BF16: -126, ld.FP16: -14, ld.E4M3: -6}
# (query, KV, out): every combination that the operation defines, but NVFP4 results, which have unit tests of their own
DTYPES = [
    (ld.BF16, ld.BF16, ld.BF16), (ld.FP16, ld.FP16, ld.FP16), (ld.BF16, ld.E4M3, ld.BF16), (ld.FP16, ld.E4M3, ld.FP16),
    (ld.E4M3, ld.E4M3, ld.BF16), (ld.E4M3, ld.E4M3, ld.FP16), (ld.E4M3, ld.E4M3, ld.E4M3), (ld.E4M3, ld.NVFP4, ld.E4M3),
    (ld.BF16, ld.NVFP4, ld.BF16),
]
POISON_ID = 2**31 - 1
ROUNDING_SLACK = 1e-6  # float64 against float64: far below a unit in the last place, far above 2^-53
E2M1_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def e4m3_values():
    """The 256 values of e4m3, by the textbook formula; checked against PyTorch's own where it has the type."""
    code = torch.arange(256)
    exponent, fraction = (code >> 3) & 15, (code & 7).double() / 8
    value = torch.where(exponent == 0, 2.0**-6 * fraction, 2.0 ** (exponent.double() - 7) * (1 + fraction))
    value = torch.where(code & 127 == 127, math.nan, torch.where(code >= 128, -value, value))
    if hasattr(torch, "float8_e4m3fn"):
        theirs = code.to(torch.uint8).view(torch.float8_e4m3fn).double()
        assert torch.equal(theirs.nan_to_num(1e9), value.nan_to_num(1e9)), "e4m3 table differs from PyTorch's"
    return value


E4M3_VALUES = e4m3_values()


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
    # context parallelism: the positions of local tokens, and of each request's first query token
    position_stride: int = 1
    position_offset: int = 0
    query_positions: list = None

    def name(self):
        flags = [flag for flag, on in (("ragged", self.ragged), ("sinks", self.sinks), ("mask", self.mask),
                                       ("vpages", self.own_v_pages), ("interleaved", self.interleaved)) if on]
        return (f"q_{NAMES[self.dtypes[0]]} kv_{NAMES[self.dtypes[1]]} out_{NAMES[self.dtypes[2]]} "
                f"{self.heads[0]}/{self.heads[1]} d{self.head_dim} p{self.page_size} {'NHD' if self.kv_layout else 'HND'} "
                f"q{max(self.q_lens)} w{self.window} {' '.join(flags)}").strip()


def random_elements(dtype, shape):
    """Random raw elements of a dtype, and their values."""
    if dtype == ld.E4M3:
        codes = torch.randint(0, 72, shape) | (torch.randint(0, 2, shape) << 7)  # magnitudes from 0 to just below 4
        return codes.to(torch.uint8), E4M3_VALUES[codes]
    raw = torch.randn(shape).to(TORCH[dtype])
    return raw, raw.double()


def poison(dtype):
    return math.nan if dtype in (ld.BF16, ld.FP16) else 0x7F


class Pool:
    """K or V: canonical float64 values [pages, heads, tokens, head_dim], and what the library gets to read."""

    def __init__(self, case, num_pages, is_v):
        _, kv_heads = case.heads
        shape = (num_pages, kv_heads, case.page_size, case.head_dim)
        dtype = case.dtypes[1]
        self.sf = None
        if dtype == ld.NVFP4:
            codes = torch.randint(0, 16, shape)
            sf = torch.randint(40, 64, (*shape[:3], case.head_dim // 16))  # 2^-2 to just below 2
            self.values = E2M1_VALUES[codes] * E4M3_VALUES[sf].repeat_interleave(16, -1)
            self.raw = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
            self.sf = sf.to(torch.uint8)
        else:
            self.raw, self.values = random_elements(dtype, shape)
        self.interleaved = is_v and case.interleaved

    def spoil(self, case, page, first_token):
        """Rows that nobody may read. NVFP4 has no NaN: its scales do."""
        if self.sf is not None:
            self.sf[page, :, first_token:] = 0x7F
        else:
            self.raw[page, :, first_token:] = poison(case.dtypes[1])

    def memory(self, case):
        """(rows, scales) laid out as the case says; V's scales interleaved by four tokens per page and head where asked."""
        sf = self.sf
        if sf is not None and self.interleaved:
            pages, heads, tokens, blocks = sf.shape
            sf = sf.view(pages, heads, tokens // 4, 4, blocks).transpose(-1, -2).contiguous()
        elif sf is not None and case.kv_layout == ld.NHD:
            sf = sf.transpose(1, 2).contiguous()
        rows = self.raw.transpose(1, 2).contiguous() if case.kv_layout == ld.NHD else self.raw
        return rows, sf


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


def expected_rows(case, scores, v, sinks, first_row, allowed_drafts, request, scale):
    """Softmax of one request: scores [q, H, S] before scaling, v [H, S, D]; returns out [q, H, D] and base-2 lse [q, H]."""
    q_len, _, seq_len = scores.shape
    own = torch.arange(q_len) + seq_len - q_len
    kv_position = torch.arange(seq_len) * case.position_stride + case.position_offset
    q_position = own * case.position_stride + case.position_offset
    if case.query_positions is not None:
        q_position = torch.arange(q_len) + case.query_positions[request]
    # Said as a number of local keys, as context parallelism defines it, rather than as a comparison of positions.
    local_keys = torch.div(q_position - case.position_offset, case.position_stride, rounding_mode="floor") + 1
    visible = torch.arange(seq_len)[None, :] < local_keys[:, None]
    if allowed_drafts is not None and q_len <= seq_len:
        visible[:, seq_len - q_len :] = allowed_drafts[first_row : first_row + q_len, :q_len]
    elif allowed_drafts is not None:
        visible = allowed_drafts[first_row : first_row + q_len, q_len - seq_len : q_len].clone()
    if case.window >= 0:
        visible &= q_position[:, None] - kv_position[None, :] <= case.window
    if case.query_positions is None:
        visible &= own[:, None] >= 0
    logits = (scores * scale).masked_fill(~visible[:, None, :], -math.inf)
    if sinks is not None:
        sink_column = sinks.double()[None, :, None].expand(q_len, -1, 1)
        logits = torch.cat([logits, sink_column], -1)
    lse = torch.logsumexp(torch.cat([logits, torch.full_like(logits[..., :1], -math.inf)], -1), -1)
    probabilities = torch.exp(logits - lse.masked_fill(lse == -math.inf, 0.0)[..., None])[..., :seq_len]
    return torch.einsum("qhs,hsd->qhd", probabilities, v), lse / math.log(2)


def half_units(actual, expected, dtype):
    """Differences, in halves of the unit in the last place at the expected value: a correct rounding gives at most 1."""
    fraction_bits, min_exponent = (23, -126) if dtype is None else (FRACTION_BITS[dtype], MIN_EXPONENT[dtype])
    exponent = torch.frexp(expected)[1].double() - 1
    half = 2.0 ** (exponent.clamp(min=min_exponent) - fraction_bits - 1)
    same = actual == expected  # infinities
    return torch.where(same, torch.zeros_like(expected), (actual - expected).abs() / half)


def build_tables(case, k_pool, v_pool, order):
    """Page tables over a random order of the pool, [B, 1 or 2, width]; poisons what no request reaches."""
    batch, tensors = len(case.seq_lens), 2 if case.own_v_pages else 1
    live = [(length + case.page_size - 1) // case.page_size for length in case.seq_lens]
    table = torch.full((batch, tensors, max(live) + 2), POISON_ID, dtype=torch.int32)
    used = {0: set(), 1: set()}
    for request, pages in enumerate(live):
        for tensor in range(tensors):
            ids = [order.pop() for _ in range(pages)]
            table[request, tensor, :pages] = torch.tensor(ids, dtype=torch.int32)
            for pool_index in ([tensor] if tensors == 2 else [0, 1]):
                pool = (k_pool, v_pool)[pool_index]
                used[pool_index] |= set(ids)
                if pages and case.seq_lens[request] % case.page_size:
                    pool.spoil(case, ids[-1], case.seq_lens[request] % case.page_size)
    for pool_index, pool in enumerate((k_pool, v_pool)):
        for page in range(pool.values.shape[0]):
            if page not in used[pool_index]:
                pool.spoil(case, page, 0)
    return table, live


def run_case(library, case):
    """Returns the largest error of out and of lse, in half units, and the largest absolute error of out."""
    heads, kv_heads = case.heads
    group, batch = heads // kv_heads, len(case.seq_lens)
    tokens = sum(case.q_lens)
    page_count = sum(length // case.page_size + 1 for length in case.seq_lens) * (2 if case.own_v_pages else 1) + 3
    k_pool, v_pool = Pool(case, page_count, False), Pool(case, page_count, True)
    order = torch.randperm(page_count).tolist()
    table, live = build_tables(case, k_pool, v_pool, order)
    query, query_values = random_elements(case.dtypes[0], (tokens, heads, case.head_dim))
    sinks = torch.randn(heads) * 3 if case.sinks else None
    allowed_drafts, packed_mask = draft_bits(case, tokens) if case.mask else (None, None)
    bmm1, bmm2 = torch.tensor(1 / math.sqrt(case.head_dim)), torch.tensor(random.choice([1.0, 0.37, 2.5]))
    out = torch.full((tokens, heads, case.head_dim), 77, dtype=TORCH[case.dtypes[2]])
    lse = torch.full((tokens, heads), 77.0)

    seq_lens = torch.tensor(case.seq_lens, dtype=torch.int32)
    cum = torch.tensor([0, *torch.tensor(case.q_lens).cumsum(0).tolist()], dtype=torch.int32)
    positions = None if case.query_positions is None else torch.tensor(case.query_positions, dtype=torch.int32)
    (k_rows, k_sf), (v_rows, v_sf) = k_pool.memory(case), v_pool.memory(case)
    features = ld.LSE | (ld.WINDOW if case.window >= 0 else 0) | (ld.SINKS if case.sinks else 0)
    features |= (ld.RAGGED_Q if case.ragged else 0) | (ld.DRAFT_MASK if case.mask else 0)
    features |= (ld.V_PAGE_TABLE if case.own_v_pages else 0) | (ld.QUERY_POSITIONS if positions is not None else 0)
    problem = ld.Problem(
        query_dtype=case.dtypes[0], kv_dtype=case.dtypes[1], out_dtype=case.dtypes[2], features=features, batch_size=batch,
        num_qo_heads=heads, num_kv_heads=kv_heads, head_dim=case.head_dim, page_size=case.page_size, q_len=max(case.q_lens),
        window_left=max(case.window, 0), position_stride=case.position_stride, position_offset=case.position_offset,
        kv_layout=case.kv_layout, v_sf_layout=ld.SF_V_INTERLEAVE4 if case.interleaved else ld.SF_LINEAR,
        page_table_request_stride=table.stride(0), page_table_v_offset=table.stride(1) if case.own_v_pages else 0)

    def address(tensor):
        return None if tensor is None else tensor.data_ptr()

    library.reference(problem, ld.Tensors(
        query=address(query), k_cache=address(k_rows), v_cache=address(v_rows), k_sf=address(k_sf), v_sf=address(v_sf),
        page_table=address(table), seq_lens=address(seq_lens), out=address(out), lse=address(lse), sinks=address(sinks),
        cum_seq_lens_q=address(cum) if case.ragged else None, query_positions=address(positions),
        draft_mask=address(packed_mask), bmm1_scale=bmm1.item(), bmm2_scale=bmm2.item()))

    expected_out = torch.zeros(tokens, heads, case.head_dim, dtype=torch.float64)
    expected_lse = torch.zeros(tokens, heads, dtype=torch.float64)
    for request in range(batch):
        rows = slice(int(cum[request]), int(cum[request + 1]))
        k_ids, v_ids = (table[request, tensor, : live[request]].long() for tensor in (0, -1))
        k, v = (pool.values[ids].permute(1, 0, 2, 3).reshape(kv_heads, -1, case.head_dim)[:, : case.seq_lens[request]]
                .repeat_interleave(group, 0) for pool, ids in ((k_pool, k_ids), (v_pool, v_ids)))
        scores = torch.einsum("qhd,hsd->qhs", query_values[rows], k)
        expected_out[rows], expected_lse[rows] = expected_rows(
            case, scores, v, sinks, rows.start, allowed_drafts, request, bmm1.double())
    expected_out *= bmm2.double()
    if case.dtypes[2] == ld.E4M3:
        expected_out = expected_out.clamp(-448, 448)
    actual_out = E4M3_VALUES[out.long()] if case.dtypes[2] == ld.E4M3 else out.double()
    out_error, lse_error = half_units(actual_out, expected_out, case.dtypes[2]), half_units(lse.double(), expected_lse, None)
    absolute = (actual_out - expected_out).abs().max().item()
    return out_error.max().item(), lse_error.max().item(), absolute


def random_cases(count):
    """Each dtype triple, group size and query length in turn; everything else by chance."""
    for index in range(count):
        dtypes = DTYPES[index % len(DTYPES)]
        group = (1, 4, 5, 8, 16, 40)[index % 6]
        kv_heads = random.choice([1, 2, 8] if group < 16 else [1, 2])
        page_size = random.choice([16, 16, 32, 64, 128])
        lengths = [0, 1, page_size - 1, page_size, page_size + 1, 3 * page_size + 5, random.randrange(1, 600)]
        random.shuffle(lengths)
        q_len = (1, 3, 1, 6, 35)[index % 5]
        ragged = q_len > 1 and random.random() < 0.4
        q_lens = [random.randrange(0, q_len + 1) for _ in lengths[1:]] + [q_len] if ragged else [q_len] * len(lengths)
        yield Case(
            dtypes=dtypes, heads=(kv_heads * group, kv_heads), head_dim=random.choice([64, 128, 128, 256]), page_size=page_size,
            kv_layout=random.randrange(2), seq_lens=lengths, q_lens=q_lens, ragged=ragged,
            window=random.choice([-1, -1, 0, 7, page_size, 127]), sinks=random.random() < 0.4,
            mask=q_len > 1 and random.random() < 0.5, own_v_pages=random.random() < 0.3,
            interleaved=dtypes[1] == ld.NVFP4 and random.random() < 0.6)


def context_parallel_case(ranks):
    """Requests dealt out over ranks: what rank r holds of a request, and where its queries stand."""
    totals, q_len = [1, 5, 64, 333], 3
    rank = random.randrange(ranks)
    return Case(
        dtypes=DTYPES[0], heads=(8, 2), head_dim=64, page_size=16, kv_layout=ld.HND,
        seq_lens=[max(0, -(-(total - rank) // ranks)) for total in totals], q_lens=[q_len] * len(totals),
        window=random.choice([-1, 20]), position_stride=ranks, position_offset=rank,
        query_positions=[total - q_len for total in totals])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", metavar="LIBDECODE_SO")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=180)
    parser.add_argument("--only", default="", help="run the cases whose name holds this text")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    library = ld.Library(arguments.library)

    passed = failed = 0
    worst = {}
    cases = list(random_cases(arguments.cases)) + [context_parallel_case(ranks) for ranks in (2, 3, 4, 8)]
    for case in cases:
        if arguments.only not in case.name():
            continue
        out_error, lse_error, absolute = run_case(library, case)
        good = out_error <= 1 + ROUNDING_SLACK and lse_error <= 1 + ROUNDING_SLACK
        passed, failed = passed + good, failed + (not good)
        kind = NAMES[case.dtypes[2]]
        worst[kind] = [max(pair) for pair in zip(worst.get(kind, [0, 0, 0]), (absolute, out_error, lse_error))]
        print(f"{'ok    ' if good else 'FAILED'} {case.name():<70} out: {absolute:.3g} absolute, {out_error:.6f} half units; "
              f"lse: {lse_error:.6f} half units")
    for kind, (absolute, out_error, lse_error) in worst.items():
        print(f"worst for out {kind}: {absolute:.3g} absolute, {out_error:.9f} half units; lse {lse_error:.9f} half units")
    print(f"{passed} passed, {failed} failed (PyTorch {torch.__version__}, seed {arguments.seed})")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
