# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's MLA call on the host, against attention in numpy: shapes, dtypes, query tokens, results, and what is refused."""

import unittest

import skip  # noqa: F401
import numpy as np

import libdecode
from libdecode import trtllm_batch_decode_with_kv_cache_mla as decode, typed
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
                    self.assertEqual((out.shape, lse.shape), ((len(LENS), q_len, 6, RANK), (len(LENS), q_len, 6)))
                    self.assert_near((out, lse), scene.expected(sinks=sinks), out_dtype)

    def test_ragged_query_tokens_and_axes_of_one(self):
        scene = Scene("fp16", "fp16", [2, 4, 1, 3, 0])
        cum = np.cumsum([0, *scene.q_lens]).astype(np.int32)
        out, lse = np.empty((10, 6, RANK), np.float16), np.empty((10, 6), np.float32)
        got = scene.call(scene.query_bits, kv_cache=scene.cache_bits[:, None], cum_seq_lens_q=cum, max_q_len=4, out=out, lse=lse,
                         block_tables=np.stack([scene.tables, scene.tables], axis=1), uses_shared_paged_kv_idx=False)
        self.assertIs(got[0], out)
        self.assertIs(got[1], lse)
        self.assert_near(got, scene.expected(), "fp16")

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
        for options in ({"sparse_mla_top_k": 128}, {"enable_dcp": True}, {"cp_world": 2}, {"sparse_mla_top_k_lens": scene.lens}):
            with self.subTest(options), self.assertRaisesRegex(NotImplementedError, next(iter(options))):
                scene.call(query, **options)


unittest.main()
