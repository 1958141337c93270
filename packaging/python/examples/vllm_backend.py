# SPDX-License-Identifier: Apache-2.0
"""A sketch: libdecode as an attention backend of vLLM (v1). Decoder attention of every request with up to 1024 new tokens.

It follows the interface of vLLM 0.33.0 (vllm/v1/attention/backend.py). libdecode's tests run it against a stub of that; it has never run in vLLM.
Longer prefills, MLA and encoders are left to vLLM's other backends: with this one, --max-num-batched-tokens 1024.
"""

from dataclasses import dataclass

import torch
from vllm import _custom_ops as ops
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadata, AttentionMetadataBuilder,
                                       AttentionType, MultipleOf)

import libdecode

MAX_NEW_TOKENS = 1024  # of a request, that kernels exist for


class LibdecodeBackend(AttentionBackend):
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3"]

    @staticmethod
    def get_name():
        return "LIBDECODE"

    @staticmethod
    def get_impl_cls():
        return LibdecodeImpl

    @staticmethod
    def get_builder_cls():
        return LibdecodeMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(16)]  # copied whole; smaller pages work, row by row

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size % 16 == 0 and head_size <= 512

    @classmethod
    def supports_sink(cls):
        return True

    @classmethod
    def supports_sliding_window(cls):
        return True

    @classmethod
    def supports_compute_capability(cls, capability):
        return (capability.major, capability.minor) in ((9, 0), (10, 0), (10, 3), (12, 0), (12, 1))


@dataclass
class LibdecodeMetadata(AttentionMetadata):
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor


class LibdecodeMetadataBuilder(AttentionMetadataBuilder):
    _cudagraph_support = AttentionCGSupport.ALWAYS  # lengths and tables are read on the device

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        if common.causal is not True:
            raise NotImplementedError("LIBDECODE: only causal attention")
        return LibdecodeMetadata(
            num_actual_tokens=common.num_actual_tokens, max_query_len=common.max_query_len, max_seq_len=common.max_seq_len,
            query_start_loc=common.query_start_loc, seq_lens=common.seq_lens, block_table=common.block_table_tensor,
            slot_mapping=common.slot_mapping)


class LibdecodeImpl(AttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
                 logits_soft_cap=None, attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None, sinks=None):
        if attn_type != AttentionType.DECODER or alibi_slopes is not None or logits_soft_cap:
            # FlashInfer's call has no parameter for the last two; libdecode.Plan does them
            raise NotImplementedError("LIBDECODE: only decoder attention without ALiBi and soft cap")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, scale
        self.num_kv_heads, self.kv_cache_dtype, self.sinks = num_kv_heads or num_heads, kv_cache_dtype, sinks
        self.window_left = -1 if sliding_window is None else sliding_window - 1  # vLLM counts the token itself
        self.shares_kv_cache = kv_sharing_target_layer_name is not None

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        if attn_metadata is None:  # a profiling run
            return output.fill_(0)
        meta, tokens = attn_metadata, attn_metadata.num_actual_tokens
        if meta.max_query_len > MAX_NEW_TOKENS:
            raise NotImplementedError(f"LIBDECODE: {meta.max_query_len} new tokens of a request, at most {MAX_NEW_TOKENS}")
        # [pages, KV heads, tokens of a page, K then V], in whatever order memory has them: the two are strided views
        k_cache, v_cache = kv_cache.split(self.head_size, dim=-1)
        if not self.shares_kv_cache:
            ops.reshape_and_cache_flash(key, value, k_cache.transpose(1, 2), v_cache.transpose(1, 2), meta.slot_mapping,
                                        self.kv_cache_dtype, layer._k_scale, layer._v_scale)
        if self.kv_cache_dtype.startswith("fp8"):
            k_cache, v_cache = k_cache.view(torch.float8_e4m3fn), v_cache.view(torch.float8_e4m3fn)
        many = {} if meta.max_query_len == 1 else {"cum_seq_lens_q": meta.query_start_loc, "max_q_len": meta.max_query_len}
        libdecode.trtllm_batch_decode_with_kv_cache(
            query[:tokens], (k_cache, v_cache), None, meta.block_table, meta.seq_lens, meta.max_seq_len, self.scale * layer._k_scale_float,
            layer._v_scale_float, self.window_left, out=output[:tokens].view(tokens, self.num_heads, self.head_size), sinks=self.sinks,
            kv_layout="HND", **many)
        return output
