# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's batch decode as cuDNN has it, and its single decode, on the host, against attention in numpy."""

import unittest

import skip  # noqa: F401
import numpy as np

import libdecode
from libdecode import alibi, typed
from numpy_attention import Cache, attention, interleaved, off_by, random_bits, random_scales, values

LENS = [5, 70, 33, 16, 0]


def carried(bits, dtype):
    return bits if dtype == "fp16" else typed(bits, dtype)


class CudnnTest(unittest.TestCase):
    def both(self, q_shape, **arguments):
        cache = Cache("bf16", LENS)
        query = random_bits(cache.generator, "bf16", (len(LENS), 8, 64))
        result = libdecode.cudnn_batch_decode_with_kv_cache(
            typed(query.reshape(q_shape), "bf16"), typed(cache.k_bits, "bf16"), typed(cache.v_bits, "bf16"), 0.125, None,
            max_sequence_kv=70, **{"actual_seq_lens_kv": cache.seq_lens, "block_tables": cache.tables, **arguments})
        expected = attention(values(query, "bf16"), cache.k, cache.v, cache.tables, LENS, [1] * len(LENS), scale=0.125,
                             window=arguments.get("window_left", -1), sinks=arguments.get("sinks"))
        return result, expected

    def check(self, out, expected):
        self.assertLessEqual(off_by(values(out, "bf16").reshape(expected.shape), expected, "bf16"), 1.0001)

    def test_paged_cache(self):
        out, (expected, _) = self.both((len(LENS), 8, 64))
        self.assertEqual(out.shape, (len(LENS), 8, 64))
        self.check(out, expected)

    def test_four_axes_as_cudnn_writes_them(self):
        cache = Cache("bf16", LENS)
        out, (expected, _) = self.both((len(LENS), 8, 1, 64), actual_seq_lens_kv=cache.seq_lens.reshape(-1, 1, 1, 1),
                                       block_tables=cache.tables[:, None, :, None], is_cuda_graph_compatible=True)
        self.assertEqual(out.shape, (len(LENS), 8, 1, 64))
        self.check(out, expected)

    def test_out_lse_window_and_sinks(self):
        room, sinks = np.zeros((len(LENS), 8, 64), np.uint16), np.ones(8, np.float32)
        (out, lse), (expected, expected_lse) = self.both((len(LENS), 8, 64), out=room, return_lse=True, window_left=9, sinks=sinks)
        self.assertIs(out, room)
        self.check(out, expected)
        self.assertLessEqual(off_by(lse, expected_lse, "f32"), 1.0001)

    def test_without_lengths_every_request_is_as_long_as_the_longest(self):
        cache = Cache("bf16", [40] * 3)
        query = random_bits(cache.generator, "bf16", (3, 8, 64))
        for longest in (40, 33):
            out = libdecode.cudnn_batch_decode_with_kv_cache(
                typed(query, "bf16"), typed(cache.k_bits, "bf16"), typed(cache.v_bits, "bf16"), 0.125, None, max_sequence_kv=longest,
                block_tables=cache.tables)
            expected, _ = attention(values(query, "bf16"), cache.k, cache.v, cache.tables, [longest] * 3, [1] * 3, scale=0.125)
            self.check(out, expected)

    def test_requests_begin_at_their_offsets(self):
        generator = np.random.default_rng(5)
        query, k, v = (random_bits(generator, "bf16", shape) for shape in ((7, 8, 64), (6, 2, 20, 64), (6, 2, 20, 64)))
        lens, rows, room = np.array([20, 7, 13], np.int32), 8 * 64, 2 * 20 * 64
        for given_lens in (lens, lens.reshape(3, 1, 1, 1)):
            out = np.zeros((7, 8, 64), np.uint16)
            libdecode.cudnn_batch_decode_with_kv_cache(
                typed(query, "bf16"), typed(k, "bf16"), typed(v, "bf16"), 0.125, None, max_sequence_kv=20, actual_seq_lens_kv=given_lens,
                batch_offsets_q=np.array([rows, 3 * rows, 5 * rows]), batch_offsets_o=np.array([0, 3 * rows, 6 * rows, 7 * rows], np.int32),
                batch_offsets_k=np.array([room, 2 * room, 3 * room]), batch_offsets_v=np.array([0, 2 * room, 4 * room]),
                out=typed(out, "bf16"))
            expected, _ = attention(values(query[1::2][:3], "bf16"), values(k[1:4], "bf16"), values(v[0:5:2], "bf16"),
                                    np.arange(3)[:, None], lens, [1] * 3, scale=0.125)
            self.check(out[0::3], expected)
            self.assertFalse(np.delete(out, [0, 3, 6], 0).any())

    def test_requests_may_begin_anywhere(self):
        generator = np.random.default_rng(6)
        query, k, v = (random_bits(generator, "bf16", shape) for shape in ((6, 8, 64), (6, 2, 20, 64), (6, 2, 20, 64)))
        lens, rows, room, out = np.array([20, 7, 13], np.int32), 8 * 64, 2 * 20 * 64, np.zeros((6, 8, 64), np.uint16)
        of_q, of_o, of_k, of_v = np.array([4, 0, 1]), np.array([5, 1, 2], np.int32), np.array([3, 5, 0]), np.array([0, 4, 5])
        libdecode.cudnn_batch_decode_with_kv_cache(
            typed(query, "bf16"), typed(k, "bf16"), typed(v, "bf16"), 0.125, None, max_sequence_kv=20, actual_seq_lens_kv=lens,
            batch_offsets_q=of_q * rows, batch_offsets_o=of_o * np.int32(rows), batch_offsets_k=of_k * room, batch_offsets_v=of_v * room,
            out=typed(out, "bf16"))
        expected, _ = attention(values(query[of_q], "bf16"), values(k[of_k], "bf16"), values(v[of_v], "bf16"),
                                np.arange(3)[:, None], lens, [1] * 3, scale=0.125)
        self.check(out[of_o], expected)
        self.assertFalse(np.delete(out, of_o, 0).any())

    def test_offsets_are_added_to_pages(self):
        cache = Cache("bf16", [40] * 3)
        query, tables = random_bits(cache.generator, "bf16", (3, 8, 64)), cache.tables.copy()
        page = cache.k_bits[0].size
        moved = np.array([0, 1, 0])
        tables[1] -= 1  # one page back, which the offset makes good
        out = libdecode.cudnn_batch_decode_with_kv_cache(
            typed(query, "bf16"), typed(cache.k_bits, "bf16"), typed(cache.v_bits, "bf16"), 0.125, None, max_sequence_kv=40,
            block_tables=np.where(tables < 0, 0, tables), batch_offsets_k=moved * page, batch_offsets_v=moved * page)
        live = np.where(tables < 0, 1, cache.tables)
        expected, _ = attention(values(query, "bf16"), cache.k, cache.v, live, [40] * 3, [1] * 3, scale=0.125)
        self.check(out, expected)

    def test_contiguous_cache(self):
        generator = np.random.default_rng(4)
        lens, room = np.array([5, 70, 33, 80, 0], np.int32), 77
        k, v = (random_bits(generator, "bf16", (5, 2, room, 64)) for _ in range(2))
        for bits in (k, v):
            for request, length in enumerate(lens):
                bits[request, :, length:] = 0x7FC0  # NaN
        query = random_bits(generator, "bf16", (5, 8, 64))
        whole = random_bits(generator, "bf16", (5, 2, room, 64))
        for given_lens, keys, longest, seen in ((lens, k, room, np.minimum(lens, room)), (lens.reshape(-1, 1, 1, 1), k, room, np.minimum(lens, room)),
                                                (None, whole, room, [room] * 5), (None, whole, 40, [40] * 5)):
            rest = v if given_lens is not None else whole[::-1].copy()
            out, lse = libdecode.cudnn_batch_decode_with_kv_cache(
                typed(query, "bf16"), typed(keys, "bf16"), typed(rest, "bf16"), 0.125, None, max_sequence_kv=longest,
                actual_seq_lens_kv=given_lens, return_lse=True)
            expected, expected_lse = attention(values(query, "bf16"), values(keys, "bf16"), values(rest, "bf16"),
                                               np.arange(5)[:, None], seen, [1] * 5, scale=0.125)
            self.check(out, expected)
            self.assertLessEqual(off_by(lse, expected_lse, "f32"), 1.0001)


def rotated(rows, positions, scale, theta):
    """[..., heads, D] with each pair of halves turned by its position."""
    half = rows.shape[-1] // 2
    angle = (positions[:, None] / scale * theta ** (-np.arange(half) / half))[:, None, :]
    low, high = rows[..., :half], rows[..., half:]
    return np.concatenate([low * np.cos(angle) - high * np.sin(angle), high * np.cos(angle) + low * np.sin(angle)], -1)


class SingleDecodeTest(unittest.TestCase):
    """One request over [tokens, num_kv_heads, head_dim]."""

    def both(self, tokens, *, dtype="fp16", kv_dtype=None, layout="NHD", rope=None, cap=None, window=-1, factors=(1.0, 1.0, 1.0), **arguments):
        generator, kv_dtype = np.random.default_rng(tokens), kv_dtype or dtype
        query = random_bits(generator, dtype, (8, 64))
        k, v = (random_bits(generator, kv_dtype, (tokens, 2, 64)) for _ in range(2))
        out, lse = libdecode.single_decode_with_kv_cache(
            carried(query, dtype), *(carried(bits if layout == "NHD" else bits.swapaxes(0, 1).copy(), kv_dtype) for bits in (k, v)),
            kv_layout=layout, window_left=window, logits_soft_cap=cap, return_lse=True, **arguments)
        rows, keys = values(query, dtype)[None], values(k, kv_dtype)
        if rope is not None:
            rows, keys = rotated(rows, np.array([tokens - 1]), *rope), rotated(keys, np.arange(tokens), *rope)
        scale = np.float32(arguments.get("sm_scale", 0.125) * factors[0] * factors[1])
        logits = np.einsum("qhd,shd->hs", rows, np.repeat(keys, 4, 1)) * float(scale)
        if cap is not None and cap > 0:
            logits = cap * np.tanh(logits / cap)
        if arguments.get("pos_encoding_mode") == "ALIBI":
            logits += 0.5 ** np.arange(1, 9)[:, None] * (np.arange(tokens) - (tokens - 1))
        if window >= 0:
            logits[:, : max(tokens - 1 - window, 0)] = -np.inf
        weights = np.exp(logits)
        with np.errstate(divide="ignore"):
            expected_lse = np.log2(weights.sum(-1))
        expected = np.einsum("hs,shd->hd", weights, np.repeat(values(v, kv_dtype), 4, 1)) * float(np.float32(factors[2]))
        if tokens > 0:
            expected /= weights.sum(-1)[:, None]
        if arguments.get("pos_encoding_mode") == "ALIBI":  # of FlashInfer, which counts from the first token
            expected_lse += 0.5 ** np.arange(1, 9) * (tokens - 1) / np.log(2)
        self.assertEqual((out.shape, lse.shape), ((8, 64), (8,)))
        self.assertLessEqual(off_by(values(out, dtype), expected, dtype), 1.001)
        self.assertLessEqual(off_by(lse, expected_lse, "f32"), 4)

    def test_layouts_and_dtypes(self):
        for dtype, kv_dtype in (("fp16", "fp16"), ("bf16", "bf16"), ("bf16", "e4m3"), ("fp16", "e4m3"), ("bf16", "e5m2"), ("fp16", "e5m2")):
            for layout in ("NHD", "HND"):
                with self.subTest(dtype=dtype, kv_dtype=kv_dtype, layout=layout):
                    self.both(333, dtype=dtype, kv_dtype=kv_dtype, layout=layout)

    def test_no_tokens_and_one(self):
        self.both(0)
        self.both(1)

    def test_windows_and_caps(self):
        self.both(100, window=9)
        self.both(100, window=0)
        self.both(100, cap=0.5)
        self.both(100, cap=0.0)

    def test_rope(self):
        self.both(200, pos_encoding_mode="ROPE_LLAMA", rope=(1.0, 10000.0))
        self.both(200, pos_encoding_mode="ROPE_LLAMA", rope_scale=4.0, rope_theta=500000.0, rope=(4.0, 500000.0), layout="HND")

    def test_alibi(self):
        self.both(200, pos_encoding_mode="ALIBI")
        self.both(200, pos_encoding_mode="ALIBI", cap=2.0, window=30, dtype="bf16", kv_dtype="e4m3", layout="HND")
        # the series of its authors: of 12 heads those of 8, then every other one of 16
        self.assertEqual(alibi.slopes(8), [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625])
        self.assertEqual(alibi.slopes(12), alibi.slopes(8) + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5])
        self.assertEqual((alibi.slopes(1), alibi.slopes(3)), ([2.0**-8], [2.0**-4, 2.0**-8, 2.0**-2]))

    def test_nvfp4(self):
        generator = np.random.default_rng(3)
        query = random_bits(generator, "fp16", (8, 64))
        k, v = (random_bits(generator, "nvfp4", (36, 2, 64)) for _ in range(2))
        k_sf, v_sf = (random_scales(generator, (36, 2, 4)) for _ in range(2))
        pages = [values(bits, "nvfp4", scales).transpose(1, 0, 2)[None] for bits, scales in ((k, k_sf), (v, v_sf))]
        expected, _ = attention(values(query, "fp16")[None], *pages, np.zeros((1, 1), int), [36], [1], scale=0.125)
        for layout, order in (("NHD", (0, 1, 2)), ("HND", (1, 0, 2))):
            for v_sf_layout in ("linear", "v_interleave4"):
                rows, scales = ([array.transpose(order).copy() for array in pair] for pair in ((k, v), (k_sf, v_sf)))
                if v_sf_layout == "v_interleave4":
                    scales[1] = interleaved(v_sf.transpose(1, 0, 2)[None])[0]
                    scales[1] = scales[1].transpose(1, 0, 2).copy() if layout == "NHD" else scales[1]
                out = np.zeros((8, 64), np.float16)
                got = libdecode.single_decode_with_kv_cache(query, *rows, layout, sm_scale=0.125, out=out, kv_cache_sf=scales,
                                                            v_sf_layout=v_sf_layout)
                self.assertIs(got, out)
                self.assertLessEqual(off_by(values(out, "fp16"), expected[0], "fp16"), 1.001)

    def test_scales(self):
        self.both(50, sm_scale=0.25, q_scale=0.5, k_scale=1.5, v_scale=3.0, factors=(0.5, 1.5, 3.0))

    def test_what_is_refused(self):
        rows = np.zeros((3, 2, 64), np.float16)
        with self.assertRaisesRegex(ValueError, r"q has shape \(1, 8, 64\)"):
            libdecode.single_decode_with_kv_cache(np.zeros((1, 8, 64), np.float16), rows, rows)
        for words, options in (("pos_encoding_mode is 'T5': accepted are", {"pos_encoding_mode": "T5"}),
                               (r"out has shape \(8, 32\): it must be \[num_qo_heads, head_dim\]", {"out": np.zeros((8, 32), np.float16)}),
                               ("kv_cache_sf is given with a KV cache of fp16", {"kv_cache_sf": (np.zeros((3, 2, 4), np.uint8),) * 2}),
                               ("kv_cache_sf is a ndarray: it must be a pair", {"kv_cache_sf": np.zeros((2, 3, 2, 4), np.uint8)}),
                               (r"kv_cache_sf\[0\] has shape .* it must be \[tokens, num_kv_heads, head_dim / 16\]",
                                {"kv_cache_sf": (np.zeros((3, 4), np.uint8),) * 2})):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                libdecode.single_decode_with_kv_cache(np.zeros((8, 64), np.float16), rows, rows, **options)
        packed = np.zeros((3, 2, 32), np.uint8)
        with self.assertRaisesRegex(ValueError, "kv_cache_sf is None with an NVFP4 KV cache"):
            libdecode.single_decode_with_kv_cache(np.zeros((8, 64), np.float16), packed, packed)


unittest.main()
