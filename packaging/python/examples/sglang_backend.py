# SPDX-License-Identifier: Apache-2.0
"""A sketch: libdecode for the decode step of SGLang; every other step goes to the backend that it is given.

It was written against SGLang's interface of 2026 and is run in libdecode's tests against a stub of that alone, never in SGLang.
SGLang's pool has one token a page, so its table of token ids is the page table.
"""

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

import libdecode


class LibdecodeAttnBackend(AttentionBackend):
    def __init__(self, model_runner, prefill_backend):
        super().__init__()
        self.prefill_backend = prefill_backend
        self.device = model_runner.device
        self.max_context_len = model_runner.model_config.context_len
        self.req_to_token = model_runner.req_to_token_pool.req_to_token

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
        pool = forward_batch.token_to_kv_pool
        if save_kv_cache:
            pool.set_kv_buffer(layer, forward_batch.out_cache_loc, k, v)
        query = q.view(-1, layer.tp_q_head_num, layer.head_dim)
        # [tokens, heads, head_dim] is a pool of pages of one token
        k_cache, v_cache = (buffer[:, None] for buffer in (pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)))
        window = layer.sliding_window_size
        out = libdecode.trtllm_batch_decode_with_kv_cache(
            query, (k_cache, v_cache), None, self.page_table, self.seq_lens, self.max_context_len, layer.scaling,
            window_left=-1 if window is None else window, sinks=sinks, kv_layout="NHD")
        return out.view(-1, layer.tp_q_head_num * layer.head_dim)
