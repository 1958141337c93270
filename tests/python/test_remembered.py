# SPDX-License-Identifier: Apache-2.0
"""Calls that are made again take the short way where nothing but addresses differs, and the long way everywhere else. With the
PyTorch of played_torch.py, on the GPU that the processor plays."""

import gc
import unittest
import weakref
from unittest import mock

import skip  # noqa: F401
import numpy as np

import libdecode
from libdecode import abi, alibi, driver, typed
from libdecode import workspace as workspaces
from libdecode.call import Call
from numpy_attention import attention, interleaved, random_bits, random_scales, values
from played_gpu import FORMATS, LENS, Batch, OnDevice, Stream
from played_torch import PlayedTorch


class RememberedTest(PlayedTorch):
    def setUp(self):
        super().setUp()
        self.long_ways = 0
        run = Call.run

        def counted(call, *arguments):
            self.long_ways += 1
            return run(call, *arguments)

        patch = mock.patch.object(Call, "run", counted)
        patch.start()
        self.addCleanup(patch.stop)

    def on(self, array, dtype="bfloat16"):
        return self.Tensor(array, f"torch.{dtype}")

    def decode(self, long=0, *, batch=None, pair=True, replaced=(), **options):
        """Of a new batch, unless one is given; `long`: how many times the long way is taken. Returns the result's tensor."""
        self.batch = batch or Batch()
        arguments = list(self.arguments())
        if not pair:
            cache = self.batch.cache
            arguments[1] = self.on(np.stack([cache.k_bits, cache.v_bits], axis=1))
        for position, value in replaced:
            arguments[position] = value
        before = self.long_ways
        out = libdecode.trtllm_batch_decode_with_kv_cache(*arguments, **options)
        self.assertEqual(self.long_ways - before, long)
        return out

    def right(self, out, **options):
        self.batch.out = out.array
        return self.batch.check(self, **options)

    def test_other_values_in_the_same_layout(self):
        for pair in (True, False):  # of one tensor V's address is K's and an offset
            self.right(self.decode(1, pair=pair))
            self.right(self.decode(pair=pair))
            given = self.on(np.zeros_like(self.batch.out))
            out = self.decode(1, pair=pair, out=given)
            self.assertIs(out, given)
            given = self.on(np.zeros_like(self.batch.out))
            self.assertIs(self.decode(pair=pair, out=given), given)
            self.right(given)

    def test_interleaved_scales_in_nhd_are_copied_by_every_call(self):
        for pair in (True, False):
            for repeat in range(3):
                batch = Batch("nvfp4", "bf16")
                batch.cache.v_scales[:] = random_scales(np.random.default_rng(repeat), batch.cache.v_scales.shape)
                k, v, k_sf, v_sf = (np.ascontiguousarray(array.swapaxes(1, 2)) for array in (
                    batch.cache.k_bits, batch.cache.v_bits, batch.cache.k_scales, interleaved(batch.cache.v_scales)))
                scales = (self.on(k_sf, "uint8"), self.on(v_sf, "uint8")) if pair else self.on(np.stack([k_sf, v_sf], 1), "uint8")
                cache = self.on(k, "uint8"), self.on(v, "uint8")
                options = {"batch": batch, "replaced": [(1, cache)], "kv_layout": "NHD", "v_sf_layout": "v_interleave4", "kv_cache_sf": scales}
                self.right(self.decode(1, **options))
                self.assertIn(("torch.uint8", "a copy"), self.made)
                self.right(self.decode(1, **options, stream=self.stream.handle))
                with self.assertRaisesRegex(NotImplementedError, "^stream is 12 with interleaved scales of V in NHD, which are copied"):
                    self.decode(1, **options, stream=12)
                self.made.clear()  # in one piece for each page and head, they stay where they are
                together = self.on(interleaved(batch.cache.v_scales).swapaxes(1, 2), "uint8")
                self.right(self.decode(repeat == 0 and pair, **{**options, "kv_cache_sf": (self.on(k_sf, "uint8"), together)}))
                self.assertNotIn(("torch.uint8", "a copy"), self.made)

    def test_results_and_everything_that_has_a_pointer(self):
        for repeat in (1, 0):
            sinks = np.linspace(-1, 3 + repeat, 8, dtype=np.float32)
            scale = np.array([0.125 + repeat], np.float32)
            out, lse = self.decode(repeat, sinks=[self.on(sinks, "float32")], window_left=20, return_lse=True,
                                   bmm2_scale=self.on(scale, "float32"))
            expected = self.right(out, sinks=sinks, window=20, v_scale=float(scale[0]))
            self.assertTrue(np.allclose(lse.array, expected, atol=1e-3))

    def test_results_that_are_not_like_the_query(self):
        for long in (1, 0):
            self.assertEqual(self.decode(long, out_dtype="fp16").dtype, "torch.float16")
        for long in (1, 0):  # rows of a head together: the result is dense all the same
            batch = Batch()
            batch.bits = np.ascontiguousarray(batch.bits.transpose(1, 0, 2)).transpose(1, 0, 2)
            out = self.decode(long, batch=batch)
            self.assertTrue(out.is_contiguous())
            self.right(out)

    def test_a_pair_of_something_else(self):
        self.decode(1)
        batch = Batch()
        other = typed(OnDevice(batch.cache.v_bits), "bf16")
        self.right(self.decode(1, batch=batch, replaced=[(1, (self.on(batch.cache.k_bits), other))]))

    def test_what_differs_goes_the_long_way(self):
        self.decode(1)
        for options in ({"window_left": 20}, {"window_left": 21}, {"bmm2_scale": 2.0}, {"kv_layout": "HND"}, {"enable_pdl": False},
                        {"bmm2_scale": self.on(np.ones(1, np.float32), "float32")}, {"return_lse": True}):
            self.decode(1, **options)
            self.decode(0, **options)
        self.decode(1, replaced=[(6, 0.25)])

    def test_a_new_length_of_the_longest_request(self):
        hints, real = [], libdecode.library().decode_packed

        def decode(context, problem, packed, stream):
            hints.append(abi.Problem.from_address(problem).max_seq_len)
            return real(context, problem, packed, stream)

        with mock.patch.object(libdecode.library(), "decode_packed", decode):
            self.decode(1)
            for length in (71, 72, 1000, 70):
                self.right(self.decode(replaced=[(5, length)]))
            self.decode(1, replaced=[(5, 0)])  # no hint
            for length in (-1, 2**31):
                with self.assertRaisesRegex(ValueError, "max_seq_len"):
                    self.decode(replaced=[(5, length)])
        self.assertEqual(hints, [71, 72, 1000, 70])

    def test_a_new_length_by_name(self):
        self.batch = Batch()
        query, (k, v), _, table, lens, *_ = self.arguments()
        k, v = (self.on(tensor.array[:len(LENS)]) for tensor in (k, v))
        for length, long, pages in ((70, 1, table), (71, 0, table), (80, 1, None), (79, 1, None)):  # without pages it is a bound
            before, options = self.long_ways, {} if pages is None else {"block_tables": pages}
            libdecode.cudnn_batch_decode_with_kv_cache(query, k, v, 0.125, None, max_sequence_kv=length, actual_seq_lens_kv=lens, **options)
            self.assertEqual(self.long_ways - before, long)

    def test_other_layouts(self):
        self.decode(1)
        batch = Batch()
        wide = np.zeros((len(LENS), 8, 128), np.uint16)
        wide[..., :64] = batch.bits
        batch.bits = wide[..., :64]
        self.right(self.decode(1, batch=batch))
        self.right(self.decode(0, batch=batch))
        batch = Batch()
        batch.cache.tables = np.concatenate([batch.cache.tables, batch.cache.tables[:, :1]], axis=1)
        self.right(self.decode(1, batch=batch))
        short = Batch()
        arguments = self.arguments()
        self.batch = short
        out = libdecode.trtllm_batch_decode_with_kv_cache(
            self.on(short.bits[:3]), self.arguments()[1], None, self.on(short.cache.tables[:3], "int32"),
            self.on(short.cache.seq_lens[:3], "int32"), 70, 0.125)
        self.assertEqual((out.shape, arguments[0].shape), ((3, 8, 64), (5, 8, 64)))

    def test_an_error_is_that_of_the_long_way(self):
        self.decode(1)
        for position, value, words in ((0, self.on(np.zeros((len(LENS), 8, 64), np.uint16), "float16"), "query_dtype fp16"),
                                       (3, self.on(np.zeros((4, 5), np.int32), "int32"), "block_tables has shape"),
                                       (4, self.on(np.zeros(len(LENS), np.int64), "int64"), "seq_lens is i64"),
                                       (4, self.Tensor(self.batch.cache.seq_lens, "torch.int32", 3), "seq_lens is on cuda:3"),
                                       (0, self.on(np.zeros((1, 8, 64), np.uint16)), "query has 1 tokens")):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                self.decode(replaced=[(position, value)])
        self.decode()

    def test_a_launch_that_fails_is_tried_the_long_way(self):
        self.decode(1)
        workspaces.pool.__init__()  # as on another stream: no workspace is there
        self.right(self.decode(1))
        self.right(self.decode())
        small = libdecode.Workspace(600)
        self.decode(1, replaced=[(2, libdecode.Workspace(8 << 20))])
        with self.assertRaises(libdecode.WorkspaceTooSmallError):
            self.decode(1, replaced=[(2, small)])

    def test_captures_and_streams_have_their_workspaces(self):
        seen = []
        real = libdecode.library().decode_packed

        def decode(context, problem, packed, stream):
            seen.append((abi.Tensors.from_buffer_copy(packed).workspace, stream))
            return real(context, problem, packed, stream)

        with mock.patch.object(libdecode.library(), "decode_packed", decode):
            self.decode(1)
            self.decode()
            first, self.stream, self.capturing = self.stream, Stream(), True
            self.stream.begin()
            out = self.decode()
            replay, self.capturing = self.stream.end(), False
            self.assertFalse(out.array.any())
            replay()
            self.right(out)
            self.decode(1)  # the new stream has no workspace yet
            self.decode()
        (one, stream), (captured, captured_stream), (two, _) = seen
        self.assertEqual((stream, captured_stream), (first.handle, self.stream.handle))
        self.assertEqual(len({one, captured, two}), 3)

    def test_the_workspace_is_that_of_the_call_and_is_not_kept(self):
        one, two = libdecode.Workspace(8 << 20), libdecode.Workspace(8 << 20)
        self.decode(1, replaced=[(2, one)])
        real, seen = libdecode.library().decode_packed, []
        with mock.patch("libdecode.remembered.Recipe.launch", autospec=True, side_effect=lambda recipe, given: seen.append(given[2]) or real):
            self.decode(replaced=[(2, two)])
        self.assertEqual(seen, [two])
        self.right(self.decode(replaced=[(2, two)]))
        gone = weakref.ref(one)
        del one
        gc.collect()
        self.assertIsNone(gone())

    def test_a_tensor_for_a_workspace_says_nothing(self):
        self.decode(1, replaced=[(2, self.on(np.zeros(1000, np.uint8), "uint8"))])
        self.right(self.decode(replaced=[(2, self.on(np.zeros(99, np.uint8), "uint8"))]))

    def test_a_context_that_is_given(self):
        context = libdecode.open([FORMATS], bundles_only=True)
        self.decode(1, context=context)
        self.right(self.decode(context=context))
        context.close()
        with self.assertRaisesRegex(ValueError, "the context is closed"):
            self.decode(context=context)

    def test_another_gpu_is_current(self):
        self.decode(1)
        self.current = 3
        self.right(self.decode(1))
        self.assertEqual(self.current, 3)

    def test_what_the_host_has_read_is_not_remembered(self):
        for value in (2.0, 0.5):
            out = self.decode(1, bmm2_scale=np.array([value], np.float32))
            self.right(out, v_scale=value)

    def test_one_tensor_in_two_places_is_not_remembered(self):
        for _ in range(2):
            batch = Batch()
            k = self.on(batch.cache.k_bits)
            self.decode(1, batch=batch, replaced=[(1, (k, k))])

    def test_a_pointer_from_elsewhere_is_not_remembered(self):
        window, positions = Call.window, np.array(LENS, np.int32)

        def and_positions(call, window_left):
            window(call, window_left)
            call.problem.features |= abi.FEATURE_QUERY_POSITIONS
            call.tensors.query_positions = positions.ctypes.data

        with mock.patch.object(Call, "window", and_positions):
            self.decode(1)
            self.decode(1)

    def test_no_more_than_some_are_kept(self):
        for window in range(70, 90):
            self.decode(1, window_left=window)
        for window in range(82, 90):
            self.decode(0, window_left=window)
        self.decode(1, window_left=81)

    def test_cudnns_words(self):
        for long in (1, 0):
            self.batch, before = Batch(), self.long_ways
            query, (k, v), _, table, lens, *_ = self.arguments()
            out = libdecode.cudnn_batch_decode_with_kv_cache(query, k, v, 0.125, None, max_sequence_kv=70, actual_seq_lens_kv=lens,
                                                             block_tables=table)
            self.assertEqual(self.long_ways - before, long)
            self.right(out)

    def test_single_decode(self):
        generator = np.random.default_rng(8)
        for long in (1, 0):
            query, k, v = (random_bits(generator, "bf16", shape) for shape in ((8, 64), (40, 2, 64), (40, 2, 64)))
            before = self.long_ways
            out, lse = libdecode.single_decode_with_kv_cache(self.on(query), self.on(k), self.on(v), return_lse=True)
            self.assertEqual((self.long_ways - before, out.shape, lse.shape), (long, (8, 64), (8,)))
            pages = [values(bits, "bf16").transpose(1, 0, 2)[None] for bits in (k, v)]
            expected, exact_lse = attention(values(query, "bf16")[None], *pages, np.zeros((1, 1), int), [40], [1], scale=0.125)
            np.testing.assert_allclose(values(out.array, "bf16"), expected[0], rtol=2.0**-7, atol=5e-3)
            np.testing.assert_allclose(lse.array, exact_lse[0], atol=1e-3)

    def test_slopes_are_put_on_the_gpu_once(self):
        generator = np.random.default_rng(8)
        query, k, v = (random_bits(generator, "bf16", shape) for shape in ((8, 64), (40, 2, 64), (40, 2, 64)))
        with mock.patch.object(alibi, "_on_gpu", {}):
            libdecode.single_decode_with_kv_cache(self.on(query), self.on(k), self.on(v))
            self.capturing = True
            with self.assertRaisesRegex(libdecode.ColdInCaptureError, "slopes of ALiBi"):
                libdecode.single_decode_with_kv_cache(self.on(query), self.on(k), self.on(v), pos_encoding_mode="ALIBI")
            self.capturing = False
            self.made.clear()
            for made in (["torch.bfloat16", "torch.float32"], ["torch.bfloat16"]):  # the result, and the slopes
                out = libdecode.single_decode_with_kv_cache(self.on(query), self.on(k), self.on(v), pos_encoding_mode="ALIBI")
                self.assertEqual([dtype for dtype, _ in self.made], made)
                self.made.clear()
        rows = values(k, "bf16").repeat(4, 1)
        logits = np.einsum("hd,shd->hs", values(query, "bf16"), rows) * 0.125 + 0.5 ** np.arange(1, 9)[:, None] * (np.arange(40) - 39)
        weights = np.exp(logits)
        expected = np.einsum("hs,shd->hd", weights / weights.sum(-1, keepdims=True), values(v, "bf16").repeat(4, 1))
        np.testing.assert_allclose(values(out.array, "bf16"), expected, rtol=2.0**-7, atol=5e-3)
        self.assertEqual(self.long_ways, 3)

    def test_mla(self):
        generator, lens = np.random.default_rng(9), np.array([40, 7], np.int32)
        for long in (1, 0):
            query, cache = (random_bits(generator, "bf16", shape) for shape in ((2, 1, 6, 320), (5, 32, 320)))
            tables = generator.permutation(4).astype(np.int32).reshape(2, 2)
            before = self.long_ways
            out = libdecode.trtllm_batch_decode_with_kv_cache_mla(
                self.on(query), self.on(cache), None, 128, 256, 64, self.on(tables, "int32"), self.on(lens, "int32"), 40, bmm1_scale=0.1)
            self.assertEqual((self.long_ways - before, out.shape), (long, (2, 1, 6, 256)))
            pages = values(cache, "bf16")[:, None]
            expected, _ = attention(values(query, "bf16")[:, 0], pages, pages[..., :256], tables, lens, [1, 1], scale=0.1)
            np.testing.assert_allclose(values(out.array, "bf16")[:, 0], expected, rtol=2.0**-7, atol=5e-3)


class LayoutTest(unittest.TestCase):
    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        self.torch = torch
        driver.torch_quick.cache_clear()
        self.addCleanup(driver.torch_quick.cache_clear)
        self.tensors = [torch.zeros(3, 4, 8), torch.zeros(5, dtype=torch.int32)]

    def test_pytorchs_own_check_of_layouts(self):
        own = driver.torch_quick().check_of(self.tensors)
        self.assertNotEqual(own.__qualname__, driver._plain_check_of(self.tensors).__qualname__)
        first, second = self.tensors
        for check in (own, driver._plain_check_of(self.tensors)):
            self.assertIs(check(first, second), True)
            self.assertIs(check(first.clone() + 1, second + 1), True)
            for other in (first[:2], first[..., :4], first.transpose(0, 1), first[0], self.torch.zeros(3, 4, 16)[..., :8], first[:0],
                          first.int(), first.to("meta"), self.torch.nn.Parameter(first)):
                self.assertIs(check(other, second), False)
            self.assertIs(check(first, second.long()), False)

    def test_a_release_that_makes_its_guards_in_another_way(self):
        def of_another_release(*_, **__):
            raise TypeError("dynamic_dims_sizes is no keyword of mine")

        never = mock.Mock(check=lambda *_: False)  # one that does not even know what it was made from
        for made in (of_another_release, lambda *_, **__: never):
            with mock.patch.object(self.torch._C._dynamo.guards, "TensorGuards", made):
                check = driver.torch_quick().check_of(self.tensors)
            self.assertIs(check(*self.tensors), True)
            self.assertIs(check(*reversed(self.tensors)), False)

    def test_pytorchs_own_allocation(self):
        made, wide = self.tensors[0].to(self.torch.bfloat16), self.torch.zeros(2, 6)[:, :4]
        for like in (made, wide, self.torch.zeros(0, 4)):
            allocate = driver.torch_quick().allocator_of(like)
            self.assertIs(allocate.func, self.torch._C._dynamo.guards._empty_strided_cpu)
            first, second = allocate(), allocate()
            self.assertTrue(driver._layout(first) == driver._layout(second) == driver._layout(like))
            self.assertTrue(first.numel() == 0 or len({first.data_ptr(), second.data_ptr(), like.data_ptr()}) == 3)

    def test_a_release_that_allocates_in_another_way(self):
        made = self.tensors[0]
        with mock.patch.object(self.torch._C._dynamo.guards, "_empty_strided_cpu", lambda *_: self.torch.empty(1)):
            self.assertEqual(driver.torch_quick().allocator_of(made)().shape, made.shape)
        with mock.patch.object(self.torch._C._dynamo.guards, "_empty_strided_cpu", side_effect=TypeError):
            self.assertEqual(driver.torch_quick().allocator_of(made)().shape, made.shape)
        with mock.patch.object(self.torch._C._dynamo, "guards", None):
            self.assertEqual(driver.torch_quick().allocator_of(made)().dtype, made.dtype)


unittest.main()
