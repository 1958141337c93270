# SPDX-License-Identifier: Apache-2.0
"""Every parameter reaches the fields that parameters.md says, and every wrong value is refused by name."""

import pathlib
import re
import unittest
from ctypes import c_int32, c_int64
from unittest import mock

import skip  # noqa: F401
import numpy as np

import libdecode
from libdecode import abi, typed
from libdecode.call import Call

TABLES = (pathlib.Path(libdecode.__file__).parent / "parameters.md").read_text(encoding="utf-8")
TRTLLM, CUDNN = "trtllm_batch_decode_with_kv_cache", "cudnn_batch_decode_with_kv_cache"
MLA, SINGLE = "trtllm_batch_decode_with_kv_cache_mla", "single_decode_with_kv_cache"


def fields_of(function, parameter):
    """[(struct, field)] that the table names."""
    section = re.search(rf"^## {function}$(.*?)(?=^## |\Z)", TABLES, re.MULTILINE | re.DOTALL)[1]
    row = re.search(rf"^\| `{parameter}` \|.*$", section, re.MULTILINE)[0]
    return re.findall(r"`(problem|tensors)\.(\w+)`", row)


def recorded(function, arguments):
    """{(struct, field): value} that a call would hand to the library."""
    calls = []
    with mock.patch.object(Call, "run", lambda self, *_: calls.append(self)):
        getattr(libdecode, function)(**arguments)
    call, = calls
    return {(struct, name): getattr(getattr(call, struct), name) for struct in ("problem", "tensors")
            for name, _ in getattr(call, struct)._fields_}


def zeros(*shape, dtype=np.float16):
    return np.zeros(shape, dtype)


def base():
    """A call that is right: 3 requests, 8 query heads, 2 KV heads, head_dim 64, pages of 16."""
    return {"query": zeros(3, 8, 64), "kv_cache": (zeros(9, 2, 16, 64), zeros(9, 2, 16, 64)), "workspace_buffer": None,
            "block_tables": zeros(3, 5, dtype=np.int32), "seq_lens": zeros(3, dtype=np.int32), "max_seq_len": 70}


def e4m3(*shape):
    return typed(zeros(*shape, dtype=np.uint8), "e4m3")


def nvfp4():
    return {"kv_cache": (zeros(9, 2, 16, 32, dtype=np.uint8), zeros(9, 2, 16, 32, dtype=np.uint8)),
            "kv_cache_sf": (zeros(9, 2, 16, 4, dtype=np.uint8), zeros(9, 2, 16, 4, dtype=np.uint8))}


def fp4():
    return libdecode.FP4Tensor(zeros(3, 8, 32, dtype=np.uint8), zeros(128, 32, dtype=np.uint8), 5)


INT = {"dtype": np.int32}
FP8 = {"query": e4m3(3, 8, 64), "kv_cache": (e4m3(9, 2, 16, 64), e4m3(9, 2, 16, 64))}
# Of each parameter that is a field: what else the call needs, and two values of the parameter.
VARIED = {
    "query": ({}, zeros(3, 8, 64), zeros(3, 16, 128)[..., :64]),
    "kv_cache": ({}, (zeros(9, 2, 16, 64), zeros(9, 2, 16, 64)), (zeros(7, 4, 32, 64), zeros(7, 4, 32, 64))),
    "block_tables": ({}, zeros(3, 5, **INT), zeros(3, 9, **INT)),
    "seq_lens": ({}, zeros(3, **INT), zeros(6, **INT)[::2]),
    "max_seq_len": ({}, 70, 71),
    "bmm1_scale": ({}, 1.0, 0.5),
    "bmm2_scale": ({}, 1.0, np.ones(1, np.float32)),
    "window_left": ({}, -1, 7),
    "out": ({}, zeros(3, 8, 64), zeros(3, 8, 128)[..., :64]),
    "out_dtype": ({}, None, "bf16"),
    "o_sf_scale": ({**FP8, "out_dtype": "nvfp4"}, 1.0, 2.0),
    "sinks": ({}, None, zeros(8, dtype=np.float32)),
    "kv_layout": ({"kv_cache": (zeros(9, 2, 2, 64), zeros(9, 2, 2, 64))}, "HND", "NHD"),
    "enable_pdl": None,
    "q_len_per_req": ({"seq_lens": zeros(1, **INT), "block_tables": zeros(1, 5, **INT)}, 3, 3),
    "o_scale": ({**FP8}, 1.0, 2.0),
    "mask": ({}, None, zeros(3, 2, dtype=np.uint16)),
    "max_q_len": ({"cum_seq_lens_q": zeros(4, **INT)}, 2, 3),
    "cum_seq_lens_q": ({"max_q_len": 1}, None, zeros(4, **INT)),
    "skip_softmax_threshold_scale_factor": ({}, None, 3.0),
    "kv_cache_sf": ({**nvfp4()}, nvfp4()["kv_cache_sf"], zeros(9, 2, 2, 16, 4, dtype=np.uint8)),
    "uses_shared_paged_kv_idx": ({"block_tables": zeros(3, 2, 5, **INT)}, False, False),
    "lse": ({}, None, zeros(3, 8, dtype=np.float32)),
    "bmm1_scale_log2": ({}, None, np.ones(1, np.float32)),
    "enable_block_sparse_attention": ({"block_tables": zeros(2, 3, 5, **INT), "seq_lens": zeros(2, 3, **INT)}, True, True),
    "kv_block_scales": ({**nvfp4(), "kv_cache_sf": None}, nvfp4()["kv_cache_sf"], zeros(9, 2, 2, 16, 4, dtype=np.uint8)),
    "v_sf_layout": (nvfp4(), None, "v_interleave4"),
}
# The value that a field has where nothing says otherwise: for parameters of which two values are the same here.
NEUTRAL = {"q_len_per_req": 1}


def offsets(first, distance):
    return np.arange(3) * distance + first


UNEVEN = np.array([4, 0, 1])


def stretches(of_k, of_v):
    """KV without pages, of as many requests."""
    return {"block_tables": None, "k_cache": zeros(of_k, 2, 80, 64), "v_cache": zeros(of_v, 2, 80, 64)}


RANKS = {"enable_dcp": True, "return_lse": True}

# The same of the other three functions, whose arguments that are right are these.
OTHERS = {
    MLA: ({
        "query": zeros(3, 1, 8, 320), "kv_cache": zeros(9, 32, 320), "workspace_buffer": None, "qk_nope_head_dim": 128,
        "kv_lora_rank": 256, "qk_rope_head_dim": 64, "block_tables": zeros(3, 5, **INT), "seq_lens": zeros(3, **INT), "max_seq_len": 70,
    }, {
        "query": ({}, zeros(3, 1, 8, 320), zeros(3, 1, 16, 640)[..., :320]),
        "kv_cache": ({}, zeros(9, 32, 320), zeros(7, 64, 640)[..., :320]),
        "kv_lora_rank": ({"query": zeros(3, 1, 8, 576), "kv_cache": zeros(9, 32, 576)}, 512, 512),
        "block_tables": ({}, zeros(3, 5, **INT), zeros(3, 9, **INT)),
        "seq_lens": ({}, zeros(3, **INT), zeros(6, **INT)[::2]),
        "max_seq_len": ({}, 70, 71),
        "sparse_mla_top_k": ({"block_tables": zeros(3, 1, 7, **INT)}, 7, 7),
        "out": ({}, zeros(3, 1, 8, 256), zeros(3, 1, 8, 512)[..., :256]),
        "bmm1_scale": ({}, 1.0, 0.5),
        "bmm2_scale": ({}, 1.0, np.ones(1, np.float32)),
        "sinks": ({}, None, zeros(8, dtype=np.float32)),
        "skip_softmax_threshold_scale_factor": ({}, None, 3.0),
        "enable_pdl": None,
        "lse": ({}, None, zeros(3, 1, 8, dtype=np.float32)),
        "cum_seq_lens_q": ({"query": zeros(3, 8, 320), "max_q_len": 1}, zeros(4, **INT), zeros(4, **INT)),
        "max_q_len": ({"query": zeros(3, 8, 320), "cum_seq_lens_q": zeros(4, **INT)}, 2, 3),
        "sparse_mla_top_k_lens": ({"block_tables": zeros(3, 1, 7, **INT), "sparse_mla_top_k": 7}, None, zeros(3, **INT)),
        "cp_world": ({"causal_seqlens_kv_global": zeros(3, **INT), **RANKS}, 2, 3),
        "cp_rank": ({"causal_seqlens_kv_global": zeros(3, **INT), "cp_world": 4, **RANKS}, 0, 2),
        "causal_seqlens_kv_global": (RANKS, zeros(3, **INT), zeros(3, **INT) + 1),
    }),
    CUDNN: ({
        "q": zeros(3, 8, 64), "k_cache": zeros(9, 2, 16, 64), "v_cache": zeros(9, 2, 16, 64), "scale": 1.0, "workspace_buffer": None,
        "max_sequence_kv": 70, "actual_seq_lens_kv": zeros(3, **INT), "block_tables": zeros(3, 5, **INT),
    }, {
        "q": ({}, zeros(3, 8, 64), zeros(3, 1, 8, 128).transpose(0, 2, 1, 3)[..., :64]),
        "k_cache": ({}, zeros(9, 2, 16, 64), zeros(9, 4, 16, 64)[:, ::2]),
        "v_cache": ({}, zeros(9, 2, 16, 64), zeros(9, 4, 16, 64)[:, ::2]),
        "scale": ({}, 1.0, 0.5),
        "max_sequence_kv": ({}, 70, 71),
        "actual_seq_lens_kv": ({}, zeros(3, **INT), zeros(3, 1, 1, 1, **INT)),
        "block_tables": ({}, zeros(3, 5, **INT), zeros(3, 1, 9, 1, **INT)),
        "batch_offsets_q": ({"q": zeros(6, 8, 64)}, offsets(512, 1024), UNEVEN * 512),
        "batch_offsets_o": ({"out": zeros(6, 8, 64)}, offsets(512, 1024), UNEVEN * 512),
        "batch_offsets_k": (stretches(6, 3), offsets(10240, 20480), UNEVEN * 10240),
        "batch_offsets_v": (stretches(3, 6), offsets(10240, 20480), UNEVEN * 10240),
        "out": ({}, zeros(3, 8, 64), zeros(3, 8, 128)[..., :64]),
        "q_len_per_req": ({"actual_seq_lens_kv": zeros(1, **INT), "block_tables": zeros(1, 5, **INT)}, 3, 3),
        "window_left": ({}, -1, 7),
        "sinks": ({}, None, zeros(8, dtype=np.float32)),
        "lse": ({}, None, zeros(3, 8, dtype=np.float32)),
    }),
    SINGLE: ({"q": zeros(8, 64), "k": zeros(20, 2, 64), "v": zeros(20, 2, 64)}, {
        "q": ({}, zeros(8, 64), zeros(8, 128)[:, :64]),
        "k": ({}, zeros(20, 2, 64), zeros(20, 4, 64)[:, ::2]),
        "v": ({}, zeros(20, 2, 64), zeros(20, 4, 64)[:, ::2]),
        "kv_layout": ({"k": zeros(2, 2, 64), "v": zeros(2, 2, 64)}, "HND", "NHD"),
        "q_scale": ({}, None, 0.5),
        "k_scale": ({}, None, 0.5),
        "v_scale": ({}, None, 0.5),
        "window_left": ({}, -1, 7),
        "logits_soft_cap": ({}, None, 30.0),
        "sm_scale": ({}, None, 0.5),
        "rope_scale": ({"pos_encoding_mode": "ROPE_LLAMA"}, None, 4.0),
        "rope_theta": ({"pos_encoding_mode": "ROPE_LLAMA"}, None, 5e5),
        "out": ({}, zeros(8, 64), zeros(8, 128)[:, :64]),
        "kv_cache_sf": ({"k": zeros(20, 2, 32, dtype=np.uint8), "v": zeros(20, 2, 32, dtype=np.uint8)},
                        (zeros(20, 2, 4, dtype=np.uint8),) * 2, (zeros(20, 2, 8, dtype=np.uint8)[..., :4],) * 2),
        "v_sf_layout": ({"k": zeros(20, 2, 32, dtype=np.uint8), "v": zeros(20, 2, 32, dtype=np.uint8),
                         "kv_cache_sf": (zeros(20, 2, 4, dtype=np.uint8),) * 2}, "v_interleave4", "v_interleave4"),
    }),
}
FUNCTIONS = {TRTLLM: (base(), VARIED), **OTHERS}
# Fields that the second value of a parameter does not set.
ELSEWHERE = {"page_table_head_stride", "page_table_v_offset", "seq_lens_head_stride", "out_sf", "out_sf_start_token", "bmm1_scale_device",
             "bmm1_scale", "kv_layout", "v_sf_layout", ("max_sequence_kv", "kv_capacity_tokens"), ("seq_lens", "kv_capacity_tokens"),
             ("block_tables", "sparse_token_ids"), ("block_tables", "sparse_token_ids_stride"),
             ("actual_seq_lens_kv", "kv_capacity_tokens")}


class FieldsTest(unittest.TestCase):
    def test_every_parameter_that_is_a_field_is_varied_here(self):
        for function, (_, varied) in FUNCTIONS.items():
            section = re.search(rf"^## {function}$(.*?)(?=^## |\Z)", TABLES, re.MULTILINE | re.DOTALL)[1]
            self.assertEqual(re.findall(r"^\| `(\w+)` \| field \|", section, re.MULTILINE), list(varied), function)

    def test_parameters_reach_their_fields(self):
        for function, (right, varied) in FUNCTIONS.items():
            for name in varied:
                if name == "enable_pdl":  # on a GPU alone: test_played_gpu.py
                    continue
                with self.subTest(function=function, parameter=name):
                    others, one, two = varied[name]
                    fields = fields_of(function, name)
                    before, after = (recorded(function, {**right, **others, name: value}) for value in (one, two))
                    if one is two or (type(one) is type(two) in (bool, int, str) and one == two):
                        before = {field: NEUTRAL.get(name, 0) for field in after}
                    self.assertTrue(any(before[field] != after[field] for field in fields), fields)
                    for field in fields:
                        if field[1] not in ELSEWHERE and (name, field[1]) not in ELSEWHERE:
                            self.assertTrue(after[field] or before[field], f"{name}: {field} is never set")

    def test_token_ids_of_sparse_mla(self):
        ids = zeros(3, 1, 9, **INT)[..., :7]
        fields = recorded(MLA, {**OTHERS[MLA][0], "block_tables": ids, "sparse_mla_top_k": 7})
        self.assertEqual((fields["tensors", "sparse_token_ids"], fields["problem", "sparse_token_ids_stride"]), (ids.ctypes.data, 9))
        self.assertFalse(fields["tensors", "page_table"])

    def test_modes_of_positions(self):
        right, _ = OTHERS[SINGLE]
        for mode, bits in (("NONE", 0), ("ROPE_LLAMA", abi.FEATURE_ROPE), ("ALIBI", abi.FEATURE_ALIBI)):
            fields = recorded(SINGLE, {**right, "pos_encoding_mode": mode})
            self.assertEqual(fields["problem", "features"], bits | abi.FEATURE_CONTIGUOUS_KV)
        fields = recorded(SINGLE, {**right, "pos_encoding_mode": "ALIBI", "return_lse": True})
        self.assertEqual(fields["problem", "features"],
                         abi.FEATURE_ALIBI | abi.FEATURE_CONTIGUOUS_KV | abi.FEATURE_LSE | abi.FEATURE_LSE_ALIBI_FROM_ZERO)

    def test_features_come_with_their_parameters(self):
        for name, feature in (("window_left", "WINDOW"), ("sinks", "SINKS"), ("mask", "DRAFT_MASK"), ("lse", "LSE"),
                              ("cum_seq_lens_q", "RAGGED_Q"), ("skip_softmax_threshold_scale_factor", "SKIP_SOFTMAX")):
            others, without, given = VARIED[name]
            bit = getattr(abi, f"FEATURE_{feature}")
            self.assertEqual(recorded(TRTLLM, {**base(), **others, name: given})["problem", "features"], bit, name)
            self.assertEqual(recorded(TRTLLM, {**base(), **others, name: without})["problem", "features"], 0, name)

    def test_fp4_result(self):
        result = fp4()
        fields = recorded(TRTLLM, {**base(), **FP8, "out": result, "o_sf_scale": 2.0})
        self.assertEqual(fields["tensors", "out_sf_start_token"], 5)
        self.assertEqual(fields["tensors", "out_sf"], result.scale.ctypes.data)
        self.assertEqual((fields["problem", "out_token_stride"], fields["problem", "out_head_stride"]), (512, 64))

    def test_fp4_of_another_library(self):
        class FP4:  # as FlashInfer's: recognised by what it has
            dtype, data, scale, scale_start_index = "nvfp4", fp4().data, fp4().scale, 0
        self.assertEqual(recorded(TRTLLM, {**base(), **FP8, "out": FP4, "o_sf_scale": 1.0})["problem", "out_dtype"], abi.DTYPE_NVFP4)


class RefusalsTest(unittest.TestCase):
    """What is wrong: a ValueError of libdecode whose message names the argument."""

    def refuse(self, words, error=ValueError, function=TRTLLM, **changes):
        arguments = {**FUNCTIONS[function][0], **changes}
        with self.subTest(words=words), self.assertRaisesRegex(error, words) as caught:
            getattr(libdecode, function)(**arguments)
        if error is not TypeError:
            self.assertIsInstance(caught.exception, libdecode.LibdecodeError)

    def test_query(self):
        self.refuse("query is a list", TypeError, query=[1.0])
        self.refuse("query is u16: .*libdecode.typed", query=zeros(3, 8, 64, dtype=np.uint16))
        self.refuse("query is f32: it must be bf16 or fp16 or e4m3", query=zeros(3, 8, 64, dtype=np.float32))
        self.refuse("query is e5m2: it must be bf16 or fp16 or e4m3", query=typed(zeros(3, 8, 64, dtype=np.uint8), "e5m2"))
        self.refuse(r"query has shape \(3, 512\)", query=zeros(3, 512))
        self.refuse("query has stride 2 along its last axis", query=zeros(3, 8, 128)[..., ::2])
        self.refuse("query has stride 0 along axis 0", query=np.broadcast_to(zeros(1, 8, 64), (3, 8, 64)))
        self.refuse("query has stride -512 along axis 0", query=zeros(3, 8, 64)[::-1])
        self.refuse("query has 3 tokens: 2 requests", seq_lens=zeros(2, **INT), block_tables=zeros(2, 5, **INT))
        self.refuse("query is big-endian", query=zeros(3, 8, 64, dtype=">f2"))
        self.refuse("query has elements of type", query=zeros(3, 8, 64, dtype=np.complex64))
        self.refuse("query is f32 and said to be bf16", query=typed(zeros(3, 8, 64, dtype=np.float32), "bf16"))
        self.refuse("problem.query_token_stride is 516 elements: it must be a multiple of 8", query=zeros(3, 516)[:, None, :64],
                    kv_cache=(zeros(9, 1, 16, 64), zeros(9, 1, 16, 64)))

    def test_typed(self):
        with self.assertRaisesRegex(ValueError, "dtype is 'fp32': accepted are bf16, fp16, e4m3, e5m2, nvfp4"):
            typed(zeros(1), "fp32")

    def test_kv_cache(self):
        self.refuse("kv_cache has shape .* must be .*pages, 2", kv_cache=zeros(9, 3, 2, 16, 64))
        self.refuse("kv_cache has shape .* must be .*pages, 2", kv_cache=zeros(9, 2, 16, 64))
        self.refuse("kv_cache is a tuple of 3", kv_cache=(zeros(1),) * 3)
        self.refuse(r"kv_cache\[0\] has shape \(9, 16, 64\): it must be \[pages, num_kv_heads, page_size, head_dim\]",
                    kv_cache=(zeros(9, 16, 64), zeros(9, 16, 64)))
        self.refuse(r"kv_cache\[1\] has shape .* as K's", kv_cache=(zeros(9, 2, 16, 64), zeros(9, 2, 8, 64)))
        self.refuse(r"kv_cache\[1\] is e4m3: it must be fp16", kv_cache=(zeros(9, 2, 16, 64), e4m3(9, 2, 16, 64)))
        self.refuse("has head_dim 128, query 64", kv_cache=(zeros(9, 2, 16, 128), zeros(9, 2, 16, 128)))
        self.refuse("kv_layout is 'DHN': accepted are 'HND', 'NHD'", kv_layout="DHN")
        self.refuse("problem.kv_dtype is bf16 with query_dtype fp16",
                    kv_cache=(typed(zeros(9, 2, 16, 64, dtype=np.uint16), "bf16"),) * 2)
        self.refuse("problem.num_kv_heads is 3, which does not divide", kv_cache=(zeros(9, 3, 16, 64), zeros(9, 3, 16, 64)))
        self.refuse("problem.page_size is 1025", kv_cache=(zeros(1, 1, 1025, 64), zeros(1, 1, 1025, 64)))

    def test_scales_of_nvfp4(self):
        self.refuse("kv_block_scales is None with an NVFP4 KV cache", **{**nvfp4(), "kv_cache_sf": None})
        self.refuse("kv_cache_sf is given with a KV cache of fp16", kv_cache_sf=nvfp4()["kv_cache_sf"])
        self.refuse("v_sf_layout is given with a KV cache of fp16", v_sf_layout="linear")
        self.refuse("v_sf_layout is 'swizzled'", **nvfp4(), v_sf_layout="swizzled")
        self.refuse("kv_cache_sf and kv_block_scales are both given", **nvfp4(), kv_block_scales=nvfp4()["kv_cache_sf"])
        self.refuse(r"kv_cache_sf\[1\] has shape", **{**nvfp4(), "kv_cache_sf": (zeros(9, 2, 16, 4, dtype=np.uint8),
                                                                              zeros(9, 2, 16, 8, dtype=np.uint8))})
        self.refuse(r"kv_cache_sf\[1\] has shape .* it must be \[pages, page_size, num_kv_heads, head_dim / 16\] = \(9, 16, 2, 4\)",
                    kv_cache=(zeros(9, 16, 2, 32, dtype=np.uint8),) * 2, kv_layout="NHD", v_sf_layout="v_interleave4",
                    kv_cache_sf=(zeros(9, 16, 2, 4, dtype=np.uint8), zeros(9, 2, 16, 4, dtype=np.uint8)))
        self.refuse(r"kv_cache_sf\[0\] is f32", **{**nvfp4(), "kv_cache_sf": (zeros(9, 2, 16, 4, dtype=np.float32),) * 2})

    def test_tables(self):
        self.refuse("block_tables is i64: it must be i32", block_tables=zeros(3, 5, dtype=np.int64))
        self.refuse(r"block_tables has shape \(4, 5\): it must be \[batch, width\] = \(3, 5\)", block_tables=zeros(4, 5, **INT))
        self.refuse(r"block_tables has shape \(3, 0\)", block_tables=zeros(3, 0, **INT))
        self.refuse("block_tables has shape .* must be .batch, 2, width", uses_shared_paged_kv_idx=False)
        self.refuse("block_tables has shape", block_tables=zeros(3, 3, 5, **INT), uses_shared_paged_kv_idx=False)
        self.refuse("block_tables has stride 0", block_tables=np.broadcast_to(zeros(1, 5, **INT), (3, 5)))
        self.refuse("seq_lens is i64: it must be i32", seq_lens=zeros(3, dtype=np.int64))
        self.refuse(r"seq_lens has shape \(3, 1\): it must be \[batch\]", seq_lens=zeros(3, 1, **INT))
        self.refuse(r"seq_lens has shape \(3,\): it must be \[num_kv_heads, batch\]", enable_block_sparse_attention=True)
        self.refuse("problem.max_seq_len is -1", max_seq_len=-1)

    def test_numbers_that_no_field_has_room_for(self):
        for name, function, value in (
                ("max_seq_len", TRTLLM, 2**31), ("max_seq_len", MLA, 2**32 + 70), ("max_sequence_kv", CUDNN, 2**31),
                ("q_len_per_req", TRTLLM, 2**32 + 1), ("q_len_per_req", CUDNN, 2**32 + 1), ("kv_lora_rank", MLA, 2**32 + 256),
                ("qk_rope_head_dim", MLA, -(2**31) - 1), ("sparse_mla_top_k", MLA, 2**40)):
            self.refuse(f"{name} is {value}: it must be -2147483648 to 2147483647", ValueError, function, **{name: value})
        self.refuse("max_q_len is 4294967298: it must be -2147483648 to", cum_seq_lens_q=zeros(4, **INT), max_q_len=2**32 + 2)
        for name, function in (("bmm1_scale", TRTLLM), ("bmm2_scale", MLA), ("o_scale", TRTLLM),
                               ("logits_soft_cap", SINGLE), ("skip_softmax_threshold_scale_factor", TRTLLM)):
            self.refuse(f"{name} is 1e-60: no float32 but 0 is as small", ValueError, function, **{name: 1e-60})

    def test_what_is_no_number(self):
        for name, function in (("max_seq_len", TRTLLM), ("max_seq_len", MLA), ("max_sequence_kv", CUDNN), ("window_left", TRTLLM),
                               ("window_left", CUDNN), ("window_left", SINGLE), ("q_len_per_req", CUDNN), ("kv_lora_rank", MLA),
                               ("sparse_mla_top_k", MLA)):
            for value, words in ((None, "None"), (100.0, "100.0"), ("x", "'x'"), (zeros(2, 2), "a ndarray")):
                self.refuse(f"^{name} is {words}: it must be an integer", TypeError, function, **{name: value})
        self.refuse("^q_len_per_req is 1.0: it must be an integer", TypeError, q_len_per_req=1.0)
        self.refuse("^max_q_len is '3': it must be an integer", TypeError, cum_seq_lens_q=zeros(4, **INT), max_q_len="3")
        for name, function in (("o_scale", TRTLLM), ("skip_softmax_threshold_scale_factor", TRTLLM), ("logits_soft_cap", SINGLE)):
            self.refuse(f"^{name} is 'x': it must be a number", TypeError, function, **{name: "x"})

    def test_what_is_none_and_must_not_be(self):
        for name, function in (("scale", CUDNN), ("bmm1_scale", TRTLLM), ("bmm2_scale", TRTLLM), ("bmm1_scale", MLA), ("bmm2_scale", MLA)):
            self.refuse(f"^{name} is None: it must be a number or a tensor", TypeError, function, **{name: None})
        log2 = np.ones(1, np.float32)  # which wins
        self.assertTrue(recorded(TRTLLM, {**base(), "bmm1_scale": None, "bmm1_scale_log2": log2})["tensors", "bmm1_scale_log2_device"])

    def test_query_tokens(self):
        cum = zeros(4, **INT)
        self.refuse("max_q_len is None with cum_seq_lens_q", cum_seq_lens_q=cum)
        self.refuse(r"cum_seq_lens_q has shape \(3,\): it must be \[batch \+ 1\] = \(4,\)", cum_seq_lens_q=zeros(3, **INT), max_q_len=2)
        self.refuse("q_len_per_req is None without cum_seq_lens_q", q_len_per_req=None)
        self.refuse("max_q_len is 4 with q_len_per_req 1", max_q_len=4)
        self.refuse("q_len_per_req is 0", q_len_per_req=0, query=zeros(0, 8, 64))
        self.refuse("max_q_len is 0", cum_seq_lens_q=cum, max_q_len=0)

    def test_query_tokens_on_the_host_that_lead_outside(self):
        for words, cum in (("begins with 1: it must be 0", (1, 2, 3, 3)), ("begins with -1: it must be 0", (-1, 0, 1, 3)),
                           ("has 1 behind 2 at 2: it must not run backwards", (0, 2, 1, 3)),
                           ("ends with 2000000: it must be at most the 3 tokens of query", (0, 1, 2, 2000000))):
            self.refuse(f"cum_seq_lens_q {words}", cum_seq_lens_q=np.array(cum, np.int32), max_q_len=2000000)
            self.refuse(f"cum_seq_lens_q {words}", function=MLA, query=zeros(3, 8, 320), cum_seq_lens_q=np.array(cum, np.int32),
                        max_q_len=2000000)
            self.refuse(f"cum_seq_lens_q {words}", function=MLA, query=zeros(3, 8, 320), block_tables=zeros(3, 5, **INT), sparse_mla_top_k=5,
                        cum_seq_lens_q=np.array(cum, np.int32), max_q_len=2000000)
        libdecode.trtllm_batch_decode_with_kv_cache(**base(), cum_seq_lens_q=np.array([0, 1, 1, 2], np.int32), max_q_len=1)  # fewer tokens

    def test_other_indices_on_the_host_that_lead_outside(self):
        self.refuse(r"kv_cache\[0\] has no page, with 3 requests", kv_cache=(zeros(0, 2, 16, 64),) * 2)
        self.refuse("kv_cache has no page, with 3 requests", function=MLA, kv_cache=zeros(0, 32, 320))
        lens = np.array([80, 81, 0], np.int32)
        self.refuse("seq_lens has 81: a row of block_tables, which is a part of a wider one, has 5 pages of 16 tokens",
                    block_tables=zeros(3, 9, **INT)[:, 4:], seq_lens=lens)
        libdecode.trtllm_batch_decode_with_kv_cache(**{**base(), "seq_lens": lens})  # which is cut
        paged = {"actual_seq_lens_kv": np.array([16, 20, 0], np.int32), "block_tables": np.array([[8, 99], [0, 7], [99, 99]], np.int32),
                 "k_cache": zeros(9, 2, 16, 64)}
        for begins, words in (([1, 0, 0], "batch_offsets_k has 1 for request 0: its page 8 then leaves k_cache, which has 18432 elements"),
                              ([0, -1, 0], "batch_offsets_k has -1 for request 1: its page 0 then leaves k_cache"),
                              ([0, 2048 + 12 * 64 + 1, 0], "batch_offsets_k has 2817 for request 1: its page 7 then leaves")):
            self.refuse(words, ValueError, CUDNN, **paged, batch_offsets_k=np.array(begins))
        self.refuse("batch_offsets_v has 1 for request 0: its page 8 then leaves v_cache", ValueError, CUDNN, **paged,
                    batch_offsets_v=np.array([1, 0, 0]))
        libdecode.cudnn_batch_decode_with_kv_cache(**{**OTHERS[CUDNN][0], **paged}, batch_offsets_k=np.array([0, 2048 + 12 * 64, 10**9]))

    def test_mask(self):
        self.refuse(r"mask has shape \(3, 4\): it must be \[tokens, 2", mask=zeros(3, 4, dtype=np.uint16))
        self.refuse(r"mask has shape \(3, 1, 4\): it must be \[batch, q_len", mask=zeros(3, 1, 4, dtype=np.uint16))
        self.refuse("mask is i32: it must be u16", mask=zeros(3, 2, **INT))
        self.refuse("mask has strides .* contiguous", mask=zeros(3, 4, dtype=np.uint16)[:, ::2])

    def test_window(self):
        self.refuse("window_left is -2: it must be -1 or more", window_left=-2)
        for window_left in (2**31 - 1, 2**32 + 5, 2**63 - 1):  # as long as any sequence may be: the same as none
            for function in (TRTLLM, SINGLE, CUDNN):
                fields = recorded(function, {**FUNCTIONS[function][0], "window_left": window_left})
                self.assertEqual((fields["problem", "window_left"], fields["problem", "features"] & abi.FEATURE_WINDOW), (0, 0))
        self.assertEqual(recorded(TRTLLM, {**base(), "window_left": 2**31 - 2})["problem", "window_left"], 2**31 - 2)

    def test_scales(self):
        for name in ("bmm1_scale", "bmm2_scale"):
            self.refuse(f"{name} is 0: ", **{name: 0.0})
            self.refuse(f"{name} is f64: it must be f32", **{name: np.ones(1)})
            self.refuse(rf"{name} has shape \(0, 2\): a scale is the first element", **{name: np.ones((0, 2), np.float32)})
            for shape in ((), (1,), (1, 1), (4,), (2, 2)):  # element 0 is the scale, as in FlashInfer
                scale = np.full(shape, 2.0, np.float32)
                self.assertEqual(recorded(TRTLLM, {**base(), name: scale})["tensors", f"{name}_device"], scale.ctypes.data)
            self.refuse(f"tensors.{name} is inf", **{name: float("inf")})
            self.refuse(f"{name} is a str", TypeError, **{name: "1"})
        self.assertTrue(recorded(TRTLLM, {**base(), "bmm1_scale_log2": np.ones((1, 1), np.float32)})["tensors", "bmm1_scale_log2_device"])
        self.refuse(r"bmm1_scale_log2 has shape \(2,\): it must be one element", bmm1_scale_log2=np.ones(2, np.float32))
        self.refuse("bmm1_scale_log2 is f64", bmm1_scale_log2=np.ones(1))
        self.refuse("o_scale is 0", o_scale=0.0)
        self.refuse("tensors.o_scale is 2 with out_dtype fp16", o_scale=2.0)

    def test_scales_by_their_callers_names(self):
        for name in ("sm_scale", "q_scale", "k_scale", "v_scale"):
            self.refuse(f"^{name} is 0: the library takes", ValueError, SINGLE, **{name: 0.0})
            self.refuse(f"^{name} is 1e-60: no float32 but 0", ValueError, SINGLE, **{name: 1e-60})
            self.refuse(f"^{name} is (a str|'x')", TypeError, SINGLE, **{name: "x"})
        self.refuse(r"^sm_scale \* q_scale \* k_scale is 1.0*1?e-60: no float32", ValueError, SINGLE, q_scale=1e-30, k_scale=1e-30, sm_scale=1.0)
        self.refuse("^scale is 0: the library takes", ValueError, CUDNN, scale=0.0)
        self.refuse("^scale is a str", TypeError, CUDNN, scale="x")
        self.refuse("^v_scale is f64: it must be f32", ValueError, SINGLE, v_scale=np.ones(1))
        fields = recorded(SINGLE, {**OTHERS[SINGLE][0], "sm_scale": 0.5, "q_scale": np.full(1, 2.0, np.float32), "k_scale": np.float32(4)})
        self.assertTrue(fields["tensors", "bmm1_scale_device"])

    def test_sinks(self):
        self.refuse(r"sinks has shape \(7,\): it must be \[num_qo_heads\] = \(8,\)", sinks=zeros(7, dtype=np.float32))
        self.refuse("sinks is fp16: it must be f32", sinks=zeros(8))
        self.refuse("sinks is a list of 2", sinks=[zeros(8, dtype=np.float32)] * 2)
        self.refuse("sinks has strides", sinks=zeros(16, dtype=np.float32)[::2])

    def test_skip_softmax(self):
        self.refuse("problem.skip_softmax_threshold_scale_factor is -1", skip_softmax_threshold_scale_factor=-1.0)

    def test_out(self):
        self.refuse(r"out has shape \(3, 8, 32\): it must be \[tokens, num_qo_heads, head_dim\] = \(3, 8, 64\)", out=zeros(3, 8, 32))
        self.refuse("out is f32", out=zeros(3, 8, 64, dtype=np.float32))
        self.refuse("out is fp16: it must be bf16", out=zeros(3, 8, 64), out_dtype="bf16")
        self.refuse("dtype float12 is not known", out_dtype="float12")
        self.refuse("dtype complex64 is not known", out_dtype=np.complex64)
        for out_dtype in (np.float16, np.dtype(np.float16), "float16", "fp16"):
            self.assertEqual(recorded(TRTLLM, {**base(), "out_dtype": out_dtype})["problem", "out_dtype"], abi.DTYPE_FP16)
            self.assertEqual(libdecode.Problem(query_dtype=out_dtype).query_dtype, abi.DTYPE_FP16)
        self.refuse("out_dtype is f32: accepted are", out_dtype=np.dtype(np.float32))
        self.refuse("out_dtype is e5m2: accepted are bf16, fp16, e4m3, nvfp4", out_dtype="e5m2")
        self.refuse("problem.out_dtype is e4m3 with query_dtype fp16", out_dtype="e4m3")
        read_only = zeros(3, 8, 64)
        read_only.flags.writeable = False
        self.refuse("out is read-only", out=read_only)
        self.refuse("o_sf_scale is 1.0 with a result that is not nvfp4", o_sf_scale=1.0)
        self.refuse("o_sf_vec_size is 16 with a result that is not nvfp4", o_sf_vec_size=16)

    def test_nvfp4_out(self):
        self.refuse("o_sf_scale is None", **FP8, out_dtype="nvfp4")
        self.refuse("o_sf_scale is 0", **FP8, out_dtype="nvfp4", o_sf_scale=0)
        self.refuse("o_sf_vec_size is 32: a block of NVFP4 has 16", **FP8, out_dtype="nvfp4", o_sf_scale=1.0, o_sf_vec_size=32)
        self.refuse("out is a ndarray with out_dtype nvfp4", **FP8, out_dtype="nvfp4", o_sf_scale=1.0, out=zeros(3, 8, 64))
        self.refuse("out_dtype is bf16 with an out of nvfp4", **FP8, out_dtype="bf16", o_sf_scale=1.0, out=fp4())
        self.refuse("problem.out_dtype is nvfp4 with query_dtype fp16", out_dtype="nvfp4", o_sf_scale=1.0)
        wide = libdecode.FP4Tensor(zeros(3, 8, 32, dtype=np.uint8), zeros(128, 64, dtype=np.uint8))
        self.refuse("out.scale has shape .* it must have 32 columns", **FP8, out=wide, o_sf_scale=1.0)
        for words, arguments in (("data is fp16", (zeros(3, 8, 32), zeros(128, 32, dtype=np.uint8))),
                                 ("scale is f32", (fp4().data, zeros(128, 32, dtype=np.float32))),
                                 ("scale has 100 rows", (fp4().data, zeros(100, 32, dtype=np.uint8))),
                                 ("scale_start_index is 126", (fp4().data, fp4().scale, 126)),
                                 ("scale_start_index is -1", (fp4().data, fp4().scale, -1)),
                                 ("original_shape is", (fp4().data, fp4().scale, 0, (3, 8, 32)))):
            with self.assertRaisesRegex(ValueError, words):
                libdecode.FP4Tensor(*arguments)

    def test_lse(self):
        self.refuse(r"lse has shape \(3,\): it must be \[tokens, num_qo_heads\] = \(3, 8\)", lse=zeros(3, dtype=np.float32))
        self.refuse("lse is fp16: it must be f32", lse=zeros(3, 8))

    def test_words_that_have_no_effect(self):
        for name, function, words, right in (
                ("backend", TRTLLM, "'auto', 'trtllm-gen', 'xqa', 'libdecode'", ("xqa",)),
                ("backend", MLA, "'auto', 'trtllm-gen', 'xqa', 'libdecode', 'cute-dsl'", ("cute-dsl",)),
                ("bf16q_fp8kv_transform_mode", TRTLLM, "None, 'k_only', 'separate_kv'", (None, "k_only", "separate_kv")),
                ("cute_dsl_impl", MLA, "'auto', 'monolithic', 'modular'", ("auto", "monolithic", "modular")),
                ("kv_scale_format", MLA, "'auto', 'pow2_fp32', 'arbitrary_fp32'", ("auto", "pow2_fp32", "arbitrary_fp32"))):
            self.refuse(f"^{name} is 'bogus': accepted are {words}$", ValueError, function, **{name: "bogus"})
            for value, text in ((5, "5"), (["auto"], "a list"), (b"auto", "a bytes"), *(() if None in right else ((None, "None"),))):
                self.refuse(f"^{name} is {text}: accepted are {words}$", TypeError, function, **{name: value})
            for word in right:
                recorded(function, {**FUNCTIONS[function][0], name: word})

    def test_cudnn(self):
        def refuse(words, error=NotImplementedError, **changes):
            self.refuse(words, error, CUDNN, **changes)

        refuse(r"actual_seq_lens_kv has shape .3,.: it must be .batch. = .9,.", ValueError, block_tables=None)
        for given in ({}, {"actual_seq_lens_kv": None}, {"block_tables": None, "actual_seq_lens_kv": None}):
            refuse("^max_sequence_kv is -5: it must be 0 or more$", ValueError, max_sequence_kv=-5, **given)
        refuse("kv_capacity_tokens is 81 with rows of the page table of 5 pages of 16 tokens: at most 80", ValueError, actual_seq_lens_kv=None,
               max_sequence_kv=81)
        wide = {"dtype": np.int64}
        refuse("batch_offsets_q is .0, 512, 1025.: .*inside q, which has 1536 elements", ValueError, batch_offsets_q=np.array([0, 512, 1025], **wide))
        refuse("batch_offsets_q is .512, 1024, 1536.: .*inside q, which has 1536 elements", ValueError, batch_offsets_q=np.array([512, 1024, 1536], **wide))
        refuse("batch_offsets_o is .-512, 0, 512.: .*inside out", ValueError, batch_offsets_o=np.array([-512, 0, 512], **wide))
        refuse("batch_offsets_q has shape .2,.: it must be .batch. or .batch . 1. with batch 3", ValueError, batch_offsets_q=np.zeros(2, **wide))
        refuse("batch_offsets_q is f32: it must be i32 or i64", ValueError, batch_offsets_q=np.zeros(3, np.float32))
        refuse("batch_offsets_k has shape .2,.", ValueError, batch_offsets_k=np.zeros(2, **wide))
        refuse("an NVFP4 KV cache", k_cache=zeros(9, 2, 16, 32, dtype=np.uint8))
        refuse(r"q has shape \(3, 8, 2, 64\)", ValueError, q=zeros(3, 8, 2, 64))
        refuse(r"actual_seq_lens_kv has shape \(3, 1\)", ValueError, actual_seq_lens_kv=zeros(3, 1, **INT))
        refuse("scale is 0", ValueError, scale=0.0)


class ProblemTest(unittest.TestCase):
    def test_words(self):
        problem = libdecode.Problem(query_dtype="bf16", kv_dtype="nvfp4", kv_layout="NHD", v_sf_layout="v_interleave4", window_left=0,
                                    features=["sinks", "lse"], logits_soft_cap=30.0)
        self.assertEqual((problem.query_dtype, problem.kv_dtype, problem.kv_layout, problem.v_sf_layout),
                         (abi.DTYPE_BF16, abi.DTYPE_NVFP4, abi.KV_NHD, abi.SF_V_INTERLEAVE4))
        self.assertEqual(problem.features, abi.FEATURE_SINKS | abi.FEATURE_LSE | abi.FEATURE_SOFT_CAP | abi.FEATURE_WINDOW)
        self.assertIn("num_kv_heads=2", repr(libdecode.Problem(num_kv_heads=2)))

    def test_what_is_no_word(self):
        for words, error, fields in (("query_dtype is 'f32'", ValueError, {"query_dtype": "f32"}),
                                     ("features is 'sink'", ValueError, {"features": ["sink"]}),
                                     ("kv_layout is 'hnd'", ValueError, {"kv_layout": "hnd"}),
                                     ("has no field page", TypeError, {"page": 16}),
                                     ("features is None", TypeError, {"features": None})):
            with self.assertRaisesRegex(error, words):
                libdecode.Problem(**fields)

    def test_what_fits_no_field(self):
        kinds = {name: ((-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1))[kind is c_int64] for name, kind in abi.Problem._fields_
                 if kind in (c_int32, c_int64)}
        self.assertGreater(len(kinds), 40)
        for name, (least, most) in kinds.items():
            for value in (least - 1, most + 1, 2**80):
                with self.subTest(name, value=value), self.assertRaisesRegex(ValueError, f"^{name} is {value}: it must be {least} to {most}$"):
                    libdecode.Problem(**{name: value})
                with self.subTest(name, value=value), self.assertRaisesRegex(ValueError, f"^{name} is {value}: "):
                    setattr(libdecode.Problem(), name, value)
            self.assertEqual(getattr(abi.Problem(**{name: most}), name), most)
            self.assertEqual(getattr(libdecode.Problem(**{name: np.int64(1)}), name), 1)
            for value in (None, 100.0):
                with self.subTest(name, value=value), self.assertRaisesRegex(TypeError, rf"^{name} is {value}: it must be an integer"):
                    abi.Problem(**{name: value})
        with self.assertRaisesRegex(TypeError, "^batch_size is 'x': it must be an integer"):
            libdecode.Problem(batch_size="x")
        with self.assertRaisesRegex(TypeError, "^logits_soft_cap is 'x': it must be a number"):
            libdecode.Problem(logits_soft_cap="x")
        with self.assertRaisesRegex(ValueError, "^features is 4294967296: it must be 0 to 4294967295"):
            libdecode.Problem(features=2**32)
        with self.assertRaisesRegex(ValueError, "^out_sf_start_token is 2147483648"):
            abi.Tensors(out_sf_start_token=2**31)
        with self.assertRaisesRegex(ValueError, "^num_tokens is 2147483648"):
            abi.States(num_tokens=2**31)

    def test_what_is_no_problem(self):
        for call in (libdecode.Plan, libdecode.explain, lambda problem: libdecode.reference(problem)):
            for value in ({}, "x", None):
                with self.assertRaisesRegex(TypeError, f"^problem is a {type(value).__name__}: it must be a libdecode.Problem"):
                    call(value)
        with self.assertRaisesRegex(TypeError, "^device is a int: it must be None, a name or"):
            libdecode.Plan(libdecode.Problem(), device=0)


unittest.main()
