# SPDX-License-Identifier: Apache-2.0
"""Decode attention in numpy and float64, and a paged cache to put to it: what the tests hold the package to.

Written another way than the library on purpose: whole matrices of logits, a boolean matrix of what is visible, values of e4m3, e5m2
and NVFP4 by table.
"""

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _fp8_table(fraction_bits, bias):
    code = np.arange(256)
    exponent, fraction = (code & 127) >> fraction_bits, (code & (1 << fraction_bits) - 1) / (1 << fraction_bits)
    value = np.where(exponent == 0, 2.0 ** (1 - bias) * fraction, 2.0 ** (exponent - bias) * (1 + fraction))
    return np.where(code >= 128, -value, value)


E4M3, E5M2 = _fp8_table(3, 7), _fp8_table(2, 15)
E4M3[[127, 255]] = np.nan
E5M2[[124, 252]] = np.inf, -np.inf
E5M2[[125, 126, 127, 253, 254, 255]] = np.nan
# Half a unit in the last place, relative, and at the smallest numbers.
ROUNDING = {"bf16": (2.0**-8, 2.0**-134), "fp16": (2.0**-11, 2.0**-25), "e4m3": (2.0**-4, 2.0**-10), "f32": (2.0**-24, 2.0**-150)}


def values(bits, dtype, scales=None):
    """What carried bits are worth, in float64. Of NVFP4 [..., D / 2] bytes and [..., D / 16] scales make [..., D]."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in ("e4m3", "e5m2"):
        return (E4M3 if dtype == "e4m3" else E5M2)[bits]
    if dtype == "nvfp4":
        codes = np.stack([bits & 15, bits >> 4], -1).reshape(*bits.shape[:-1], -1)
        return E2M1[codes] * np.repeat(E4M3[scales], 16, -1)
    return bits.astype(np.float64)


def random_bits(generator, dtype, shape):
    """Random elements of about unit size, as numpy carries them."""
    if dtype == "fp16":
        return generator.standard_normal(shape).astype(np.float16)
    if dtype == "bf16":
        return (generator.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "e4m3":
        return (generator.integers(0, 64, shape) | generator.integers(0, 2, shape) << 7).astype(np.uint8)
    if dtype == "e5m2":
        return (generator.integers(0, 66, shape) | generator.integers(0, 2, shape) << 7).astype(np.uint8)
    return generator.integers(0, 256, (*shape[:-1], shape[-1] // 2)).astype(np.uint8)  # nvfp4


def random_scales(generator, shape):
    """e4m3 bits of 2^-2 to just below 2."""
    return generator.integers(40, 64, shape).astype(np.uint8)


def interleaved(scales):
    """[pages, heads, tokens, S] as V's scales lie interleaved by four tokens."""
    pages, heads, tokens, blocks = scales.shape
    return np.ascontiguousarray(scales.reshape(pages, heads, tokens // 4, 4, blocks).swapaxes(-1, -2)).reshape(scales.shape)


def gathered(pages, table, length):
    """[pages, heads, page_size, D] values of one request: [heads, length, D]."""
    picked = pages[table[: -(-length // pages.shape[2])]]
    return picked.transpose(1, 0, 2, 3).reshape(pages.shape[1], -1, pages.shape[3])[:, :length]


def attention(query, k, v, tables, seq_lens, q_lens, *, scale, v_scale=1.0, window=-1, sinks=None, allowed=None, v_tables=None):
    """query [tokens, H, D], k and v [pages, heads, page_size, D], all values. `allowed` [tokens, max q_len]: which draft tokens a
    query token sees; None: causal. Returns (out, lse in base 2)."""
    outs, lses, first = [], [], 0
    for request, (length, q_len) in enumerate(zip(seq_lens, q_lens)):
        rows = query[first : first + q_len]
        group = rows.shape[1] // k.shape[1]
        keys = np.repeat(gathered(k, tables[request], length), group, 0)
        rest = np.repeat(gathered(v, (tables if v_tables is None else v_tables)[request], length), group, 0)
        logits = np.einsum("qhd,hsd->qhs", rows, keys) * scale
        position = np.arange(q_len)[:, None] + length - q_len
        token = np.arange(length)[None, :]
        visible = token <= position
        if allowed is not None:
            drafts = np.zeros((q_len, length), bool)
            drafts[:, length - q_len :] = allowed[first : first + q_len, :q_len]
            visible = np.where(token >= length - q_len, drafts, True)
        if window >= 0:
            visible = visible & (token >= position - window)
        logits = np.where(visible[:, None, :], logits, -np.inf)
        if sinks is not None:
            logits = np.concatenate([logits, np.broadcast_to(sinks[None, :, None], (*logits.shape[:2], 1))], -1)
        top = logits.max(-1, initial=-np.inf, keepdims=True)
        weights = np.exp(logits - np.where(np.isfinite(top), top, 0))
        total = weights.sum(-1)
        with np.errstate(divide="ignore"):
            lses.append((np.log(total) + np.where(np.isfinite(top), top, 0)[..., 0]) / np.log(2))
        share = weights[..., :length] / np.where(total > 0, total, 1)[..., None]
        outs.append(np.einsum("qhs,hsd->qhd", share, rest) * v_scale)
        first += q_len
    return np.concatenate(outs), np.concatenate(lses)


def off_by(actual, expected, dtype):
    """How far results are from the exact ones, in what rounding to their dtype allows: 1 is all of it."""
    relative, smallest = ROUNDING[dtype]
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        error = np.abs(actual - expected) / (relative * np.abs(expected) + smallest)
    return float(np.max(np.where(same, 0.0, error), initial=0.0))


def pack_mask(allowed):
    """[tokens, q_len] booleans as the words of a draft mask."""
    words = np.zeros((allowed.shape[0], 2 * -(-allowed.shape[1] // 32)), np.uint16)
    for column in range(allowed.shape[1]):
        words[:, column // 16] |= allowed[:, column].astype(np.uint16) << np.uint16(column % 16)
    return words


class Cache:
    """A pool of pages in one dtype, a page table over a random order of them, and lengths; unused pages are NaN where there is
    one."""

    def __init__(self, dtype, seq_lens, *, seed=1, num_kv_heads=2, head_dim=64, page_size=16, spare_pages=2):
        generator = np.random.default_rng(seed)
        self.dtype, self.page_size, self.generator = dtype, page_size, generator
        live = [-(-length // page_size) for length in seq_lens]
        width, count = max([*live, 1]) + 1, sum(live) + spare_pages
        shape = (count, num_kv_heads, page_size, head_dim)
        self.k_bits, self.v_bits = random_bits(generator, dtype, shape), random_bits(generator, dtype, shape)
        self.k_scales = self.v_scales = None
        if dtype == "nvfp4":
            self.k_scales, self.v_scales = (random_scales(generator, (*shape[:3], head_dim // 16)) for _ in range(2))
        order = generator.permutation(count)
        self.tables = np.full((len(seq_lens), width), order[-1], np.int32)
        for request, pages in enumerate(live):
            first = sum(live[:request])
            self.tables[request, :pages] = order[first : first + pages]
        self.seq_lens = np.array(seq_lens, np.int32)
        nan = {"bf16": 0x7FC0, "fp16": np.nan, "e4m3": 0x7F, "e5m2": 0x7D}.get(dtype)
        if nan is not None:
            for bits in (self.k_bits, self.v_bits):
                bits[order[sum(live) :]] = nan

    @property
    def k(self):
        """Values of K."""
        return values(self.k_bits, self.dtype, self.k_scales)

    @property
    def v(self):
        """Values of V."""
        return values(self.v_bits, self.dtype, self.v_scales)
