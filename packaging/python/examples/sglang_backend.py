# SPDX-License-Identifier: Apache-2.0
"""A sketch: libdecode for the decode step of SGLang; every other step goes to the backend that it is given.

It follows the interface of SGLang 0.5.23 (sglang/srt/layers/attention/base_attn_backend.py). libdecode's tests run it against a stub of that; it has
never run in SGLang. SGLang's pool has one token a page, so its table of token ids is the page table. Pools that translate these ids for layers with
sliding windows are refused.
"""

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

import libdecode


class LibdecodeAttnBackend(AttentionBackend):
    def __init__(self, model_runner, prefill_backend):
        super().__init__()
        self.prefill_backend = prefill_backend
        self.device = model_runner.device
        self.max_context_len = model_runner.model_config.context_len
        self.req_to_token = model_runner.req_to_token_pool.req_to_token
        self.pool = model_runner.token_to_kv_pool
        if isinstance(self.pool, SWAKVPool):
            raise NotImplementedError("libdecode: a KV pool for sliding windows")

    def init_forward_metadata(self, forward_batch):
        if not forward_batch.forward_mode.is_decode():
            return self.prefill_backend.init_forward_metadata(forward_batch)
        # Once a step, for all layers. The whole width: how long requests are is known on the device alone.
        self.page_table = self.req_to_token[forward_batch.req_pool_indices]
        self.seq_lens = forward_batch.seq_lens.to(torch.int32)
        return None

    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        self.graph_page_table = torch.zeros(max_bs, self.max_context_len, dtype=torch.int32, device=self.device)
        self.graph_seq_lens = torch.ones(max_bs, dtype=torch.int32, device=self.device)

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        # Before a capture, and before every replay. The graph has the addresses of these: new values go where they are.
        if not forward_batch.forward_mode.is_decode() or forward_batch.spec_info is not None:
            raise NotImplementedError("libdecode: only plain decode steps are captured")
        size = forward_batch.batch_size
        self.page_table, self.seq_lens = self.graph_page_table[:size], self.graph_seq_lens[:size]
        table = self.req_to_token[forward_batch.req_pool_indices[:size]]
        self.page_table[:, : table.shape[1]].copy_(table)
        self.seq_lens.copy_(forward_batch.seq_lens[:size])

    def init_forward_metadata_in_graph(self, forward_batch):
        pass

    def get_cuda_graph_seq_len_fill_value(self):
        return 1

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        return self.prefill_backend.forward_extend(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None, **kwargs):
        if layer.logit_cap or kwargs:
            # FlashInfer's call has no parameter for the first; libdecode.Plan does it
            raise NotImplementedError(f"libdecode: a layer with logit_cap {layer.logit_cap}, and {', '.join(kwargs) or 'nothing else'}")
        if save_kv_cache:
            self.pool.set_kv_buffer(layer, KVWriteLoc.for_batch(forward_batch), k, v, layer.k_scale, layer.v_scale)
        query = q.view(-1, layer.tp_q_head_num, layer.head_dim)
        # [tokens, heads, head_dim] is a pool of pages of one token
        k_cache, v_cache = (get_buffer(layer.layer_id)[:, None] for get_buffer in (self.pool.get_key_buffer, self.pool.get_value_buffer))
        k_scale, v_scale = (1.0 if scale is None else scale for scale in (layer.k_scale_float, layer.v_scale_float))
        out = libdecode.trtllm_batch_decode_with_kv_cache(
            query, (k_cache, v_cache), None, self.page_table, self.seq_lens, self.max_context_len, layer.scaling * k_scale,
            v_scale, window_left=layer.sliding_window_size, sinks=sinks, kv_layout="NHD")
        return out.view(-1, layer.tp_q_head_num * layer.head_dim)
