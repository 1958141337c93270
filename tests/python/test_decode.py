# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's batch decode on the host, against attention in numpy: formats, layouts, options, carriers, results."""

import ctypes
import types
import unittest

import skip  # noqa: F401
import numpy as np

import libdecode
from libdecode import trtllm_batch_decode_with_kv_cache as decode, typed
from numpy_attention import Cache, attention, interleaved, off_by, pack_mask, random_bits, values

try:
    import torch
except ImportError:
    torch = None
LENS = [5, 70, 33, 16, 0]


def apart(bits, width, kv_layout="HND"):
    """[pages, heads, tokens, ...] with rows of `width` bytes, in the order of a layout."""
    bits = bits.swapaxes(1, 2) if kv_layout == "NHD" else bits
    padded = np.full((*bits.shape[:3], width), 0x7f, np.uint8)
    padded[..., : bits.shape[3]] = bits
    return padded[..., : bits.shape[3]]


def carried(bits, dtype):
    return bits if dtype == "fp16" else typed(bits, dtype)


def quantised_in_nhd(scales):
    """[pages, tokens, heads, S] as FlashInfer's nvfp4_quantize_paged_kv_cache interleaves V's with kv_layout NHD."""
    pages, tokens, heads, blocks = scales.shape
    parts = scales.reshape(pages, tokens // 4, 4, heads, 4, blocks // 4)
    return np.ascontiguousarray(parts.transpose(0, 1, 4, 3, 5, 2)).reshape(scales.shape)


class DecodeTest(unittest.TestCase):
    """`run` calls the package and numpy with the same numbers, and compares out and lse."""

    def run_both(self, cache, query_dtype, *, heads=8, q_lens=None, q_len=1, kv_cache=None, out_dtype=None, window=-1, sinks=None,
                 allowed=None, v_tables=None, v_scale=1.0, **arguments):
        lens = cache.seq_lens.tolist()
        q_lens = q_lens or [q_len] * len(lens)
        head_dim = cache.k.shape[-1]
        bits = random_bits(cache.generator, query_dtype, (sum(q_lens), heads, head_dim))
        scale = np.float32(head_dim**-0.5)
        if kv_cache is None:
            kv_cache = (carried(cache.k_bits, cache.dtype), carried(cache.v_bits, cache.dtype))
        if query_dtype == cache.dtype == "fp16" and out_dtype is None:
            out_dtype = "fp16"
        arguments.setdefault("block_tables", cache.tables)
        arguments.setdefault("seq_lens", cache.seq_lens)
        if not any(name in arguments for name in ("cum_seq_lens_q", "max_q_len")):
            arguments.setdefault("q_len_per_req", q_len)
        out, lse = decode(carried(bits, query_dtype), kv_cache, None, max_seq_len=max(lens), bmm1_scale=float(scale),
                          bmm2_scale=v_scale, window_left=window, sinks=sinks, out_dtype=out_dtype, return_lse=True, **arguments)
        expected, expected_lse = attention(values(bits, query_dtype), cache.k, cache.v, cache.tables, lens, q_lens,
                                           scale=float(scale), v_scale=v_scale, window=window, sinks=sinks, allowed=allowed,
                                           v_tables=v_tables)
        dtype = out_dtype or query_dtype
        self.assertEqual((out.shape, lse.shape), (expected.shape, expected_lse.shape))
        self.assertLessEqual(off_by(values(out, dtype), expected, dtype), 1.0001)
        self.assertLessEqual(off_by(lse, expected_lse, "f32"), 1.0001)
        return out, lse

    def test_16_bit_kv_of_several_groups_and_head_dims(self):
        for dtype in ("bf16", "fp16"):
            for heads, head_dim, page_size in ((2, 64, 16), (8, 128, 16), (10, 80, 1), (8, 256, 24)):
                with self.subTest(dtype=dtype, heads=heads, head_dim=head_dim):
                    self.run_both(Cache(dtype, LENS, head_dim=head_dim, page_size=page_size), dtype, heads=heads)

    def test_one_tensor_of_k_and_v_is_the_pair(self):
        cache = Cache("bf16", LENS)
        both = typed(np.stack([cache.k_bits, cache.v_bits], 1), "bf16")
        self.run_both(cache, "bf16", kv_cache=both)

    def test_one_tensor_with_an_axis_of_1_is_k_and_v(self):
        cache = Cache("bf16", LENS)
        cache.v_bits = cache.k_bits
        self.run_both(cache, "bf16", kv_cache=typed(cache.k_bits[:, None], "bf16"))

    def test_nhd(self):
        cache = Cache("bf16", LENS)
        pair = tuple(typed(np.ascontiguousarray(bits.swapaxes(1, 2)), "bf16") for bits in (cache.k_bits, cache.v_bits))
        self.run_both(cache, "bf16", kv_cache=pair, kv_layout="NHD")

    def test_strides_of_everything(self):
        cache = Cache("bf16", LENS)
        k, v = (np.zeros((*cache.k_bits.shape[:3], width), np.uint16) for width in (96, 80))  # rows longer than head_dim, each in its way
        k[..., :64], v[..., :64] = cache.k_bits, cache.v_bits
        tables = np.zeros((len(LENS), 40), np.int32)[:, 3 : 3 + cache.tables.shape[1]]
        tables[:] = cache.tables
        lens = np.repeat(cache.seq_lens, 3)[::3]
        self.run_both(cache, "bf16", kv_cache=(typed(k[..., :64], "bf16"), typed(v[..., :64], "bf16")),
                      block_tables=tables, seq_lens=lens)

    def test_query_and_out_with_strides(self):
        cache = Cache("fp16", LENS)
        whole = random_bits(cache.generator, "fp16", (len(LENS), 3, 8, 64))
        room = np.zeros((len(LENS), 8, 128), np.float16)
        out = decode(whole[:, 1], (cache.k_bits, cache.v_bits), None, cache.tables, cache.seq_lens, 70, out=room[..., :64])
        expected, _ = attention(values(whole[:, 1], "fp16"), cache.k, cache.v, cache.tables, LENS, [1] * len(LENS), scale=1.0)
        self.assertIs(out.base, room)
        self.assertLessEqual(off_by(values(room[..., :64], "fp16"), expected, "fp16"), 1.0001)
        self.assertTrue((room[..., 64:] == 0).all())

    def test_a_single_request_page_head_and_token(self):
        self.run_both(Cache("bf16", [1], num_kv_heads=1, page_size=1, spare_pages=0), "bf16", heads=1)

    def test_no_request_at_all(self):
        empty = np.zeros((0, 8, 64), np.float16)
        cache = Cache("fp16", [4])
        out = decode(empty, (cache.k_bits, cache.v_bits), None, np.zeros((0, 3), np.int32), np.zeros(0, np.int32), 4)
        self.assertEqual(out.shape, (0, 8, 64))

    def test_windows(self):
        for window in (0, 7, 31, 500):
            with self.subTest(window=window):
                self.run_both(Cache("bf16", LENS), "bf16", window=window)

    def test_sinks(self):
        sinks = np.linspace(-3, 5, 8, dtype=np.float32)
        sinks[2] = -np.inf
        self.run_both(Cache("bf16", LENS), "bf16", sinks=sinks)

    def test_sinks_in_a_list_as_flashinfer_has_them(self):
        cache = Cache("fp16", [9])
        query, sinks = random_bits(cache.generator, "fp16", (1, 8, 64)), np.ones(8, np.float32)
        arguments = (query, (cache.k_bits, cache.v_bits), None, cache.tables, cache.seq_lens, 9)
        self.assertTrue(np.array_equal(decode(*arguments, sinks=[sinks]), decode(*arguments, sinks=sinks)))

    def test_result_scale_and_scales_in_tensors(self):
        self.run_both(Cache("bf16", LENS), "bf16", v_scale=0.375)
        cache = Cache("fp16", LENS)
        query = random_bits(cache.generator, "fp16", (len(LENS), 8, 64))
        arguments = (query, (cache.k_bits, cache.v_bits), None, cache.tables, cache.seq_lens, 70)
        plain = decode(*arguments, bmm1_scale=0.25, bmm2_scale=2.0)
        for one, two in ((np.array([0.25], np.float32), np.array([2.0], np.float32)), (np.array(0.25, np.float32), np.float32(2.0))):
            self.assertTrue(np.array_equal(decode(*arguments, bmm1_scale=one, bmm2_scale=two), plain))
        log2 = np.array([0.25 * np.log2(np.e)], np.float32)
        close = decode(*arguments, bmm1_scale=123.0, bmm1_scale_log2=log2, bmm2_scale=2.0)
        self.assertTrue(np.allclose(close.astype(float), plain.astype(float), rtol=2e-3, atol=1e-5))
        zero = decode(*arguments, bmm1_scale=np.zeros(1, np.float32))
        expected, _ = attention(values(query, "fp16"), cache.k, cache.v, cache.tables, LENS, [1] * len(LENS), scale=0.0)
        self.assertLessEqual(off_by(values(zero, "fp16"), expected, "fp16"), 1.0001)

    def test_query_tokens_are_causal(self):
        for q_len in (2, 5):
            self.run_both(Cache("bf16", [5, 70, 33, 16]), "bf16", q_len=q_len)
            self.run_both(Cache("bf16", [5, 70, 33, 16]), "bf16", q_len=q_len, window=4)

    def test_ragged_query_tokens(self):
        q_lens = [3, 1, 0, 5]
        cum = np.cumsum([0, *q_lens]).astype(np.int32)
        for q_len_per_req in (1, None):  # cum_seq_lens_q wins over the default
            self.run_both(Cache("bf16", [5, 70, 33, 16]), "bf16", q_lens=q_lens, cum_seq_lens_q=cum, max_q_len=5,
                          q_len_per_req=q_len_per_req)

    def test_draft_masks(self):
        for q_len in (4, 33):
            lens = [40, 70, 33]
            cache = Cache("bf16", lens)
            allowed = cache.generator.integers(0, 2, (len(lens) * q_len, q_len)).astype(bool)
            mask = pack_mask(allowed)
            out, _ = self.run_both(cache, "bf16", q_len=q_len, allowed=allowed, mask=mask)
            cache = Cache("bf16", lens)
            cache.generator.integers(0, 2, (len(lens) * q_len, q_len))
            again, _ = self.run_both(cache, "bf16", q_len=q_len, allowed=allowed, mask=mask.reshape(len(lens), q_len, -1).view(np.int16))
            self.assertTrue(np.array_equal(out, again))

    def test_draft_mask_of_a_ragged_batch(self):
        q_lens = [3, 1, 4]
        cache = Cache("bf16", [40, 70, 33])
        allowed = cache.generator.integers(0, 2, (sum(q_lens), 4)).astype(bool)
        self.run_both(cache, "bf16", q_lens=q_lens, cum_seq_lens_q=np.cumsum([0, *q_lens]).astype(np.int32), max_q_len=4,
                      allowed=allowed, mask=pack_mask(allowed))

    def test_e4m3_kv_with_queries_and_results_of_all_dtypes(self):
        for query_dtype, out_dtype in (("bf16", None), ("fp16", "fp16"), ("bf16", "e4m3"), ("e4m3", "bf16"), ("e4m3", None)):
            with self.subTest(query=query_dtype, out=out_dtype):
                self.run_both(Cache("e4m3", LENS), query_dtype, out_dtype=out_dtype)

    def test_nvfp4_kv(self):
        for layout in (None, "linear", "v_interleave4"):
            for pair in (True, False):
                with self.subTest(layout=layout, pair=pair):
                    cache = Cache("nvfp4", LENS)
                    v_scales = interleaved(cache.v_scales) if layout == "v_interleave4" else cache.v_scales
                    scales = (cache.k_scales, v_scales) if pair else np.stack([cache.k_scales, v_scales], 1)
                    name = "kv_cache_sf" if pair else "kv_block_scales"
                    self.run_both(cache, "bf16", kv_cache=(cache.k_bits, cache.v_bits), v_sf_layout=layout, **{name: scales})

    def test_nvfp4_kv_of_any_number_of_blocks(self):
        for head_dim, layout, kv_layout in ((80, "linear", "HND"), (96, "v_interleave4", "NHD"), (112, "v_interleave4", "HND")):
            with self.subTest(head_dim=head_dim):
                cache = Cache("nvfp4", LENS, head_dim=head_dim)
                is_interleaved = layout == "v_interleave4"
                rows, (k_scales, v_scales) = ([apart(bits, width, kv_layout) for bits in pair] for pair, width in (
                    ((cache.k_bits, cache.v_bits), 64), ((cache.k_scales, cache.v_scales), 8)))
                if is_interleaved:
                    v_scales = interleaved(cache.v_scales)
                    v_scales = np.ascontiguousarray(v_scales.swapaxes(1, 2)) if kv_layout == "NHD" else v_scales
                scales = k_scales, v_scales
                self.run_both(cache, "bf16", kv_cache=tuple(rows), kv_cache_sf=scales, v_sf_layout=layout, kv_layout=kv_layout)
        cache = Cache("nvfp4", LENS, head_dim=80)
        with self.assertRaisesRegex(libdecode.InvalidArgumentError, "k_token_stride is 80 elements: it must be a multiple of 32"):
            self.run_both(cache, "bf16", kv_cache=(cache.k_bits, cache.v_bits), kv_cache_sf=(cache.k_scales, cache.v_scales),
                          v_sf_layout="linear")
        with self.assertRaisesRegex(libdecode.InvalidArgumentError, "k_sf_token_stride is 5 elements: it must be a multiple of 4"):
            self.run_both(cache, "bf16", kv_cache=tuple(apart(bits, 64) for bits in (cache.k_bits, cache.v_bits)),
                          kv_cache_sf=(cache.k_scales, cache.v_scales), v_sf_layout="linear")

    def test_nvfp4_kv_in_nhd(self):
        for heads in (1, 2, 16):  # of pages of 16 tokens
            for layout in ("linear", "v_interleave4"):
                cache = Cache("nvfp4", LENS, num_kv_heads=heads)
                turned = [np.ascontiguousarray(bits.swapaxes(1, 2)) for bits in (cache.k_bits, cache.v_bits, cache.k_scales, cache.v_scales)]
                in_hnd = interleaved(cache.v_scales)
                v_scales = quantised_in_nhd(turned[3]) if layout == "v_interleave4" else turned[3]
                self.assertTrue(layout == "linear" or np.array_equal(v_scales, in_hnd.swapaxes(1, 2)))
                for scales in ((turned[2], v_scales), np.stack([turned[2], v_scales], 1)):
                    with self.subTest(heads=heads, layout=layout):
                        self.run_both(cache, "e4m3", heads=16, kv_cache=(turned[0], turned[1]), kv_cache_sf=scales, v_sf_layout=layout,
                                      kv_layout="NHD")
                if layout == "v_interleave4":
                    self.run_both(cache, "e4m3", heads=16, kv_cache=(turned[0], turned[1]), kv_layout="NHD", v_sf_layout=layout,
                                  kv_cache_sf=(turned[2], in_hnd.swapaxes(1, 2)))

    def test_v_with_pages_of_its_own(self):
        cache = Cache("bf16", LENS)
        v_tables = cache.tables.copy()
        cache.v_bits[:] = random_bits(cache.generator, "bf16", cache.v_bits.shape)
        v_tables[1] = v_tables[1][::-1]
        self.run_both(cache, "bf16", v_tables=v_tables, block_tables=np.stack([cache.tables, v_tables], 1),
                      uses_shared_paged_kv_idx=False)
        one = Cache("bf16", [20])
        self.run_both(one, "bf16", block_tables=np.stack([one.tables, one.tables], 1), uses_shared_paged_kv_idx=False)

    def test_pages_and_lengths_per_kv_head(self):
        cache = Cache("bf16", [20, 40])
        lens = np.array([[20, 40], [9, 33]], np.int32)
        tables = np.stack([cache.tables, cache.tables[:, ::-1]])
        tables[1, :, :3] = cache.tables[::-1, :3]
        query = random_bits(cache.generator, "bf16", (2, 8, 64))
        out = decode(typed(query, "bf16"), (typed(cache.k_bits, "bf16"), typed(cache.v_bits, "bf16")), None, tables, lens, 40,
                     enable_block_sparse_attention=True)
        for head in range(2):
            rows = slice(4 * head, 4 * head + 4)
            expected, _ = attention(values(query[:, rows], "bf16"), cache.k[:, head : head + 1], cache.v[:, head : head + 1],
                                    tables[head], lens[head], [1, 1], scale=1.0)
            self.assertLessEqual(off_by(values(out[:, rows], "bf16"), expected, "bf16"), 1.0001)

    def test_skip_softmax_may_be_dense(self):
        self.run_both(Cache("e4m3", LENS), "e4m3", skip_softmax_threshold_scale_factor=1e-30)
        self.run_both(Cache("bf16", LENS), "bf16", skip_softmax_threshold_scale_factor=0.0)

    def test_lse_is_filled_when_given_and_returned_when_asked(self):
        cache = Cache("fp16", LENS)
        query = random_bits(cache.generator, "fp16", (len(LENS), 8, 64))
        arguments = (query, (cache.k_bits, cache.v_bits), None, cache.tables, cache.seq_lens, 70)
        _, expected = decode(*arguments, return_lse=True)
        room = np.zeros((len(LENS), 16), np.float32)
        out = decode(*arguments, lse=room[:, ::2])
        self.assertEqual(out.dtype, np.float16)
        self.assertTrue(np.array_equal(room[:, ::2], expected))
        same, lse = decode(*arguments, lse=room[:, ::2], return_lse=True)
        self.assertTrue(np.array_equal(same, out))
        self.assertIs(lse.base, room)

    def test_nvfp4_results(self):
        cache = Cache("e4m3", LENS)
        query = typed(random_bits(cache.generator, "e4m3", (len(LENS), 8, 64)), "e4m3")
        arguments = (query, (typed(cache.k_bits, "e4m3"), typed(cache.v_bits, "e4m3")), None, cache.tables, cache.seq_lens, 70)
        exact, _ = attention(values(query.array, "e4m3"), cache.k, cache.v, cache.tables, LENS, [1] * len(LENS), scale=0.125)
        made = decode(*arguments, bmm1_scale=0.125, out_dtype="nvfp4", o_sf_scale=40.0)
        self.assertEqual((made.data.shape, made.scale.shape, made.scale_start_index), ((5, 8, 32), (128, 32), 0))
        room = libdecode.FP4Tensor(np.zeros((5, 8, 32), np.uint8), np.full((128, 32), 9, np.uint8), 100)
        self.assertIs(decode(*arguments, bmm1_scale=0.125, out=room, o_sf_scale=40.0, o_sf_vec_size=16), room)
        for result, start in ((made, 0), (room, 100)):
            rows = np.arange(5)[:, None] + start
            columns = np.arange(32)[None, :]
            at = (rows // 128 * 8 + columns // 4) * 512 + rows % 32 * 16 + rows % 128 // 32 * 4 + columns % 4
            scales = result.scale.reshape(-1)[at].reshape(5, 8, 4)
            got = values(result.data, "nvfp4", scales) / 40.0
            # half a step of e2m1 at most is 1 of 6, and the scale itself rounds by 1 of 16
            block = np.abs(exact).reshape(5, 8, 4, 16).max(-1, keepdims=True)
            error = np.abs(got - exact).reshape(5, 8, 4, 16)
            self.assertTrue((error <= block * (1 / 6 + 1 / 16) + 2.0**-10).all())
        untouched = np.ones(room.scale.size, bool)
        untouched[(np.arange(5)[:, None] + 100) * 0 + at] = False
        self.assertTrue((room.scale.reshape(-1)[untouched] == 9).all())


@unittest.skipIf(torch is None, "no torch")
class TorchTest(unittest.TestCase):
    """The same numbers in PyTorch's tensors give the same bits."""

    def test_dtypes(self):
        cases = [("bf16", "bf16", torch and torch.bfloat16), ("fp16", "fp16", torch and torch.float16),
                 ("e4m3", "e4m3", torch and torch.float8_e4m3fn)]
        for dtype, kv, kind in cases:
            with self.subTest(dtype=dtype):
                cache = Cache(kv, LENS)
                query = random_bits(cache.generator, dtype, (len(LENS), 8, 64))
                arguments = (None, cache.tables, cache.seq_lens, 70)
                ours = decode(carried(query, dtype), (carried(cache.k_bits, kv), carried(cache.v_bits, kv)), *arguments)
                turn = lambda bits: torch.from_numpy(bits).view(kind)
                theirs = decode(turn(query), (turn(cache.k_bits), turn(cache.v_bits)), None, torch.from_numpy(cache.tables),
                                torch.from_numpy(cache.seq_lens), 70, out_dtype=kind)
                self.assertEqual(theirs.dtype, kind)
                self.assertTrue(np.array_equal(theirs.view(torch.uint8).numpy(), ours.view(np.uint8)))

    def test_options_and_nvfp4(self):
        cache = Cache("nvfp4", [20, 40])
        query = torch.randn(4, 8, 64, dtype=torch.bfloat16)
        tensor = torch.from_numpy
        mask = tensor(pack_mask(np.ones((4, 2), bool)))
        out, lse = decode(query, (tensor(cache.k_bits), tensor(cache.v_bits)), torch.zeros(9), tensor(cache.tables),
                          tensor(cache.seq_lens), 40, torch.tensor(0.125), torch.tensor([2.0]), sinks=torch.zeros(8), mask=mask,
                          q_len_per_req=2, return_lse=True,
                          kv_cache_sf=tuple(tensor(scales).view(torch.float8_e4m3fn) for scales in (cache.k_scales, cache.v_scales)))
        expected, expected_lse = attention(query.double().numpy(), cache.k, cache.v, cache.tables, [20, 40], [2, 2], scale=0.125,
                                           v_scale=2.0, sinks=np.zeros(8), allowed=np.ones((4, 2), bool))
        self.assertLessEqual(off_by(out.double().numpy(), expected, "bf16"), 1.0001)
        self.assertLessEqual(off_by(lse.numpy(), expected_lse, "f32"), 1.0001)

    def test_e5m2_is_pytorchs(self):
        codes = torch.arange(256, dtype=torch.uint8)
        self.assertTrue(np.array_equal(codes.view(torch.float8_e5m2).double().numpy(), values(codes.numpy(), "e5m2"), equal_nan=True))
        cache = Cache("e5m2", LENS)
        query = torch.randn(len(LENS), 8, 64, dtype=torch.bfloat16)
        k, v = (torch.from_numpy(bits).view(torch.float8_e5m2) for bits in (cache.k_bits, cache.v_bits))
        out = decode(query, (k, v), None, torch.from_numpy(cache.tables), torch.from_numpy(cache.seq_lens), 70, 0.125)
        expected, _ = attention(query.double().numpy(), cache.k, cache.v, cache.tables, LENS, [1] * len(LENS), scale=0.125)
        self.assertLessEqual(off_by(out.double().numpy(), expected, "bf16"), 1.0001)

    def test_nvfp4_result_is_of_pytorch(self):
        cache = Cache("e4m3", [20])
        turn = lambda bits: torch.from_numpy(bits).view(torch.float8_e4m3fn)
        query = turn(random_bits(cache.generator, "e4m3", (1, 8, 64)))
        made = decode(query, (turn(cache.k_bits), turn(cache.v_bits)), None, torch.from_numpy(cache.tables),
                      torch.from_numpy(cache.seq_lens), 20, out_dtype="nvfp4", o_sf_scale=1.0)
        self.assertEqual((made.data.dtype, made.scale.dtype), (torch.uint8, torch.float8_e4m3fn))


class OtherTensorsTest(unittest.TestCase):
    """Objects that are neither PyTorch's nor numpy's."""

    class Dlpack:
        """Shows nothing but DLPack."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    def test_dlpack(self):
        cache = Cache("fp16", LENS)
        query = random_bits(cache.generator, "fp16", (len(LENS), 8, 64))
        arguments = [query, cache.k_bits, cache.v_bits, cache.tables, cache.seq_lens]
        plain = decode(arguments[0], (arguments[1], arguments[2]), None, arguments[3], arguments[4], 70)
        hidden = [self.Dlpack(array) for array in arguments]
        out = np.zeros_like(plain)
        decode(hidden[0], (hidden[1], hidden[2]), None, hidden[3], hidden[4], 70, out=self.Dlpack(out))
        self.assertTrue(np.array_equal(out, plain))
        with self.assertRaisesRegex(ValueError, "out is None with query a Dlpack"):
            decode(hidden[0], (hidden[1], hidden[2]), None, hidden[3], hidden[4], 70)

    def test_dlpack_of_its_own_making(self):
        # an offset and no strides, which DLPack allows and numpy never writes
        from libdecode.arrays import _DLTensor, view
        array, shape = np.arange(32, dtype=np.float16), (ctypes.c_int64 * 2)(3, 8)
        tensor = _DLTensor(array.ctypes.data, 1, 0, 2, 2, 16, 1, shape, None, 4)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        capsule = new(ctypes.addressof(tensor), b"dltensor", None)
        made = types.SimpleNamespace(__dlpack__=lambda: capsule, __dlpack_device__=lambda: (1, 0))
        seen = view(made, "x")
        self.assertEqual((seen.address, seen.shape, seen.strides, seen.dtype), (array.ctypes.data + 4, (3, 8), (8, 1), "fp16"))
        tensor.lanes = 2
        with self.assertRaisesRegex(ValueError, "x has DLPack's dtype .2, 16 bits, 2 lanes."):
            view(made, "x")

    @unittest.skipIf(torch is None, "no torch")
    def test_dlpack_has_bf16(self):
        from libdecode.arrays import view
        tensor = torch.zeros(4, 8, 64, dtype=torch.bfloat16)[:, 2:]
        seen = view(self.Dlpack(tensor), "x")
        self.assertEqual((seen.address, seen.shape, seen.strides, seen.dtype, seen.device),
                         (tensor.data_ptr(), (4, 6, 64), (512, 64, 1), "bf16", ("cpu", 0)))


unittest.main()
