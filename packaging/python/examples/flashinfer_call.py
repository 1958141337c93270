# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's call, replaced: where its import stood, ours stands. Two requests of 100 and 37 tokens, with the shape of
Llama-3-8B."""

import torch

from libdecode import trtllm_batch_decode_with_kv_cache  # was: from flashinfer.decode import ...

device = "cuda" if torch.cuda.is_available() else "cpu"
query = torch.randn(2, 32, 128, dtype=torch.bfloat16, device=device)
kv_cache = torch.randn(16, 2, 8, 16, 128, dtype=torch.bfloat16, device=device)  # pages, K and V, heads, tokens of a page, head_dim
block_tables = torch.tensor([[3, 1, 4, 15, 9, 2, 6], [5, 8, 0, 0, 0, 0, 0]], dtype=torch.int32, device=device)
seq_lens = torch.tensor([100, 37], dtype=torch.int32, device=device)
workspace = torch.zeros(1 << 20, dtype=torch.uint8, device=device)
out = trtllm_batch_decode_with_kv_cache(query, kv_cache, workspace, block_tables, seq_lens, max_seq_len=100, bmm1_scale=128**-0.5)
print(tuple(out.shape), out.dtype, out.device)
