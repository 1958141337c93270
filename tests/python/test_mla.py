# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's MLA call on the host, against attention in numpy: shapes, dtypes, query tokens, results, and what is refused."""

import unittest
from unittest import mock

import skip  # noqa: F401
import numpy as np

import libdecode
from libdecode import trtllm_batch_decode_with_kv_cache_mla as decode, typed
from libdecode.call import Call
from numpy_attention import attention, off_by, random_bits, values

LENS = [5, 70, 33, 16, 0]
PAGE, RANK, ROPE = 32, 256, 64
SCALE = np.float32((128 + 64) ** -0.5)
generator = np.random.default_rng(5)


def carried(bits, dtype):
    return bits if dtype == "fp16" else typed(bits, dtype)


class Scene:
    """A cache of rows of RANK + ROPE elements in pages of a random order, and queries."""

    def __init__(self, dtype, query_dtype, q_lens, heads=6):
        width = -(-max(LENS) // PAGE)
        self.cache_bits = random_bits(generator, dtype, (len(LENS) * width + 2, PAGE, RANK + ROPE))
        self.tables = generator.permutation(len(LENS) * width).astype(np.int32).reshape(len(LENS), width)
        self.lens = np.array(LENS, np.int32)
        self.q_lens, self.dtype, self.query_dtype = q_lens, dtype, query_dtype
        self.query_bits = random_bits(generator, query_dtype, (sum(q_lens), heads, RANK + ROPE))

    def expected(self, **options):
        pages = values(self.cache_bits, self.dtype)[:, None]
        return attention(values(self.query_bits, self.query_dtype), pages, pages[..., :RANK], self.tables, LENS, self.q_lens,
                         scale=float(SCALE), **options)

    def call(self, query, **options):
        arguments = {"kv_cache": carried(self.cache_bits, self.dtype), "block_tables": self.tables, **options}
        return decode(carried(query, self.query_dtype), arguments.pop("kv_cache"), None, 128, RANK, ROPE, arguments.pop("block_tables"),
                      self.lens, max(LENS), bmm1_scale=float(SCALE), return_lse=True, **arguments)


class MlaTest(unittest.TestCase):
    def assert_near(self, got, expected, dtype):
        for actual, exact, kind in zip(got, expected, (dtype, "f32")):
            self.assertLessEqual(off_by(values(actual, kind).reshape(exact.shape), exact, kind), 1.0001)

    def test_as_many_query_tokens_for_each(self):
        for dtype, query_dtype, out_dtype in (("fp16", "fp16", "fp16"), ("bf16", "bf16", "bf16"), ("e4m3", "bf16", "bf16"),
                                              ("e4m3", "e4m3", "bf16")):
            for q_len in (1, 3):
                with self.subTest(dtype=dtype, query_dtype=query_dtype, q_len=q_len):
                    scene = Scene(dtype, query_dtype, [q_len] * len(LENS))
                    sinks = generator.standard_normal(6).astype(np.float32)
                    query = scene.query_bits.reshape(len(LENS), q_len, 6, RANK + ROPE)
                    out, lse = scene.call(query, sinks=sinks)
                    self.assertEqual((out.shape, lse.shape), ((len(LENS), q_len, 6, RANK), (q_len * len(LENS), 6)))
                    self.assert_near((out, lse), scene.expected(sinks=sinks), out_dtype)
                    for shape in (lse.shape, (len(LENS), q_len, 6)):  # the caller's stays as it is
                        given = np.empty(shape, np.float32)
                        self.assertIs(scene.call(query, sinks=sinks, lse=given)[1], given)
                        self.assertTrue(np.array_equal(given.reshape(lse.shape), lse))

    def test_ragged_query_tokens_and_axes_of_one(self):
        scene = Scene("fp16", "fp16", [2, 4, 1, 3, 0])
        cum = np.cumsum([0, *scene.q_lens]).astype(np.int32)
        out, lse = np.empty((10, 6, RANK), np.float16), np.empty((10, 6), np.float32)
        for bound in ({}, {"max_q_len": None}):
            with mock.patch.object(Call, "run", autospec=True, side_effect=Call.run) as run:
                self.assert_near(scene.call(scene.query_bits, cum_seq_lens_q=cum, **bound), scene.expected(), "fp16")
            self.assertEqual(run.call_args.args[0].problem.q_len, 4)
        with mock.patch("libdecode.indices.on_host", lambda _: None), mock.patch.object(Call, "run", autospec=True) as run:
            scene.call(scene.query_bits, cum_seq_lens_q=cum)  # as on a GPU
        self.assertEqual(run.call_args.args[0].problem.q_len, 10)
        got = scene.call(scene.query_bits, kv_cache=scene.cache_bits[:, None], cum_seq_lens_q=cum, max_q_len=4, out=out, lse=lse,
                         block_tables=np.stack([scene.tables, scene.tables], axis=1), uses_shared_paged_kv_idx=False)
        self.assertIs(got[0], out)
        self.assertIs(got[1], lse)
        self.assert_near(got, scene.expected(), "fp16")

    def test_tokens_that_are_dealt_out_over_ranks(self):
        ranks = 3
        for q_len in (1, 4):
            with self.subTest(q_len=q_len):
                scene = Scene("fp16", "fp16", [q_len] * len(LENS))
                query = scene.query_bits.reshape(len(LENS), q_len, 6, RANK + ROPE)
                requests = [scene.cache_bits[table].reshape(-1, RANK + ROPE)[:length] for table, length in zip(scene.tables, LENS)]
                parts = []
                for rank in range(ranks):
                    own = [rows[rank::ranks] for rows in requests]
                    cache = random_bits(generator, "fp16", (len(LENS), PAGE, RANK + ROPE))
                    for page, rows in zip(cache, own):
                        page[:len(rows)] = rows
                    parts.append(decode(query, cache, None, 128, RANK, ROPE, np.arange(len(LENS), dtype=np.int32)[:, None],
                                        np.array([len(rows) for rows in own], np.int32), PAGE, bmm1_scale=float(SCALE), return_lse=True,
                                        enable_dcp=True, cp_world=ranks, cp_rank=rank,
                                        causal_seqlens_kv_global=np.array(LENS, np.int32)))
                tokens = (len(LENS) * q_len, 6)
                merged = libdecode.merge_states(np.stack([out.reshape(*tokens, RANK) for out, _ in parts], axis=1),
                                                np.stack([lse.reshape(tokens) for _, lse in parts], axis=1))
                expected = scene.expected()
                # each part is rounded to fp16, and once more when they are merged
                self.assertLessEqual(np.abs(values(merged[0], "fp16") - expected[0].reshape(merged[0].shape)).max(), 2e-3)
                self.assertLessEqual(off_by(merged[1], expected[1].reshape(merged[1].shape), "f32"), 2)

    def test_ranks_that_are_wrong_are_refused(self):
        scene = Scene("fp16", "fp16", [1] * len(LENS))
        query, bounds = scene.query_bits.reshape(len(LENS), 1, 6, RANK + ROPE), np.array(LENS, np.int32)
        right = {"enable_dcp": True, "cp_world": 2, "cp_rank": 1, "causal_seqlens_kv_global": bounds}
        scene.call(query, **right)
        for name, value in (("cp_world", 0), ("cp_world", -2), ("cp_rank", 2), ("cp_rank", -1), ("causal_seqlens_kv_global", None),
                            ("causal_seqlens_kv_global", bounds[:2]), ("causal_seqlens_kv_global", bounds.astype(np.int64))):
            with self.subTest(name=name, value=value), self.assertRaisesRegex(ValueError, name):
                scene.call(query, **{**right, name: value})
        for name, value in (("cp_world", 2), ("cp_rank", 1), ("causal_seqlens_kv_global", bounds)):
            with self.subTest(alone=name), self.assertRaisesRegex(ValueError, f"{name} .*enable_dcp"):
                scene.call(query, **{name: value})
        with self.assertRaisesRegex(ValueError, "cum_seq_lens_q"):
            scene.call(scene.query_bits, cum_seq_lens_q=np.arange(len(LENS) + 1, dtype=np.int32), max_q_len=1, **right)
        with self.assertRaisesRegex(ValueError, "return_lse"):
            decode(query, scene.cache_bits, None, 128, RANK, ROPE, scene.tables, scene.lens, max(LENS), **right)
        with self.assertRaisesRegex(NotImplementedError, "sparse_mla_top_k"):
            scene.call(query, block_tables=np.zeros((len(LENS), 1, 8), np.int32), sparse_mla_top_k=8, **right)

    def test_sparse_query_tokens_attend_to_the_rows_that_they_name(self):
        top_k = 24
        for ragged in (False, True):
            with self.subTest(ragged=ragged):
                scene = Scene("fp16", "fp16", [2] * len(LENS))
                ids = np.full((2 * len(LENS), top_k), -1, np.int32)
                lens = np.zeros(2 * len(LENS), np.int32)
                tables, seen = np.zeros((2 * len(LENS), top_k), np.int32), []
                for token in range(2 * len(LENS)):
                    request = token // 2
                    chosen = generator.permutation(LENS[request])[:top_k - 2]
                    rows = scene.tables[request, chosen // PAGE] * PAGE + chosen % PAGE
                    lens[token] = len(rows) + 1
                    ids[token, 1:len(rows) + 1] = rows  # one that names none comes first
                    tables[token, :len(rows)] = rows
                    seen.append(len(rows))
                pages = values(scene.cache_bits, "fp16").reshape(-1, 1, 1, RANK + ROPE)  # of one token each
                expected = attention(values(scene.query_bits, "fp16"), pages, pages[..., :RANK], tables, seen, [1] * len(seen),
                                     scale=float(SCALE))
                query, options = scene.query_bits.reshape(len(LENS), 2, 6, RANK + ROPE), {}
                table = ids.reshape(len(LENS), 2, top_k)
                if ragged:
                    query, table = scene.query_bits, ids
                    options = {"cum_seq_lens_q": np.arange(0, 11, 2, dtype=np.int32), "max_q_len": 2}
                got = scene.call(query, block_tables=table, sparse_mla_top_k=top_k, sparse_mla_top_k_lens=lens, **options)
                self.assert_near(got, expected, "fp16")
                lens_of_all = scene.lens
                scene.lens = None  # all ids count, those that name none are passed over
                self.assert_near(scene.call(query, block_tables=table, sparse_mla_top_k=top_k, **options), expected, "fp16")
                scene.lens = lens_of_all
        for options, word in (({"sparse_mla_top_k": 23}, "block_tables has shape"), ({"sparse_mla_top_k": -1}, "sparse_mla_top_k is -1"),
                              ({"sparse_mla_top_k": 0, "sparse_mla_top_k_lens": lens}, "sparse_mla_top_k_lens is given"),
                              ({"sparse_mla_top_k": 24, "kv_cache": np.zeros((4, 32, 600), np.uint8)}, "rows of 600 bytes")):
            with self.subTest(word), self.assertRaisesRegex(libdecode.InvalidArgumentError, word):
                scene.call(scene.query_bits.reshape(len(LENS), 2, 6, RANK + ROPE), block_tables=table.reshape(len(LENS), 2, top_k), **options)

    def test_sparse_rows_of_bytes(self):
        query = np.ones((1, 1, 2, 576), np.float32).view(np.uint32) >> 16
        for row_bytes, kinds in ((656, 1), (352, 2)):
            cache = np.zeros((3, 16, row_bytes), np.uint8)
            out = decode(typed(query.astype(np.uint16), "bf16"), cache, None, 128, 512, 64, np.array([[[0, 47, -1]]], np.int32),
                         np.array([48], np.int32), 48, sparse_mla_top_k=3, return_lse=True)
            self.assertEqual(float(out[1][0, 0]), 1.0)  # two rows of zeros

    def test_what_is_wrong_is_named(self):
        scene = Scene("fp16", "fp16", [1] * len(LENS))
        query = scene.query_bits[:, None]
        for options, word in (({"kv_cache": scene.cache_bits[..., :-64]}, "kv_cache has head_dim"), ({"max_q_len": 2}, "max_q_len"),
                              ({"backend": "fa2"}, "backend"), ({"out": np.empty((5, 1, 6, 320), np.float16)}, "out has shape"),
                              ({"kv_cache": scene.cache_bits[0]}, "kv_cache has shape")):
            with self.subTest(word), self.assertRaisesRegex(libdecode.InvalidArgumentError, word):
                scene.call(query, **options)
        with self.assertRaisesRegex(libdecode.InvalidArgumentError, "kv_lora_rank"):
            decode(query, scene.cache_bits, None, 128, 512, 64, scene.tables, scene.lens, 70)


unittest.main()
