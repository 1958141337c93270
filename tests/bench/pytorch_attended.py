# SPDX-License-Identifier: Apache-2.0
"""What pytorch_rows_check.py and pytorch_calls_check.py share: attention by the letter of its formula, one query token after the other
over the tokens that it sees, in PyTorch and float64; and how far a result is from it.

Nothing is shared with the formula of pytorch_check.py. Its runners and tolerances are.
"""

import collections
import dataclasses
import math
import random

import torch

from pytorch_check import DTYPES, NAMES, TORCH, Expected, nvfp4_error, random_elements
from libdecode.abi import DTYPE_BF16, DTYPE_E4M3, DTYPE_E5M2, DTYPE_FP16, DTYPE_NVFP4

from pytorch_elements import decode, half_units

NAMES = NAMES | {DTYPE_E5M2: "e5m2"}
TORCH = TORCH | {DTYPE_E5M2: torch.uint8}
ALL_DTYPES = DTYPES + [(query, DTYPE_E5M2, out) for query, kv, out in DTYPES if kv == DTYPE_NVFP4]
WHOLE_BYTES = (DTYPE_BF16, DTYPE_FP16, DTYPE_E4M3)  # what kernels for any stride, and for offsets, read
HEAD_DIMS = [16, 32, 48, 64, 64, 80, 96, 112, 128, 128, 128, 192, 256, 512]
NARROW_DIMS = HEAD_DIMS[:-1]  # of e5m2 and NVFP4, and of those kernels
POISON_ID = 2**31 - 1


def item_bytes(dtype):
    """Of what a row is stored in: an element, or two of NVFP4."""
    return 2 if dtype in (DTYPE_BF16, DTYPE_FP16) else 1


def random_rows(dtype, shape):
    """Raw elements [..., head_dim], two of NVFP4 in one; e5m2: like normal ones, and some of every magnitude below 4."""
    if dtype != DTYPE_E5M2:
        return random_elements(dtype, shape)
    normal = torch.randn(shape).to(torch.float8_e5m2).view(torch.uint8)
    small = torch.randint(0, 68, shape, dtype=torch.uint8) | torch.randint(0, 2, shape, dtype=torch.uint8) << 7
    return torch.where(torch.rand(shape) < 0.2, small, normal)


# ----------------------------------------------------------------------------------------------------------- the formula


def turned_by_position(rows, positions, scale, theta):
    """[heads, tokens, D], of which element i turns with element i + D/2, by position / scale * theta^(-2i/D)."""
    dim = rows.shape[-1]
    pair = torch.arange(dim // 2, dtype=torch.float64, device=rows.device)
    angle = positions.double()[:, None] * ((theta or 1e4) ** (-2 * pair / dim) / (scale or 1.0))
    x, y = rows.chunk(2, -1)
    return torch.cat([x * angle.cos() - y * angle.sin(), y * angle.cos() + x * angle.sin()], -1)


def attended(q, k, v, *, scale, first=0, window=-1, soft_cap=0.0, slopes=None, rope=None, sinks=None, drafts=None):
    """One request: q [q_len, H, D]; k and v [Hkv, n, D], its last n tokens, of which the earliest is number `first`. drafts: [q_len, q_len],
    which of the last tokens see which. Returns Expected, its lse natural and its out without the scale of V."""
    (q_len, heads, dim), (kv_heads, stored, _) = q.shape, k.shape
    seq_len, device = first + stored, q.device
    results = collections.defaultdict(list)
    if rope is not None:
        k = turned_by_position(k, torch.arange(first, seq_len, device=device), *rope)
    for token in range(q_len):
        position = seq_len - q_len + token
        seen = torch.arange(max(0, position - window if window >= 0 else 0), max(position + 1, 0), device=device)
        if drafts is not None and position >= 0:
            after = max(seq_len - q_len, 0)  # of the first draft token that there is
            chosen = drafts[token, after - (seq_len - q_len) :].nonzero()[:, 0].to(device) + after
            seen = torch.cat([seen[seen < after], chosen[chosen >= position - window] if window >= 0 else chosen])
        row = q[token]
        if rope is not None and position >= 0:
            row = turned_by_position(row[:, None], torch.tensor([position], device=device), *rope)[:, 0]
        keys, values = k[:, seen - first], v[:, seen - first]
        row = row.view(kv_heads, heads // kv_heads, dim)
        z = (row @ keys.transpose(1, 2) * scale).view(heads, -1)
        if soft_cap:
            z = soft_cap * torch.tanh(z / soft_cap)
        if slopes is not None:
            z = z + slopes.double()[:, None] * (seen - position)
        sink = torch.full((heads,), -math.inf, dtype=torch.float64, device=device) if sinks is None else sinks.double()
        largest = torch.cat([z, sink[:, None]], 1).amax(1)
        largest = torch.where(largest == -math.inf, torch.zeros_like(largest), largest)
        weights = torch.exp(z - largest[:, None])
        total = weights.sum(1) + torch.exp(sink - largest)
        weights = weights / torch.where(total == 0, torch.ones_like(total), total)[:, None]
        of_heads = weights.view(kv_heads, heads // kv_heads, -1)
        results["out"].append((of_heads @ values).view(heads, dim))
        results["lse"].append(largest + total.log())
        results["spread"].append((of_heads.square() @ values.square()).sqrt().view(heads, dim))
        results["weight"].append(weights.square().sum(1).sqrt())
        most_v = values.abs().flatten(1).amax(1) if len(seen) else v.new_zeros(kv_heads)
        results["reach"].append(math.sqrt(len(seen)) * most_v.repeat_interleave(heads // kv_heads))
        lengths = [sum(part.square() for part in rows.chunk(2, -1)) for rows in (row, keys)]
        turns = (lengths[0] @ lengths[1].transpose(1, 2)).sqrt().view(heads, -1)
        has_turns = rope is not None and len(seen)
        results["turned"].append(abs(scale) * turns.amax(1) if has_turns else v.new_zeros(heads))
    empty = {name: v.new_zeros(0, heads, *((dim,) if name in ("out", "spread") else ())) for name in
             ("out", "lse", "spread", "weight", "reach", "turned")}
    return Expected(**{name: torch.stack(results[name]) if q_len else empty[name] for name in empty})


def together(parts, axis=0):
    """The rows of several requests, or with axis 1 the heads of one, as one Expected."""
    return Expected(*(torch.cat([getattr(part, field.name) for part in parts], axis) for field in dataclasses.fields(Expected)))


# ------------------------------------------------------------------------------------------------------------ a result


def spread_rows(shape, dtype, gap, device, fill):
    """[tokens, heads, row] with a gap behind each row, and the bytes of all."""
    row = shape[2] + gap * 16 // torch.empty(0, dtype=dtype).element_size()
    whole = torch.full((shape[0] * shape[1] * row,), fill, dtype=dtype, device=device)
    return torch.as_strided(whole, shape, (shape[1] * row, row, 1)), whole


def chance(probability):
    return random.random() < probability


def as_float32(scale):
    """What the library makes of a scale."""
    return torch.tensor(scale, dtype=torch.float32).double().item()


def bits_of(tensor):
    """A copy, in bytes; also of one element whose stride is no matter."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor).view(-1).view(torch.uint8)


def twice(call, out):
    """The result of two calls, which must be equal bit by bit: call() -> (out, lse or None). `out`: the caller's, or None; it is 77 before."""
    results = []
    for _ in range(2):
        if out is not None:
            out.view(torch.uint8).fill_(77)
        results.append(call())
        kept = [None if made is None else bits_of(made) for made in results[-1]]
        if len(results) == 1:
            first = kept
    if any(one is not None and not torch.equal(one, other) for one, other in zip(first, kept)):
        raise AssertionError("the same call gave other bits the second time")
    return results[-1]


def in_layout(view, layout, first=1):
    """A view with heads before tokens, as the layout has it; `first`: the axis of heads."""
    return view.transpose(first, first + 1) if layout == "NHD" else view


def on_device(runner, tensor):
    return None if tensor is None else tensor.to(runner.device)


def compare(runner, case, expected, bmm2, out, lse, out_sf=None):
    """(largest error of out, of lse) in half units beyond the tolerance, and those of out over its rms."""
    out_dtype = case.dtypes[2]
    tolerance, lse_tolerance = runner.tolerance(case, expected, bmm2)
    if out_dtype == DTYPE_NVFP4:
        out_error, actual = nvfp4_error(case, out, out_sf, expected.out, tolerance)
    else:
        actual = decode(out_dtype, out)
        rounded = expected.out.clamp(-448, 448) if out_dtype == DTYPE_E4M3 else expected.out
        out_error = half_units(actual, rounded, out_dtype, tolerance).max().item() if out.numel() else 0.0
    lse_error = 0.0
    if lse is not None and lse.numel():
        lse_error = half_units(lse.double(), expected.lse, None, lse_tolerance).max().item()
    lse_error = math.inf if lse is not None and torch.isnan(lse).any() else lse_error
    out_error = math.inf if torch.isnan(actual).any() else out_error
    rms = (expected.out.square().mean().sqrt().item() if out.numel() else 0.0) or 1.0
    difference = (actual - expected.out) if out.numel() else expected.out.new_zeros(1)
    return out_error, lse_error, difference.abs().max().item() / rms, difference.square().mean().sqrt().item() / rms
