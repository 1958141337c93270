# SPDX-License-Identifier: Apache-2.0
"""The four signatures against FlashInfer's, and parameters.md against both: every parameter has a row, every field in it is
one."""

import inspect
import pathlib
import re
import unittest

import libdecode
from libdecode import abi

TABLES = (pathlib.Path(libdecode.__file__).parent / "parameters.md").read_text(encoding="utf-8")
REQUIRED = inspect.Parameter.empty

# What a caller of FlashInfer 0.6.18 may rely on: names, their order, defaults. Behind "*": by name alone.
FLASHINFER = {
    "trtllm_batch_decode_with_kv_cache":
        "query kv_cache workspace_buffer block_tables seq_lens max_seq_len bmm1_scale=1.0 bmm2_scale=1.0 window_left=-1 out=None "
        "out_dtype=None o_sf_scale=None o_sf_vec_size=None sinks=None kv_layout='HND' enable_pdl=None backend='auto' q_len_per_req=1 "
        "o_scale=1.0 mask=None max_q_len=None cum_seq_lens_q=None skip_softmax_threshold_scale_factor=None kv_cache_sf=None "
        "uses_shared_paged_kv_idx=True lse=None return_lse=False bmm1_scale_log2=None multi_ctas_kv_counter_buffer=None "
        "enable_block_sparse_attention=False bf16q_fp8kv_transform_mode=None",
    "trtllm_batch_decode_with_kv_cache_mla":
        "query kv_cache workspace_buffer qk_nope_head_dim kv_lora_rank qk_rope_head_dim block_tables seq_lens max_seq_len "
        "sparse_mla_top_k=0 out=None bmm1_scale=1.0 bmm2_scale=1.0 sinks=None skip_softmax_threshold_scale_factor=None enable_pdl=None "
        "backend='auto' is_var_seq=True uses_shared_paged_kv_idx=True lse=None return_lse=False cute_dsl_impl='auto' "
        "kv_scale_format='auto' cum_seq_lens_q=None max_q_len=None multi_ctas_kv_counter_buffer=None sparse_mla_top_k_lens=None "
        "enable_dcp=False cp_world=1 cp_rank=0 causal_seqlens_kv_global=None use_fp16_softmax=None",
    "cudnn_batch_decode_with_kv_cache":
        "q k_cache v_cache scale workspace_buffer * max_sequence_kv actual_seq_lens_kv=None block_tables=None "
        "is_cuda_graph_compatible=False batch_offsets_q=None batch_offsets_o=None batch_offsets_k=None batch_offsets_v=None out=None",
    "single_decode_with_kv_cache":
        "q k v kv_layout='NHD' pos_encoding_mode='NONE' use_tensor_cores=False q_scale=None k_scale=None v_scale=None window_left=-1 "
        "logits_soft_cap=None sm_scale=None rope_scale=None rope_theta=None return_lse=False",
}


def parameters(function):
    return inspect.signature(getattr(libdecode, function)).parameters


def rows(function):
    """{parameter: (kind, text)} of a function's table."""
    section = re.search(rf"^## {function}$(.*?)(?=^## |\Z)", TABLES, re.MULTILINE | re.DOTALL)[1]
    found = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| ?(.*?) ?\|$", section, re.MULTILINE)
    return [name for name, _, _ in found], {name: (kind, text) for name, kind, text in found}


class ParametersTest(unittest.TestCase):
    def test_flashinfers_parameters_come_first_in_its_order(self):
        for function, text in FLASHINFER.items():
            positional, _, by_name = text.partition(" * ")
            words = positional.split() + by_name.split()
            ours = list(parameters(function).values())[: len(words)]
            said = [parameter.name if parameter.default is REQUIRED else f"{parameter.name}={parameter.default!r}" for parameter in ours]
            self.assertEqual(said, words, function)
            count = len(positional.split())
            self.assertEqual({parameter.kind for parameter in ours[:count]}, {inspect.Parameter.POSITIONAL_OR_KEYWORD}, function)
            rest = list(parameters(function).values())[count:]
            self.assertLessEqual({parameter.kind for parameter in rest}, {inspect.Parameter.KEYWORD_ONLY}, function)

    def test_every_parameter_has_a_row_and_every_row_a_parameter(self):
        for function in FLASHINFER:
            self.assertEqual(rows(function)[0], list(parameters(function)), function)

    def test_every_function_has_a_table(self):
        self.assertEqual(re.findall(r"^## (\w+)$", TABLES, re.MULTILINE), list(FLASHINFER))

    def test_kinds_are_those_that_are_explained(self):
        explained = set(re.findall(r"^\* \*\*([\w ]+)\*\*:", TABLES, re.MULTILINE))
        kinds = {kind for function in FLASHINFER for kind, _ in rows(function)[1].values()}
        self.assertEqual(kinds, explained)

    def test_every_field_that_is_named_is_there(self):
        structs = {"problem": abi.Problem, "tensors": abi.Tensors}
        for function in FLASHINFER:
            for name, (kind, text) in rows(function)[1].items():
                fields = re.findall(r"`(problem|tensors)\.(\w+)`", text)
                self.assertEqual(kind == "field", bool(fields) and kind != "choice", f"{function}: {name}")
                for struct, field in fields:
                    self.assertIn(field, [known for known, _ in structs[struct]._fields_], f"{function}: {name}")

    def test_fields_are_named_with_their_struct(self):
        sizes = {"num_qo_heads", "num_kv_heads", "head_dim", "page_size", "q_len"}  # of shapes
        fields = {name for struct in (abi.Problem, abi.Tensors) for name, _ in struct._fields_ if "_" in name} - sizes
        for function in FLASHINFER:
            for name, (_, text) in rows(function)[1].items():
                bare = set(re.findall(r"(?<![\w.])\w+", text)) & fields
                with self.subTest(function=function, parameter=name):
                    self.assertEqual(bare - set().union(*map(parameters, FLASHINFER)), set())

    def test_every_feature_that_is_named_is_there(self):
        named = set(re.findall(r"LIBDECODE_(FEATURE_\w+)", TABLES))
        self.assertTrue(named)
        self.assertEqual({name for name in named if not hasattr(abi, name)}, set())

    def test_what_has_no_effect_is_in_no_word_of_the_body(self):
        for function in FLASHINFER:
            body = inspect.getsource(getattr(libdecode, function)).partition('"""')[2].rpartition('"""')[2]
            for name, (kind, _) in rows(function)[1].items():
                looked_at = ("backend", "o_sf_vec_size", "cute_dsl_impl", "kv_scale_format", "bf16q_fp8kv_transform_mode")
                if kind == "no effect" and name not in looked_at:  # for words that are none
                    self.assertEqual(re.findall(rf"del .*\b{name}\b", body) != [], True, name)
                    self.assertEqual(len(re.findall(rf"\b{name}\b", body)), 1, name)


unittest.main()
