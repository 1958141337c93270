# SPDX-License-Identifier: Apache-2.0
"""What lies at the edges of FlashInfer's calls, on the host and on the played GPU: tensors without elements, axes of one step, offsets that
no row is aligned to, rows of a draft mask."""

import unittest
from unittest import mock

import skip  # noqa: F401
import numpy as np

import libdecode
import played_gpu
from libdecode import abi, typed
from libdecode.call import Call
from numpy_attention import Cache, attention, interleaved, off_by, pack_mask, random_bits, random_scales, values
from played_torch import PlayedTorch

try:
    import torch
except ImportError:
    torch = None
LENS = [5, 70, 33, 16, 0]
PLACES = ("__array_interface__", "__cuda_array_interface__")  # of the host and of a GPU


def shown(array, place, dtype=None, strides=None):
    """An array as something of PyTorch shows itself: without elements it has no address. `strides`, in elements: others than its own."""
    interface = dict(array.__array_interface__)
    if array.size == 0:
        interface["data"] = (0, False)
    if strides is not None:
        interface["strides"] = tuple(stride * array.itemsize for stride in strides)
    tensor = type("Tensor", (), {place: interface, "array": array})()
    return tensor if dtype is None else typed(tensor, dtype)


class EmptyTest(unittest.TestCase):
    """Tensors without elements, which have no address, where none is needed."""

    def setUp(self):
        played_gpu.make_current()

    def test_no_kv_token_of_a_single_request(self):
        for place in PLACES:
            for layout, shape in (("NHD", (0, 2, 64)), ("HND", (2, 0, 64)), ("HND", (1, 0, 64))):
                with self.subTest(place=place, layout=layout, shape=shape):
                    query, out = (np.ones((8, 64), np.uint16) for _ in range(2))
                    rows = shown(np.zeros(shape, np.uint16), place, "bf16")
                    libdecode.single_decode_with_kv_cache(shown(query, place, "bf16"), rows, rows, layout, out=shown(out, place, "bf16"))
                    self.assertFalse(out.any())

    def test_no_kv_token_of_a_single_request_in_nvfp4(self):
        for place in PLACES:
            for head_dim in (64, 80):
                for layout, shape in (("NHD", (0, 2)), ("HND", (2, 0))):
                    for v_sf_layout in ("linear", "v_interleave4"):
                        with self.subTest(place=place, head_dim=head_dim, layout=layout, v_sf_layout=v_sf_layout):
                            out = np.ones((8, head_dim), np.uint16)
                            rows, scales = (shown(np.zeros((*shape, head_dim // per_element), np.uint8), place) for per_element in (2, 16))
                            libdecode.single_decode_with_kv_cache(
                                shown(out.copy(), place, "bf16"), rows, rows, layout, out=shown(out, place, "bf16"),
                                kv_cache_sf=(scales, scales), v_sf_layout=v_sf_layout)
                            self.assertFalse(out.any())

    def test_no_kv_token_of_any_request(self):
        for place in PLACES:
            for given in (None, np.zeros(3, np.int32)):
                out, lse = np.ones((3, 8, 64), np.uint16), np.zeros((3, 8), np.float32)
                rows = shown(np.zeros((3, 2, 0, 64), np.uint16), place, "bf16")
                libdecode.cudnn_batch_decode_with_kv_cache(
                    shown(np.ones((3, 8, 64), np.uint16), place, "bf16"), rows, rows, 0.125, None, max_sequence_kv=7,
                    actual_seq_lens_kv=None if given is None else shown(given, place), out=shown(out, place, "bf16"), lse=shown(lse, place))
                self.assertFalse(out.any())
                self.assertTrue(np.isneginf(lse).all())

    def test_no_kv_token_by_the_longest_length(self):
        cache = Cache("bf16", [40] * 3, num_kv_heads=1)
        for place in PLACES:
            for offsets in (None, np.array([2, 1, 0])):
                out, lse = np.ones((3, 8, 64), np.uint16), np.zeros((3, 8), np.float32)
                with mock.patch.object(Call, "run", autospec=True, side_effect=Call.run if offsets is None else None) as run:
                    libdecode.cudnn_batch_decode_with_kv_cache(
                        shown(np.ones((3, 8, 64), np.uint16), place, "bf16"), shown(cache.k_bits, place, "bf16"),
                        shown(cache.v_bits, place, "bf16"), 0.125, None, max_sequence_kv=0, block_tables=shown(cache.tables, place),
                        batch_offsets_k=None if offsets is None else shown(offsets, place), out=shown(out, place, "bf16"), lse=shown(lse, place))
                problem = run.call_args.args[0].problem
                self.assertEqual((problem.batch_size, problem.kv_capacity_tokens, problem.page_size), (3, 0, 0))
                if offsets is None:  # for which no bundle of the played GPU has a kernel
                    self.assertFalse(out.any())
                    self.assertTrue(np.isneginf(lse).all())

    def test_no_query_token_of_any_request(self):
        for place in PLACES:
            on = lambda array, place=place: shown(array, place)
            cache, none = Cache("fp16", [9, 9]), np.zeros((0, 8, 64), np.float16)
            cum, lse, mask = np.zeros(3, np.int32), np.zeros((0, 8), np.float32), np.zeros((0, 2), np.uint16)
            out = on(none)
            got = libdecode.trtllm_batch_decode_with_kv_cache(
                on(none), (on(cache.k_bits), on(cache.v_bits)), None, on(cache.tables), on(cache.seq_lens), 9, out=out, lse=on(lse),
                mask=on(mask), cum_seq_lens_q=on(cum), max_q_len=2, q_len_per_req=None)
            self.assertIs(got, out)
            bits, query, out = np.zeros((4, 32, 320), np.float16), np.zeros((0, 8, 320), np.float16), on(np.zeros((0, 8, 256), np.float16))
            for table, options in ((np.zeros((2, 1), np.int32), {}), (np.zeros((0, 6), np.int32), {"sparse_mla_top_k": 6})):
                if options and place == PLACES[1]:
                    continue  # no bundle of the played GPU has a kernel for it
                got = libdecode.trtllm_batch_decode_with_kv_cache_mla(
                    on(query), on(bits), None, 128, 256, 64, on(table), on(cache.seq_lens), 9, out=out, cum_seq_lens_q=on(cum), max_q_len=2,
                    **options)
                self.assertIs(got, out)

    def test_no_request(self):
        for place in PLACES:
            on = lambda array, place=place: shown(array, place)
            none, out = np.zeros((0, 8, 64), np.float16), on(np.zeros((0, 8, 64), np.float16))
            pages = on(np.zeros((0, 2, 16, 64), np.float16))
            self.assertIs(libdecode.trtllm_batch_decode_with_kv_cache(
                on(none), (pages, pages), None, on(np.zeros((0, 3), np.int32)), on(np.zeros(0, np.int32)), 4, out=out), out)

    def test_nothing_to_merge(self):
        rows, lse = shown(np.zeros((0, 3, 16), np.float16), PLACES[0]), shown(np.zeros((0, 3), np.float32), PLACES[0])
        out, merged = libdecode.variable_length_merge_states(rows, lse, np.zeros(5, np.int32))
        self.assertEqual((out.shape, merged.shape), ((4, 3, 16), (4, 3)))
        self.assertTrue((out == 0).all() and np.isneginf(merged).all())
        out, merged = libdecode.merge_state(rows, lse, rows, lse)
        self.assertEqual((out.shape, merged.shape), ((0, 3, 16), (0, 3)))
        libdecode.merge_state_in_place(rows, lse, rows, lse, shown(np.zeros(0, np.uint8), PLACES[0]))

    def test_what_has_elements_needs_an_address(self):
        query = np.zeros((8, 64), np.float16)
        rows = type("Tensor", (), {PLACES[0]: {**np.zeros((3, 2, 64), np.float16).__array_interface__, "data": (0, False)}})()
        with self.assertRaisesRegex(ValueError, "tensors.k_cache is NULL"):
            libdecode.single_decode_with_kv_cache(query, rows, np.zeros((3, 2, 64), np.float16))


class EmptyTorchTest(PlayedTorch):
    """The same of PyTorch's tensors on a GPU: what has no elements gets the address of something on the device."""

    def test_each_call_goes_the_long_way_and_is_not_remembered(self):
        query, out = self.Tensor(np.ones((8, 64), np.uint16), "torch.bfloat16"), self.Tensor(np.ones((8, 64), np.uint16), "torch.bfloat16")
        rows = self.Tensor(np.zeros((0, 2, 64), np.uint16), "torch.bfloat16")
        other = self.Tensor(np.zeros((0, 2, 64), np.uint16), "torch.bfloat16")
        self.assertEqual(rows.data_ptr(), 0)
        with mock.patch.object(Call, "run", autospec=True, side_effect=Call.run) as run:
            for _ in range(9):
                libdecode.single_decode_with_kv_cache(query, rows, other, out=out)
                self.assertFalse(out.array.any())
                out.array[:] = 1
        self.assertEqual(run.call_count, 9)
        call = run.call_args.args[0]
        self.assertIn(call.tensors.k_cache, {query.data_ptr() & -16, out.data_ptr() & -16})

    def test_merging(self):
        v, s = self.Tensor(np.zeros((0, 3, 16), np.float32), "torch.float32"), self.Tensor(np.zeros((0, 3), np.float32), "torch.float32")
        indptr = self.Tensor(np.zeros(5, np.int32), "torch.int32")
        with libdecode.open([played_gpu.BUNDLES], bundles_only=True, ignore_environment=True) as context:
            out, lse = libdecode.variable_length_merge_states(v, s, indptr, context=context)
        self.assertTrue((out.array == 0).all() and np.isneginf(lse.array).all())


class OneStepTest(unittest.TestCase):
    """Axes of one step, of whose strides nobody knows what stands there, where NVFP4 rows and their scales need gaps."""

    HEAD_DIM, ROW, SCALES = 80, 48, 8  # 40 bytes of a row lie 48 apart, and 5 scales 8

    def setUp(self):
        played_gpu.make_current()

    def gapped(self, bits, width, kv_layout, place, odd):
        """[pages, heads, tokens, n] in rows of `width` bytes; axes of one step have the stride `odd`, None: what numpy says."""
        bits = bits.swapaxes(1, 2) if kv_layout == "NHD" else bits
        room = np.full((*bits.shape[:-1], width), 0x7F, np.uint8)
        room[..., : bits.shape[-1]] = bits
        part = room[..., : bits.shape[-1]]
        strides = [odd if extent == 1 and odd is not None else stride for extent, stride in zip(part.shape, part.strides)]
        return shown(part, place, strides=strides)

    def check(self, place, odd, kv_layout, v_sf_layout, lens=LENS, **shape):
        cache = Cache("nvfp4", lens, head_dim=self.HEAD_DIM, **shape)
        heads = 4 * shape.get("num_kv_heads", 2)
        query = random_bits(cache.generator, "bf16", (len(lens), heads, self.HEAD_DIM))
        out = np.zeros(query.shape, np.uint16)
        scales = [self.gapped(cache.k_scales, self.SCALES, kv_layout, place, odd), None]
        if v_sf_layout == "linear":
            scales[1] = self.gapped(cache.v_scales, self.SCALES, kv_layout, place, odd)
        else:
            scales[1] = self.gapped(interleaved(cache.v_scales), self.HEAD_DIM // 16, kv_layout, place, odd)
        libdecode.trtllm_batch_decode_with_kv_cache(
            shown(query, place, "bf16"), tuple(self.gapped(bits, self.ROW, kv_layout, place, odd) for bits in (cache.k_bits, cache.v_bits)),
            None, shown(cache.tables, place), shown(cache.seq_lens, place), max(lens), 0.125, kv_layout=kv_layout, kv_cache_sf=scales,
            v_sf_layout=v_sf_layout, out=shown(out, place, "bf16"))
        expected, _ = attention(values(query, "bf16"), cache.k, cache.v, cache.tables, lens, [1] * len(lens), scale=0.125)
        np.testing.assert_allclose(values(out, "bf16"), expected, rtol=2.0**-7, atol=5e-3)

    def test_one_kv_head(self):
        for place in PLACES:
            for odd in (None, 0, 7, self.HEAD_DIM // 2, -3):
                for kv_layout in ("NHD", "HND"):
                    for v_sf_layout in ("linear", "v_interleave4"):
                        with self.subTest(place=place, odd=odd, kv_layout=kv_layout, v_sf_layout=v_sf_layout):
                            self.check(place, odd, kv_layout, v_sf_layout, num_kv_heads=1)

    def test_pages_of_one_token(self):
        for place in PLACES:
            for odd in (None, 7):
                for kv_layout in ("NHD", "HND"):
                    for heads in (1, 2):
                        with self.subTest(place=place, odd=odd, kv_layout=kv_layout, heads=heads):
                            self.check(place, odd, kv_layout, "linear", page_size=1, num_kv_heads=heads)

    def test_one_page(self):
        for odd in (None, 7):
            for kv_layout in ("NHD", "HND"):
                self.check(PLACES[0], odd, kv_layout, "linear", [9], spare_pages=0)
                self.check(PLACES[0], odd, kv_layout, "v_interleave4", [9], spare_pages=0, num_kv_heads=1)
                self.check(PLACES[0], odd, kv_layout, "linear", [1], spare_pages=0, num_kv_heads=1, page_size=1)

    def test_single_decode(self):
        generator = np.random.default_rng(3)
        for tokens in (1, 36):
            for kv_layout in ("NHD", "HND"):
                query, out = random_bits(generator, "fp16", (4, 80)), np.zeros((4, 80), np.float16)
                k, v = (random_bits(generator, "nvfp4", (1, 1, tokens, 80)) for _ in range(2))
                k_sf, v_sf = (random_scales(generator, (1, 1, tokens, 5)) for _ in range(2))

                def rows(bits, width, kv_layout=kv_layout):
                    return self.gapped(bits, width, kv_layout, PLACES[0], None).array[0]

                libdecode.single_decode_with_kv_cache(query, rows(k, 48), rows(v, 48), kv_layout, sm_scale=0.125, out=out,
                                                      kv_cache_sf=(rows(k_sf, 8), rows(v_sf, 8)), v_sf_layout="linear")
                expected, _ = attention(values(query, "fp16")[None], values(k, "nvfp4", k_sf), values(v, "nvfp4", v_sf),
                                        np.zeros((1, 1), int), [tokens], [1], scale=0.125)
                self.assertLessEqual(off_by(values(out, "fp16"), expected[0], "fp16"), 1.001)

    def test_rows_without_a_gap_are_refused_where_there_is_more_than_one(self):
        packed, scales = np.zeros((4, 16, 1, 40), np.uint8), np.zeros((4, 16, 1, 8), np.uint8)[..., :5]
        with self.assertRaisesRegex(ValueError, "k_token_stride is 80 elements: it must be a multiple of 32"):
            libdecode.trtllm_batch_decode_with_kv_cache(
                np.zeros((1, 4, 80), np.float16), (packed, packed), None, np.zeros((1, 2), np.int32), np.zeros(1, np.int32), 9,
                kv_layout="NHD", kv_cache_sf=(scales, scales))


class OffsetsTest(unittest.TestCase):
    """Evenly spaced offsets on the host, of which neither the first nor the distance need be aligned in K and V."""

    HEADS, ROOM, DIM = 1, 4, 64

    def run_both(self, of_k, of_v, place, dtype="bf16"):
        generator = np.random.default_rng(8)
        k, v = (random_bits(generator, dtype, (3, self.HEADS, self.ROOM, self.DIM)) for _ in range(2))
        query, out = random_bits(generator, "bf16", (2, 4, self.DIM)), np.zeros((2, 4, self.DIM), np.uint16)
        libdecode.cudnn_batch_decode_with_kv_cache(
            shown(query, place, "bf16"), shown(k, place, dtype), shown(v, place, dtype), 0.125, None, max_sequence_kv=self.ROOM,
            actual_seq_lens_kv=np.array([4, 3], np.int32), batch_offsets_k=np.array(of_k), batch_offsets_v=np.array(of_v),
            out=shown(out, place, "bf16"))
        size = self.HEADS * self.ROOM * self.DIM
        keys, rest = (np.stack([bits.reshape(-1)[first : first + size] for first in of]).reshape(2, *bits.shape[1:])
                      for bits, of in ((k, of_k), (v, of_v)))
        expected, _ = attention(values(query, "bf16"), values(keys, dtype), values(rest, dtype), np.arange(2)[:, None], [4, 3], [1, 1],
                                scale=0.125)
        np.testing.assert_allclose(values(out, "bf16"), expected, rtol=2.0**-7, atol=5e-3)

    def test_on_the_host(self):
        for of_k, of_v in (([4, 260], [0, 256]), ([0, 256], [1, 257]), ([4, 264], [3, 262]), ([0, 260], [7, 300]), ([8, 264], [0, 256])):
            for dtype in ("bf16", "e4m3"):
                with self.subTest(of_k=of_k, of_v=of_v, dtype=dtype):
                    self.run_both(of_k, of_v, PLACES[0], dtype)

    def test_the_kernel_is_told_where_that_is_needed(self):
        """Whether its tensors are on the host or on a GPU: no offset need be there."""
        for place in PLACES:
            for of_k, told in (([4, 260], True), ([8, 264], False), ([0, 256], False)):
                calls = []
                with mock.patch.object(Call, "run", lambda self, *_, calls=calls: calls.append(self)):
                    with self.assertRaises(AssertionError):  # nothing has run
                        self.run_both(of_k, [0, 256], place)
                tensors = calls[0].tensors
                self.assertEqual(bool(calls[0].problem.features & abi.FEATURE_KV_OFFSETS), told)
                self.assertEqual((tensors.k_offsets, tensors.v_offsets), (None, None))

    def test_those_of_query_and_result_are_aligned_or_refused_by_name(self):
        rows, lens = np.zeros((6, 4, 64), np.float16), np.zeros(2, np.int32)
        kv = np.zeros((2, 1, 4, 64), np.float16)
        given = {"batch_offsets_q": {"q": rows}, "batch_offsets_o": {"q": rows[:2], "out": rows.copy()}}
        for name, offsets in (("batch_offsets_q", [4, 260]), ("batch_offsets_o", [0, 260]), ("batch_offsets_q", [4, 1024]),
                              ("batch_offsets_o", [0, 1028, 900])):
            with self.subTest(name=name, offsets=offsets), self.assertRaisesRegex(
                    ValueError, rf"^{name} is \[{offsets[0]}, {offsets[1]}\]: .* multiples of 8 elements of (q|out), which are 16 bytes"):
                libdecode.cudnn_batch_decode_with_kv_cache(**given[name], k_cache=kv, v_cache=kv, scale=0.125, workspace_buffer=None,
                                                           max_sequence_kv=4, actual_seq_lens_kv=lens, **{name: np.array(offsets)})


@unittest.skipIf(torch is None, "no torch")
class TorchTest(unittest.TestCase):
    """What PyTorch itself says of tensors without elements, and of axes of one step."""

    def test_no_elements(self):
        none = torch.empty(0, 2, 64, dtype=torch.bfloat16)
        self.assertEqual(none.data_ptr(), 0)
        out, lse = libdecode.single_decode_with_kv_cache(torch.ones(8, 64, dtype=torch.bfloat16), none, none, return_lse=True)
        self.assertTrue((out == 0).all() and torch.isneginf(lse).all())
        lse = torch.empty(0, 2)
        out, merged = libdecode.variable_length_merge_states(none, lse, torch.zeros(5, dtype=torch.int32))
        self.assertTrue((out == 0).all() and torch.isneginf(merged).all())
        made = torch.zeros(5, 8, 64, dtype=torch.bfloat16)[2:2]
        cache = torch.zeros(3, 2, 16, 64, dtype=torch.bfloat16)
        lens = torch.tensor([9, 9], dtype=torch.int32)
        out, lse = libdecode.trtllm_batch_decode_with_kv_cache(
            made, (cache, cache), None, torch.zeros(2, 1, dtype=torch.int32), lens, 9, cum_seq_lens_q=torch.zeros(3, dtype=torch.int32),
            max_q_len=2, return_lse=True)
        self.assertEqual((tuple(out.shape), tuple(lse.shape)), ((0, 8, 64), (0, 8)))

    def test_one_step(self):
        cache = Cache("nvfp4", LENS, head_dim=80, num_kv_heads=1)
        query = torch.randn(len(LENS), 4, 80, dtype=torch.float16)
        expected, _ = attention(query.double().numpy(), cache.k, cache.v, cache.tables, LENS, [1] * len(LENS), scale=0.125)
        for kv_layout, axis in (("NHD", 2), ("HND", 1)):
            rows = []
            for bits, width in ((cache.k_bits, 48), (cache.v_bits, 48), (cache.k_scales, 8), (cache.v_scales, 8)):
                room = torch.zeros(bits.shape[0], 16, width, dtype=torch.uint8)
                room[..., : bits.shape[-1]] = torch.from_numpy(bits[:, 0])
                rows.append(room[..., : bits.shape[-1]].unsqueeze(axis))
            out = libdecode.trtllm_batch_decode_with_kv_cache(
                query, tuple(rows[:2]), None, torch.from_numpy(cache.tables), torch.from_numpy(cache.seq_lens), 70, 0.125, kv_layout=kv_layout,
                kv_cache_sf=tuple(rows[2:]), v_sf_layout="linear")
            self.assertLessEqual(off_by(out.double().numpy(), expected, "fp16"), 1.0001)


class MaskTest(unittest.TestCase):
    """Of ragged query tokens rows of a mask are those of the query, so one of [batch, max_q_len, ...] says something else."""

    def decode(self, cache, query, cum, mask):
        return libdecode.trtllm_batch_decode_with_kv_cache(
            query, (cache.k_bits, cache.v_bits), None, cache.tables, cache.seq_lens, 3, 0.125, cum_seq_lens_q=cum, max_q_len=2, mask=mask)

    def test_rows_for_every_request_alike_are_refused(self):
        cache = Cache("fp16", [3, 3])
        for tokens, cum in ((3, [0, 1, 3]), (4, [0, 1, 3]), (4, [0, 2, 4])):  # the last two alike to whoever cannot read a GPU's cum_seq_lens_q
            query, cum = random_bits(cache.generator, "fp16", (tokens, 8, 64)), np.array(cum, np.int32)
            mask = pack_mask(np.array([[1, 0], [1, 0], [0, 1], [1, 1]], bool))
            words = rf"^mask has shape \(2, 2, 2\) with cum_seq_lens_q: it must be \[tokens, .* = \({tokens}, 2\)"
            with self.subTest(tokens=tokens, cum=cum), self.assertRaisesRegex(ValueError, words):
                self.decode(cache, query, cum, mask.reshape(2, 2, 2))
            out = self.decode(cache, query, cum, mask[:tokens])
            expected, _ = attention(values(query, "fp16"), cache.k, cache.v, cache.tables, [3, 3], np.diff(cum),
                                    scale=0.125, allowed=np.array([[1, 0], [1, 0], [0, 1], [1, 1]], bool))
            self.assertLessEqual(off_by(values(out, "fp16")[: cum[-1]], expected, "fp16"), 1.0001)


unittest.main()
