# SPDX-License-Identifier: Apache-2.0
"""Compares libdecode's Python calls with attention, and with merging, written in PyTorch in float64, over random arguments.

    python3 pytorch_calls_check.py LIBDECODE_SO [--gpu] [--bundle PATH]... [--seed N] [--cases N] [--only TEXT] [--seconds N]

The calls are single_decode_with_kv_cache, cudnn_batch_decode_with_kv_cache and trtllm_batch_decode_with_kv_cache, and of merging
merge_states, merge_state, merge_state_in_place, variable_length_merge_states and libdecode_merge_states itself, which has more than those:
another dtype of the result, base e, strides of all signs. Without --gpu tensors are on the host, where the calls compute in float64; with --gpu
they take kernels. Every call is made twice, and must give the same bits: on a GPU the second takes the short way of the package.
Tolerances of attention are those of pytorch_check.py, of merging those of loader/cli/check/check_merge.c. The formula is that of
pytorch_attended.py, and rows of K and V lie among NaN. Exits are those of pytorch_rows_check.py.
"""

import ctypes
import math
import random

import torch

from pytorch_check import alibi_slopes, draft_bits, make_runner
from pytorch_attended import (ALL_DTYPES, HEAD_DIMS, NAMES, NARROW_DIMS, POISON_ID, TORCH, WHOLE_BYTES, as_float32, attended, bits_of, chance,
                              compare, in_layout, item_bytes, on_device, random_rows, together, twice)
from pytorch_command import read_arguments, run_all, seeded_cases
from pytorch_rows_check import Place, Span, Tensor, strides_of, unit_of
import libdecode
from libdecode import abi
from libdecode.abi import DTYPE_BF16, DTYPE_E4M3, DTYPE_E5M2, DTYPE_FP16, DTYPE_FP32, DTYPE_NVFP4

from pytorch_elements import decode, half_units, unswizzled

# What the package sees: TORCH has bits.
TYPED = TORCH | {DTYPE_E4M3: torch.float8_e4m3fn, DTYPE_E5M2: torch.float8_e5m2, DTYPE_FP32: torch.float32}
STATE_NAMES = {DTYPE_BF16: "bf16", DTYPE_FP16: "fp16", DTYPE_FP32: "fp32"}
SOFT_CAPS, WINDOWS = [None, None, 0.0, 0.5, 30.0], [-1, -1, 0, 3, 17, 127]
MERGE_APIS = ["states", "pair", "in_place", "variable_length", "c", "c", "c"]


class Case:
    """Of one call: what was drawn for it, by name."""

    out_sf_start = 0

    def __init__(self, call, run, **drawn):
        self.call, self.run, self.drawn = call, run, drawn
        self.__dict__.update(drawn)

    def __repr__(self):
        return self.name()

    def name(self):
        whats = ("q", "kv", "out") if len(self.dtypes) == 3 else ("in", "out")
        dtypes = [f"{what}_{(NAMES | STATE_NAMES)[dtype]}" for what, dtype in zip(whats, self.dtypes)]
        words = [f"{name}={value}" if not isinstance(value, bool) else name for name, value in self.drawn.items()
                 if value is not False and value is not None and name not in ("dtypes", "seq_lens", "q_lens")]
        return " ".join([self.call, *dtypes, *words])


def places(runner, case, spans, extents, paged, offsets=None, room=0, pairs=False):
    """K and V, and views of them as [blocks, heads, tokens, ...]: each with its own strides, or as halves of the blocks of one tensor
    [blocks, 2, heads, tokens, ...]. With offsets blocks lie outermost, `room` elements further apart, of both alike."""
    dtype = case.dtypes[1]
    row = case.head_dim // (2 if dtype == DTYPE_NVFP4 else 1)
    unit = 1 if case.any_element else unit_of(dtype)
    row += 0 if case.any_element else -row % unit
    tensors, views, strides = [], [], None
    for number in range(2):
        tensor = Tensor(dtype, extents["h"], case.head_dim, spans)
        if number == 0 or not (offsets or pairs):
            order = random.choice(["htb", "thb"]) if offsets or pairs else random.sample("bht", 3)
            strides, span = strides_of(extents, order, row, [unit * random.choice([0, 0, 1, 3]) for _ in range(2)] + [room])
            if pairs:
                strides, span = (2 * strides[0], *strides[1:]), 2 * span
            blocks = extents["b"] + (max(offsets) // strides[0] + 2 if offsets else 0)
        if number == 0 or not pairs:
            flat = torch.full(((blocks * strides[0] + span) * item_bytes(dtype) + 64,), 0xFF, dtype=torch.uint8)
            flat = flat.view(TORCH[dtype]).to(runner.device)
        place = Place(strides, number * strides[0] // 2 if pairs else 0, offsets)
        tensor.write(flat, place, paged)
        shape = (blocks, extents["h"], extents["t"], tensor.raw.shape[3])
        views.append(torch.as_strided(flat.view(TYPED[dtype]), shape, (*strides, 1), place.base))
        if pairs and number == 1:
            both = torch.as_strided(flat.view(TYPED[dtype]), (shape[0], 2, *shape[1:]), (strides[0], strides[0] // 2, *strides[1:], 1))
            views = [both]
        tensors.append(tensor)
    return tensors, views


def scale_views(runner, case, tensors, extents, paged):
    """The scales of K and V as views [blocks, heads, tokens, head_dim / 16], those of V in `v_sf_layout`."""
    blocks = case.head_dim // 16
    unit = {8: 8, 16: 16}.get(blocks, 4)
    views = []
    for number, tensor in enumerate(tensors):
        is_interleaved = number == 1 and case.v_sf_layout == "v_interleave4"
        gap = 0 if is_interleaved else -blocks % unit + unit * random.randrange(2)
        strides, span = strides_of(extents, "thb" if is_interleaved else random.sample("bht", 3), blocks, (gap, 0, unit * random.randrange(2)))
        flat = torch.full((span + 64,), 0x7F, dtype=torch.uint8, device=runner.device)
        if is_interleaved:
            tensor.write_interleaved(flat, Place(strides), paged)
        else:
            tensor.write(flat, Place(strides), paged, tensor.sf)
        view = torch.as_strided(flat, (extents["b"], extents["h"], extents["t"], blocks), (*strides, 1))
        views.append(view.view(torch.float8_e4m3fn) if chance(0.5) else view)
    return views


def random_query(runner, case, tokens):
    raw = random_rows(case.dtypes[0], (tokens, case.heads[0], case.head_dim)).to(runner.device)
    return raw.view(TYPED[case.dtypes[0]]), decode(case.dtypes[0], raw)


def finish(runner, case, parts, bmm2, out, lse, out_sf=None):
    """Errors of a result that is compared with the attention of its requests, whose lse is natural."""
    expected = together(parts)
    expected.out *= bmm2
    expected.lse /= math.log(2)
    return *compare(runner, case, expected, bmm2, out.contiguous(), lse, out_sf), case.call


def drawn_for_attention(wide):
    """dtypes, heads and head_dim; `wide`: whether they have result and KV in NVFP4."""
    triples = [one for one in ALL_DTYPES if wide or one[2] != DTYPE_NVFP4]
    dtypes = random.choice(triples)
    kv_heads = random.choice([1, 2, 3, 8])
    any_element = dtypes[1] in WHOLE_BYTES and chance(0.2)
    dims = HEAD_DIMS if dtypes[1] in WHOLE_BYTES and not any_element else NARROW_DIMS
    head_dim = random.choice(dims)
    if dtypes[1] == DTYPE_NVFP4 and head_dim % 64:  # of one head the package gives no stride, and the dense one is not aligned
        kv_heads = max(kv_heads, 2)
    heads = (kv_heads * random.choice([1, 3, 4, 8]), kv_heads)
    return {"dtypes": dtypes, "heads": heads, "head_dim": head_dim, "any_element": any_element}


# ----------------------------------------------------------------------------------------------------------- single decode


def single_case():
    drawn = drawn_for_attention(wide=False)
    is_nvfp4 = drawn["dtypes"][1] == DTYPE_NVFP4
    length = random.choice([1, 2, 7, 16, 100, 129, 300, 700])
    length += -length % 4 if is_nvfp4 else 0
    modes = ["NONE", "ALIBI"] if is_nvfp4 and drawn["head_dim"] % 64 else ["NONE", "ALIBI", "ROPE_LLAMA"]
    v_sf_layout = random.choice([None, "linear", "v_interleave4"]) if is_nvfp4 else None
    return Case("single", run_single, **drawn, kv_layout=random.choice(["NHD", "HND"]), length=length,
                mode="NONE" if drawn["any_element"] else random.choice(modes), window=random.choice(WINDOWS), return_lse=chance(0.8),
                cap=None if drawn["any_element"] else random.choice(SOFT_CAPS), q_scale=random.choice([None, 0.5, 2.0]),
                k_scale=random.choice([None, 1.25]), v_scale=random.choice([None, 0.37]), sm_scale=random.choice([None, 0.05]),
                rope_scale=random.choice([None, 4.0]), rope_theta=random.choice([None, 5e5]), v_sf_layout=v_sf_layout,
                given_out=drawn["dtypes"][2] != drawn["dtypes"][0] or chance(0.3))


def run_single(runner, case):
    spans = [Span(0, 0, 0, case.length)] if case.length else []
    extents = {"b": 1, "h": case.heads[1], "t": case.length}
    (k, v), views = places(runner, case, spans, extents, False)
    query, values = random_query(runner, case, 1)
    arguments = {"kv_layout": case.kv_layout, "pos_encoding_mode": case.mode, "q_scale": case.q_scale, "k_scale": case.k_scale,
                 "v_scale": case.v_scale, "window_left": case.window, "logits_soft_cap": case.cap, "sm_scale": case.sm_scale,
                 "rope_scale": case.rope_scale, "rope_theta": case.rope_theta, "use_tensor_cores": chance(0.5)}
    views = [in_layout(view[0], case.kv_layout, 0) for view in views]
    if k.sf is not None:
        arguments["v_sf_layout"] = case.v_sf_layout
        scales = scale_views(runner, case, (k, v), extents, False)
        arguments["kv_cache_sf"] = tuple(in_layout(view[0], case.kv_layout, 0) for view in scales)
    out = None
    if case.given_out:
        out = torch.empty(case.heads[0], case.head_dim, dtype=TYPED[case.dtypes[2]], device=runner.device)

    def call():
        result = libdecode.single_decode_with_kv_cache(query[0], *views, **arguments, return_lse=case.return_lse, out=out,
                                                       context=getattr(runner, "context", None))
        return result if case.return_lse else (result, None)

    made, lse = twice(call, out)
    scale = (case.head_dim**-0.5 if case.sm_scale is None else case.sm_scale) * (case.q_scale or 1.0) * (case.k_scale or 1.0)
    slopes = alibi_slopes(case.heads[0]).to(runner.device) if case.mode == "ALIBI" else None
    part = attended(values, k.of_request(0, runner.device), v.of_request(0, runner.device), scale=as_float32(scale), window=case.window,
                    soft_cap=case.cap or 0.0, slopes=slopes, rope=(case.rope_scale, case.rope_theta) if case.mode == "ROPE_LLAMA" else None)
    if slopes is not None:  # biases count from position 0
        part.lse += slopes.double() * (case.length - 1)
    if made.dtype != TYPED[case.dtypes[2]] or made.shape != query[0].shape:
        raise AssertionError(f"{case.name()}: the result is {made.dtype} {tuple(made.shape)}")
    return finish(runner, case, [part], as_float32(case.v_scale or 1.0), made[None], None if lse is None else lse[None])


# ------------------------------------------------------------------------------------------------------------ cuDNN's call


def cudnn_case():
    drawn = drawn_for_attention(wide=False)
    while drawn["dtypes"][1] == DTYPE_NVFP4:
        drawn = drawn_for_attention(wide=False)
    if drawn["dtypes"][1] == DTYPE_E5M2 or drawn["head_dim"] == 512:
        places_drawn = {"q_offsets": None, "o_offsets": None, "kv_offsets": None}
    else:  # even: at one distance, which the host may say; else each where the device reads it
        places_drawn = {name: random.choice([None, None, "even", "any"]) for name in ("q_offsets", "o_offsets", "kv_offsets")}
    paged, batch, q_len = chance(0.5), random.choice([1, 2, 4]), random.choice([1, 1, 1, 3])
    lengths = random.choice(["device", "axes", "none", "host", "pinned"])
    if any(places_drawn.values()) and lengths == "none" and not paged:
        lengths = "device"  # what says how many requests there are
    return Case("cudnn", run_cudnn, **drawn, **places_drawn, paged=paged, batch=batch, q_len=q_len, lengths=lengths,
                tokens=random.choice([1, 5, 16, 64, 128] if paged else [1, 16, 100, 257]), window=random.choice(WINDOWS), sinks=chance(0.3),
                four_axes=q_len == 1 and places_drawn["q_offsets"] == places_drawn["o_offsets"] is None and chance(0.4), return_lse=chance(0.7),
                given_out=drawn["dtypes"][2] != drawn["dtypes"][0] or chance(0.5))


def row_offsets(case, kind, request, unit):
    """Where requests of `request` elements begin, and how many elements that takes."""
    if kind == "even":
        step = request + (unit * random.randrange(4) if case.q_len == 1 else 0)
        return [unit * 3 + number * step for number in range(case.batch)], unit * 3 + case.batch * step + unit
    order = random.sample(range(case.batch + 1), case.batch)
    return [slot * (request + 4 * unit) + unit * random.randrange(4) for slot in order], (case.batch + 2) * (request + 4 * unit)


def offset_tensor(runner, case, kind, offsets):
    """i64 on the device; of even ones, and without a GPU, maybe i32 and on the host; maybe one more, which nobody reads."""
    dtype = torch.int32 if (kind == "even" or runner.device == "cpu") and chance(0.5) else torch.int64
    longer = torch.tensor([*offsets, 2**31 - 1] if chance(0.5) else offsets, dtype=dtype)
    return longer if kind == "even" and (dtype == torch.int32 or chance(0.5)) else longer.to(runner.device)


def run_cudnn(runner, case):
    (heads, kv_heads), batch, q_len, tokens, dim = case.heads, case.batch, case.q_len, case.batch * case.q_len, case.head_dim
    most = case.tokens * random.choice([1, 2, 3]) if case.paged else random.choice([case.tokens, case.tokens, max(case.tokens - 3, 1)])
    lens = [random.choice([0, 1, q_len - 1, most, random.randrange(most + 1)]) for _ in range(batch)]
    lens = [most] * batch if case.lengths == "none" else lens
    # Without pages what is longer than that counts as that.
    lens_given = [length + random.choice([0, 5]) * (length == most and not case.paged) for length in lens]
    live = [-(-length // case.tokens) for length in lens]
    blocks = sum(live) + 2 if case.paged else batch
    order = random.sample(range(blocks), blocks)
    table = [[order.pop() for _ in range(pages)] for pages in live] if case.paged else None
    spans = [Span(request, page, 0, min(case.tokens, length - number * case.tokens)) for request, length in enumerate(lens)
             for number, page in enumerate(table[request] if case.paged else [request] * (length > 0))]
    extents, unit = {"b": blocks, "h": kv_heads, "t": case.tokens}, 1 if case.any_element else unit_of(case.dtypes[1])
    arguments, offsets = {}, None
    if case.kv_offsets:  # of whole blocks, and some elements more
        block = (kv_heads * case.tokens * (dim + 40) + 400) // 32 * 32
        jitter = [unit * random.randrange(4) if case.kv_offsets == "any" else 0 for _ in range(batch)]
        slots = random.sample(range(batch + 1), batch) if case.kv_offsets == "any" or case.paged else range(1, batch + 1)
        copies = blocks if case.paged else 1
        offsets = [slot * block * 2 * copies + extra for slot, extra in zip(slots, jitter)]
    (k, v), (k_view, v_view) = places(runner, case, spans, extents, case.paged, offsets, 64 * unit)
    if offsets is not None:
        kind = "any" if case.paged else case.kv_offsets
        arguments["batch_offsets_k"], arguments["batch_offsets_v"] = (offset_tensor(runner, case, kind, offsets) for _ in range(2))

    q_kind, o_kind = case.q_offsets, case.o_offsets
    query, values = random_query(runner, case, tokens)
    given, request = query, q_len * heads * dim
    if q_kind is not None:
        begins, elements = row_offsets(case, q_kind, request, unit_of(case.dtypes[0]))
        rows = -(-elements // (heads * dim))
        bits = torch.full((rows * heads * dim * item_bytes(case.dtypes[0]),), 0xFF, dtype=torch.uint8, device=runner.device)
        given = bits.view(TYPED[case.dtypes[0]]).view(rows, heads, dim)
        for number, begin in enumerate(begins):
            given.view(-1)[begin : begin + request] = query[number * q_len : (number + 1) * q_len].flatten()
        arguments["batch_offsets_q"] = offset_tensor(runner, case, q_kind, begins)
    out, ends, rows = None, range(0, tokens * heads * dim, request), tokens if case.given_out else 0
    if o_kind is not None:
        ends, elements = row_offsets(case, o_kind, request, unit_of(case.dtypes[2]))
        arguments["batch_offsets_o"], rows = offset_tensor(runner, case, o_kind, ends), -(-elements // (heads * dim))
    if rows:
        out = torch.zeros(rows, heads, dim, device=runner.device).to(TYPED[case.dtypes[2]])
    if case.four_axes:
        given, out = given[:, :, None], None if out is None else out[:, :, None]
    if case.lengths != "none":
        lengths = torch.tensor(lens_given, dtype=torch.int32)
        if case.lengths in ("device", "axes") or runner.device == "cpu":
            lengths = lengths.to(runner.device)
        elif case.lengths == "pinned":
            lengths = lengths.pin_memory()
        arguments["actual_seq_lens_kv"] = lengths[:, None, None, None] if case.lengths == "axes" else lengths
    if case.paged:
        pages = torch.full((batch, max(max(live), -(-most // case.tokens)) + 1), POISON_ID, dtype=torch.int32)
        for number, ids in enumerate(table):
            pages[number, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        pages = pages.to(runner.device)
        arguments["block_tables"] = pages[:, None, :, None] if chance(0.3) else pages
    scale, sinks = random.choice([dim**-0.5, 0.11]), torch.randn(heads) * 3 if case.sinks else None

    def call():
        result = libdecode.cudnn_batch_decode_with_kv_cache(
            given, k_view, v_view, scale, None, max_sequence_kv=most, out=out, q_len_per_req=q_len, window_left=case.window,
            sinks=on_device(runner, sinks), return_lse=case.return_lse, context=getattr(runner, "context", None), **arguments)
        return result if case.return_lse else (result, None)

    made, lse = twice(call, out)
    flat = made.reshape(-1)
    results = torch.cat([flat[begin : begin + request] for begin in ends]).view(tokens, heads, dim)
    if out is not None:  # 77 are the bytes that were there before
        for begin in ends:
            flat.view(torch.uint8)[begin * flat.element_size() : (begin + request) * flat.element_size()] = 77
        if (flat.view(torch.uint8) != 77).any():
            raise AssertionError(f"{case.name()}: something was written beside the rows of out")
    parts = [attended(values[number * q_len : (number + 1) * q_len], k.of_request(number, runner.device), v.of_request(number, runner.device),
                      scale=as_float32(scale), window=case.window, sinks=on_device(runner, sinks)) for number in range(batch)]
    return finish(runner, case, parts, 1.0, results, lse)


# -------------------------------------------------------------------------------------------------------- TensorRT-LLM's call


def trtllm_case():
    drawn = drawn_for_attention(wide=True)
    is_nvfp4, q_len = drawn["dtypes"][1] == DTYPE_NVFP4, random.choice([1, 1, 2, 4, 11])
    pages = [4, 16, 24, 64] if is_nvfp4 else [1, 5, 16, 16, 64, 128]
    own_heads = chance(0.15) and drawn["heads"][1] > 1  # page tables and lengths for every KV head
    return Case("trtllm", run_trtllm, **drawn, page=random.choice(pages), kv_layout=random.choice(["HND", "NHD"]), batch=random.choice([1, 2, 4]),
                q_len=q_len, ragged=q_len > 1 and chance(0.3), mask=q_len > 1 and not own_heads and chance(0.4), window=random.choice(WINDOWS),
                sinks=chance(0.4), own_heads=own_heads, own_v=not own_heads and chance(0.2), pairs=chance(0.4),
                scales=random.choice(["float", "tensor", "log2"]), lse=random.choice(["none", "new", "given"]),
                v_sf_layout=random.choice([None, "linear", "v_interleave4"]) if is_nvfp4 else None, given_out=chance(0.4),
                skip=not drawn["any_element"] and chance(0.2), enable_pdl=random.choice([None, True, False]),
                out_sf_scale=random.choice([1.0, 37.5]))


def run_trtllm(runner, case):
    (heads, kv_heads), batch, dim, device = case.heads, case.batch, case.head_dim, runner.device
    q_lens = [random.randrange(case.q_len + 1) for _ in range(batch)] if case.ragged else [case.q_len] * batch
    case.q_lens, tokens = [*q_lens[:-1], case.q_len], sum(q_lens[:-1]) + case.q_len
    rows = kv_heads if case.own_heads else 1
    lens = [[random.choice([0, 1, case.q_len - 1, case.page, random.randrange(3 * case.page + 9)]) for _ in range(batch)] for _ in range(rows)]
    live = [[-(-length // case.page) for length in row] for row in lens]
    num_pages = sum(map(sum, live)) * (2 if case.own_v else 1) + 2
    order = random.sample(range(num_pages), num_pages)
    width = max(map(max, live)) + 2
    table = torch.full((rows, batch, 2, width), POISON_ID, dtype=torch.int32)
    k_spans, v_spans = [], []  # of request number head * batch + request
    for head in range(rows):
        for request in range(batch):
            for number in range(live[head][request]):
                count = min(case.page, lens[head][request] - number * case.page)
                ids = [order.pop(), order.pop()] if case.own_v else [order.pop()] * 2
                table[head, request, :, number] = torch.tensor(ids, dtype=torch.int32)
                for spans, page in zip((k_spans, v_spans), ids):
                    spans.append(Span(head * batch + request, page, 0, count))
    extents = {"b": num_pages, "h": kv_heads, "t": case.page}
    (k, v), views = places(runner, case, k_spans, extents, True, pairs=case.pairs and not case.own_v)
    if case.own_v:  # the pages of V by themselves
        views, kept = views[:1], views
        v.spans = v_spans
        kept[1].view(TORCH[case.dtypes[1]]).view(torch.uint8).fill_(0xFF)
        for index, span in enumerate(v_spans):
            kept[1].view(TORCH[case.dtypes[1]])[span.block, :, : span.count, : v.raw.shape[3]] = v.raw[index, :, : span.count].to(device)
        views.append(kept[1])
    arguments = {}
    if k.sf is not None:
        arguments[random.choice(["kv_cache_sf", "kv_block_scales"])] = tuple(
            in_layout(view, case.kv_layout) for view in scale_views(runner, case, (k, v), extents, True))
        arguments["v_sf_layout"] = case.v_sf_layout
    kv_cache = in_layout(views[0], case.kv_layout, 2) if len(views) == 1 else tuple(in_layout(view, case.kv_layout) for view in views)
    query, values = random_query(runner, case, tokens)
    allowed, packed = draft_bits(case, tokens) if case.mask else (None, None)
    if packed is not None and not case.ragged:
        packed = packed.view(batch, case.q_len, -1)
    ends = torch.tensor([0, *case.q_lens]).cumsum(0).int()
    if case.ragged:
        arguments.update(cum_seq_lens_q=ends.to(device), max_q_len=case.q_len, q_len_per_req=None)
    else:
        arguments["q_len_per_req"] = case.q_len
    scale, v_scale = as_float32(dim**-0.5), as_float32(random.choice([1.0, 0.37]))
    given = {"bmm1_scale": scale, "bmm2_scale": v_scale}
    if case.scales == "tensor":
        given = {name: torch.tensor([value, 99.0], device=device) for name, value in given.items()}
    elif case.scales == "log2":
        log2_scale = torch.tensor([scale * math.log2(math.e)], device=device)
        given.update(bmm1_scale=123.0, bmm1_scale_log2=log2_scale)
        scale = log2_scale.double().item() * math.log(2)
    out_dtype, out, out_sf = case.dtypes[2], None, None
    sf_columns = -(-heads * dim // 16 // 4) * 4
    if out_dtype == DTYPE_NVFP4:
        arguments.update(o_sf_scale=case.out_sf_scale, out_dtype="nvfp4", o_sf_vec_size=random.choice([None, 16]))
        case.out_sf_start = random.choice([0, 3, 120]) if case.given_out else 0
        if case.given_out:
            sf_rows = -(-(tokens + case.out_sf_start) // 128) * 128
            out_sf = torch.full((sf_rows, sf_columns), 77, dtype=torch.uint8, device=device)
            data = torch.zeros(tokens, heads, dim // 2, dtype=torch.uint8, device=device)
            out = libdecode.FP4Tensor(data, out_sf, case.out_sf_start)
    elif case.given_out:
        out = torch.zeros(tokens, heads, dim, device=device).to(TYPED[out_dtype])
    else:
        arguments["out_dtype"] = random.choice([TYPED[out_dtype], NAMES[out_dtype]])
    sinks = torch.randn(heads) * 3 if case.sinks else None
    lse = torch.zeros(tokens, heads + 2, device=device)[:, :heads] if case.lse == "given" else None
    lengths = torch.tensor(lens, dtype=torch.int32)
    made_fp4 = []

    def call():
        result = libdecode.trtllm_batch_decode_with_kv_cache(
            query, kv_cache, None, (table if case.own_heads else table[0])[..., 0, :].to(device) if not case.own_v else table[0].to(device),
            (lengths if case.own_heads else lengths[0]).to(device), max(max(map(max, lens)), 1), window_left=case.window, out=out,
            sinks=on_device(runner, sinks), kv_layout=case.kv_layout, mask=on_device(runner, packed),
            skip_softmax_threshold_scale_factor=1e-30 if case.skip else None, uses_shared_paged_kv_idx=not case.own_v,
            lse=lse, return_lse=case.lse == "new", enable_block_sparse_attention=case.own_heads, enable_pdl=case.enable_pdl,
            context=getattr(runner, "context", None), **arguments, **given)
        result, made_lse = result if case.lse == "new" else (result, lse)
        made_fp4[:] = [result]
        return (result.data if out_dtype == DTYPE_NVFP4 else result), made_lse

    made, made_lse = twice(call, out.data if out_dtype == DTYPE_NVFP4 and out is not None else out)
    if out_dtype == DTYPE_NVFP4:
        scales = made_fp4[0].scale.view(torch.uint8)
        out_sf = unswizzled(scales.flatten(), scales.shape[0], sf_columns)
        if not case.given_out:  # what is not written is whatever was there
            out_sf[tokens:] = 77
    parts = []
    for request in range(batch):
        own = slice(int(ends[request]), int(ends[request + 1]))
        of_heads = []
        for head in range(rows):
            of_group = slice(head * heads // rows, (head + 1) * heads // rows)
            of_kv = slice(head, head + 1) if case.own_heads else slice(None)
            k_rows, v_rows = (tensor.of_request(head * batch + request, device)[of_kv] for tensor in (k, v))
            of_heads.append(attended(
                values[own, of_group], k_rows, v_rows, scale=scale, window=case.window, sinks=None if sinks is None else sinks[of_group].to(device),
                drafts=None if allowed is None else allowed[own, : own.stop - own.start]))
        parts.append(together(of_heads, 1))
    return finish(runner, case, parts, v_scale, made, made_lse, out_sf)


# ------------------------------------------------------------------------------------------------------------------ merging


def merge_case(number):
    api = MERGE_APIS[number % len(MERGE_APIS)]
    dtypes, is_c = [random.choice(list(STATE_NAMES)) for _ in range(2)], api == "c"
    ragged = api == "variable_length" or is_c and chance(0.3)
    in_place = api == "in_place" or is_c and not ragged and chance(0.3)
    if in_place or not is_c:
        dtypes[1] = dtypes[0]
    states = 2 if api in ("pair", "in_place") else random.choice([1, 2, 3, 5, 8, 17, 31, 64])
    return Case("merge", run_merge, api=api, dtypes=tuple(dtypes), states=states, tokens=random.choice([1, 2, 3, 7, 20]),
                heads=random.choice([1, 2, 3, 5, 8]), head_dim=random.choice([8, 16, 64, 72, 96, 128, 128, 256, 512, 1024]), ragged=ragged,
                in_place=in_place, natural=is_c and chance(0.4), mask=(is_c or api == "in_place") and chance(0.4), extreme=chance(0.4),
                nan=chance(0.05), no_lse=is_c and not in_place and chance(0.15), backwards=is_c and not ragged and chance(0.3))


def merged(v, lse, natural):
    """v [tokens, states, heads, head_dim] and lse [tokens, states, heads], of states that are not there -infinity, in float64: out, its lse, and
    out of all |v|."""
    top = lse.amax(1)
    infinite = torch.isinf(top)
    difference = lse - torch.where(infinite, torch.zeros_like(top), top)[:, None]
    weight = torch.exp(difference) if natural else torch.exp2(difference)
    weight = torch.where((top == math.inf)[:, None], (lse == math.inf).double(), weight)
    total = weight.sum(1)
    counted = torch.where(total == 0, torch.ones_like(total), total)
    rows, share = torch.where((weight == 0)[..., None], torch.zeros_like(v), v), (weight / counted[:, None])[..., None]
    result = top + counted.log() / (1.0 if natural else math.log(2))  # of none: -infinity, which top is
    return (share * rows).sum(1), result, (share * rows.abs()).sum(1)


def steps_of(case, extents, row, unit):
    """Strides of axes t, s, h, which lie in an order of chance with some gaps, and the elements of all."""
    gaps = [unit * random.choice([0, 0, 1, 3]) for _ in range(3)]
    (state, head, token), span = strides_of(extents, random.sample("bht", 3), row, gaps)
    return {"s": state, "h": head, "t": 0 if case.ragged else token}, span


def run_merge(runner, case):
    tokens, count, heads, dim, dtype, device = case.tokens, case.states, case.heads, case.head_dim, case.dtypes[0], runner.device
    bytes_of = torch.empty(0, dtype=TYPED[dtype]).element_size()
    lse = torch.randn(tokens, count, heads) * 5
    if case.extreme:
        kind = torch.randint(0, 8, lse.shape)
        lse = torch.where(kind < 3, -math.inf, torch.where(kind == 3, lse + 1e4, lse))
        lse[(kind == 4) & (torch.rand(lse.shape) < 0.1)] = math.inf
        lse[torch.rand(tokens) < 0.2] = -math.inf
    if case.nan:
        lse[random.randrange(tokens), random.randrange(count), random.randrange(heads)] = math.nan
    v = torch.randn(tokens, count, heads, dim).to(TYPED[dtype])
    v[lse == -math.inf] = math.nan
    counts = [random.randrange(count + 1) if case.ragged else count for _ in range(tokens)]
    for token, own in enumerate(counts):
        lse[token, own:] = -math.inf
    first = torch.tensor([0, *counts]).cumsum(0)
    first += random.randrange(3) * case.ragged  # of all states, which then lie in one row
    extents = {"t": 1 if case.ragged else tokens, "b": int(first[-1]) + 1 if case.ragged else count, "h": heads}
    steps, span = steps_of(case, extents, dim, 16 // bytes_of)
    lse_steps, lse_span = steps_of(case, extents, 1, 1)
    flat, flat_lse = torch.full((span,), math.nan).to(TYPED[dtype]), torch.full((lse_span,), math.nan)
    base = lse_base = 0
    if case.backwards:  # the first state lies last
        base, lse_base = (count - 1) * steps["s"], (count - 1) * lse_steps["s"]
        steps["s"], lse_steps["s"] = -steps["s"], -lse_steps["s"]
    for token in range(tokens):
        for state in range(counts[token]):
            number = state + (int(first[token]) if case.ragged else 0)
            row, own_lse = base + token * steps["t"] + number * steps["s"], lse_base + token * lse_steps["t"] + number * lse_steps["s"]
            torch.as_strided(flat, (heads, dim), (steps["h"], 1), row).copy_(v[token, state])
            torch.as_strided(flat_lse, (heads,), (lse_steps["h"],), own_lse).copy_(lse[token, state])
    flat, flat_lse = flat.to(device), flat_lse.to(device)
    mask = (torch.rand(tokens) < 0.6) if case.mask else torch.ones(tokens, dtype=torch.bool)
    expected, expected_lse, magnitude = merged(v.double(), lse.double(), case.natural)

    place = random.randrange(count) if case.api == "c" else 0  # of the state that the result replaces
    out, new_lse = torch.full((tokens, heads, dim), 77.0).to(TYPED[case.dtypes[1]]).to(device), torch.full((tokens, heads), 77.0, device=device)
    if case.in_place:
        out = torch.as_strided(flat, (tokens, heads, dim), (steps["t"], steps["h"], 1), base + place * steps["s"])
        new_lse = torch.as_strided(flat_lse, (tokens, heads), (lse_steps["t"], lse_steps["h"]), lse_base + place * lse_steps["s"])
    before, kept, kept_lse = (flat.clone(), flat_lse.clone()), out.clone(), new_lse.clone()

    def call():
        flat.copy_(before[0])
        flat_lse.copy_(before[1])
        return merge_by(runner, case, flat, flat_lse, steps, lse_steps, base, lse_base, first, mask.to(device), out, new_lse)

    made, made_lse = twice(call, None)
    on = mask.to(device)
    for old, new in ((kept, made), (kept_lse, made_lse)):
        if new is not None and not torch.equal(bits_of(old[~on]), bits_of(new[~on])):
            raise AssertionError(f"{case.name()}: a token that the mask leaves out was written")
    expected, expected_lse, magnitude = (each.to(device)[on] for each in (expected, expected_lse, magnitude))
    actual, actual_lse = made[on].double(), None if made_lse is None else made_lse[on].double()
    if case.in_place:  # all else must be as it was
        out.copy_(kept)
        new_lse.copy_(kept_lse)
    if not all(torch.equal(bits_of(one), bits_of(other)) for one, other in zip(before, (flat, flat_lse))):
        raise AssertionError(f"{case.name()}: partial results were written")
    tolerance, lse_tolerance = torch.zeros_like(expected), torch.zeros_like(expected_lse)
    if device == "cuda":  # element_tolerance and lse_tolerance of check_merge.c, whose rounding is half_units' here
        finite = torch.where(torch.isfinite(expected_lse), expected_lse, torch.zeros_like(expected_lse)).abs()
        steps_of_lse = (2.0 if case.natural else 0.0) * finite
        tolerance = magnitude * ((count + 16 + steps_of_lse) * 2.0**-23)[..., None] + 2.0**-126
        lse_tolerance = finite * 2.0**-21 + 2.0**-20
    errors = [merge_error(actual, expected, None if case.dtypes[1] == DTYPE_FP32 else case.dtypes[1], tolerance), 0.0]
    if actual_lse is not None:
        errors[1] = merge_error(actual_lse, expected_lse, None, lse_tolerance)
    difference = (actual - expected).nan_to_num(0)
    if not difference.numel():
        return 0.0, 0.0, 0.0, 0.0, "merge"
    return *errors, difference.abs().max().item(), difference.square().mean().sqrt().item(), "merge"


def merge_error(actual, expected, dtype, tolerance):
    """In half units; NaN must be where it is expected, and nowhere else."""
    if not torch.equal(torch.isnan(actual), torch.isnan(expected)):
        return math.inf
    error = half_units(actual.nan_to_num(0, math.inf, -math.inf), expected.nan_to_num(0, math.inf, -math.inf), dtype, tolerance.nan_to_num(0))
    return error.nan_to_num(math.inf).max().item() if error.numel() else 0.0


def merge_by(runner, case, flat, flat_lse, steps, lse_steps, base, lse_base, first, mask, out, lse):
    """The call of the case; returns what it wrote, or returned."""
    tokens, count, heads, dim = case.tokens, case.states, case.heads, case.head_dim
    context = getattr(runner, "context", None)
    if case.api != "c":
        rows = torch.as_strided(flat, (tokens, count, heads, dim), (steps["t"], steps["s"], steps["h"], 1)) if not case.ragged else None
        sums = torch.as_strided(flat_lse, (tokens, count, heads), (lse_steps["t"], lse_steps["s"], lse_steps["h"])) if not case.ragged else None
    if case.api == "states":
        return libdecode.merge_states(rows, sums, context=context)
    if case.api == "pair":
        return libdecode.merge_state(rows[:, 0], sums[:, 0], rows[:, 1], sums[:, 1], context=context)
    if case.api == "in_place":
        given = None if not case.mask else mask if tokens % 2 else mask.to(torch.uint8)
        libdecode.merge_state_in_place(rows[:, 0], sums[:, 0], rows[:, 1], sums[:, 1], given, context=context)
        return out, lse
    offsets = first.int().to(flat.device)
    if case.api == "variable_length":
        most = int(first[-1]) + 1
        rows = torch.as_strided(flat, (most, heads, dim), (steps["s"], steps["h"], 1))
        sums = torch.as_strided(flat_lse, (most, heads), (lse_steps["s"], lse_steps["h"]))
        return libdecode.variable_length_merge_states(rows, sums, offsets, context=context)
    states = abi.States(dtype=case.dtypes[0], out_dtype=case.dtypes[1], flags=abi.MERGE_LSE_NATURAL if case.natural else 0,
                        num_states=0 if case.ragged else count, num_tokens=tokens, num_heads=heads, head_dim=dim)
    states.partial_out, states.partial_lse = flat.data_ptr() + base * flat.element_size(), flat_lse.data_ptr() + 4 * lse_base
    states.out, states.lse = out.data_ptr(), None if case.no_lse else lse.data_ptr()
    states.partial_state_stride, states.partial_head_stride = steps["s"], steps["h"]
    states.partial_lse_state_stride, states.partial_lse_head_stride = lse_steps["s"], lse_steps["h"]
    states.out_token_stride, states.out_head_stride, states.lse_token_stride, states.lse_head_stride = *out.stride()[:2], *lse.stride()
    as_bytes = mask.to(torch.uint8)
    states.token_mask = as_bytes.data_ptr() if case.mask else None
    if case.ragged:
        states.state_offsets = offsets.data_ptr()
    else:
        states.partial_token_stride, states.partial_lse_token_stride = steps["t"], lse_steps["t"]
    library = libdecode.library()
    if runner.device == "cpu":
        library.check(library.merge_states_reference(ctypes.byref(states)))
    else:
        library.check(library.merge_states(context.handle, ctypes.byref(states), torch.cuda.current_stream().cuda_stream))
        torch.cuda.synchronize()
    return out, None if case.no_lse else lse


def make_case(number):
    """Every other one merges."""
    if number % 2:
        return merge_case(number // 2)
    return (single_case, cudnn_case, trtllm_case)[number // 2 % 3]()


if __name__ == "__main__":
    arguments = read_arguments(__doc__, 480)
    runner = make_runner(arguments)
    run_all(arguments, seeded_cases(arguments, make_case), lambda case: case.run(runner, case))
