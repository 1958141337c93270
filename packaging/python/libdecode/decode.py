# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's four decode functions, by its names, with its parameters in its order and its defaults (those of 0.6.18).

What each parameter becomes is the table in parameters.md, beside this file; a test proves that it has all of them. Parameters
behind the bare `*` that FlashInfer does not have are ours.

Tensors on a GPU: the call enqueues one kernel on the current stream and returns. It may be captured, once the same call was made
outside; then nothing is allocated but results that are None, nothing copied (but lengths on the host, and interleaved scales of V in
NHD), nothing waited for. Tensors on the host: the call computes in float64, slowly, what the kernels are tested against.

Errors: ValueError for what is wrong, NotImplementedError for what libdecode has no kernel for, RuntimeError for the rest; each is
a `LibdecodeError` and names the argument, its value and what is accepted. TypeError for what is of another type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

from libdecode.arrays import View, require_rank, require_shape, view
from libdecode.call import Call, refuse
from libdecode.context import Context
from libdecode.errors import InvalidArgumentError
from libdecode.fp4 import FP4Tensor
from libdecode.indices import require_pages_inside
from libdecode.number import integer
from libdecode.offsets import at_offsets, of_pages
from libdecode.ranks import deal_out
from libdecode.remembered import remembered
from libdecode.scales import product_of
from libdecode.words import require_word
from libdecode.workspace import Workspace

if TYPE_CHECKING:
    import torch

    Tensor = Union[torch.Tensor, Any]  # or whatever else `libdecode.arrays` understands

_CUDNN = "cudnn_batch_decode_with_kv_cache"
_MLA = "trtllm_batch_decode_with_kv_cache_mla"
_BACKENDS = ("auto", "trtllm-gen", "xqa", "libdecode")
_MLA_BACKENDS = (*_BACKENDS, "cute-dsl")


@remembered
def trtllm_batch_decode_with_kv_cache(
    call: Call,
    query: Tensor,
    kv_cache: Union[Tensor, tuple[Tensor, Tensor]],
    workspace_buffer: Union[Workspace, Tensor, None],
    block_tables: Tensor,
    seq_lens: Tensor,
    max_seq_len: int,
    bmm1_scale: Union[float, Tensor] = 1.0,
    bmm2_scale: Union[float, Tensor] = 1.0,
    window_left: int = -1,
    out: Optional[Union[Tensor, FP4Tensor]] = None,
    out_dtype: Optional[Union[torch.dtype, str]] = None,
    o_sf_scale: Optional[float] = None,
    o_sf_vec_size: Optional[int] = None,
    sinks: Optional[Union[Tensor, list[Tensor]]] = None,
    kv_layout: str = "HND",
    enable_pdl: Optional[bool] = None,
    backend: str = "auto",
    q_len_per_req: Optional[int] = 1,
    o_scale: Optional[float] = 1.0,
    mask: Optional[Tensor] = None,
    max_q_len: Optional[int] = None,
    cum_seq_lens_q: Optional[Tensor] = None,
    skip_softmax_threshold_scale_factor: Optional[float] = None,
    kv_cache_sf: Optional[Union[Tensor, tuple[Tensor, Tensor]]] = None,
    uses_shared_paged_kv_idx: bool = True,
    lse: Optional[Tensor] = None,
    return_lse: bool = False,
    bmm1_scale_log2: Optional[Tensor] = None,
    multi_ctas_kv_counter_buffer: Optional[Tensor] = None,
    enable_block_sparse_attention: bool = False,
    bf16q_fp8kv_transform_mode: Optional[str] = None,
    *,
    kv_block_scales: Optional[Union[Tensor, tuple[Tensor, Tensor]]] = None,
    v_sf_layout: Optional[str] = None,
    stream: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """Grouped-query or multi-head attention of new tokens over a paged KV cache.

    query             [tokens, num_qo_heads, head_dim], bf16, fp16 or e4m3; the tokens of request 0 first
    kv_cache          [pages, 2, num_kv_heads, page_size, head_dim], or (K, V) without the axis of 2; with kv_layout "NHD"
                      page_size before num_kv_heads. The query's dtype, e4m3, e5m2, or NVFP4: uint8, two elements a byte
    workspace_buffer  a `Workspace`, else it has no effect: see parameters.md
    block_tables      i32 [batch, pages of the longest]; entries past a request's last page are not read
    seq_lens          i32 [batch]: KV tokens, the new ones included
    max_seq_len       tokens of the longest request; a hint that the choice of kernel needs, and nothing else does
    bmm1_scale        of the logits: q_scale * k_scale * sm_scale. 1 by default, not 1 / sqrt(head_dim)
    bmm2_scale        of the result: v_scale / o_scale
    window_left       tokens before the query's own position that it sees; -1: all
    sinks             f32 [num_qo_heads], natural-log logits that take weight and give nothing
    q_len_per_req     query tokens of each request, the last of its KV tokens; each sees the tokens up to its own position
    mask              instead, among those: u16 [tokens, words], see parameters.md
    lse, return_lse   f32 [tokens, num_qo_heads], log2 of the sum of exp of the logits, sink included

    Returns out, or (out, lse) with return_lse. out is a tensor like the query, of out_dtype, or an FP4Tensor. The formula is that
    of libdecode.h. Raises as this module says.
    """
    del multi_ctas_kv_counter_buffer  # no effect, as the next two
    require_word("backend", backend, *_BACKENDS)
    require_word("bf16q_fp8kv_transform_mode", bf16q_fp8kv_transform_mode, None, "k_only", "separate_kv")
    if kv_cache_sf is not None and kv_block_scales is not None:
        raise InvalidArgumentError("kv_cache_sf and kv_block_scales are both given: they are two names of one thing")
    call.query(query)
    call.kv_cache(kv_cache, kv_layout)
    call.kv_scales(*((kv_block_scales, "kv_block_scales") if kv_cache_sf is None else (kv_cache_sf, "kv_cache_sf")), v_sf_layout)
    call.tables(block_tables, seq_lens, max_seq_len, shared=uses_shared_paged_kv_idx, per_head=enable_block_sparse_attention)
    call.query_tokens(q_len_per_req, max_q_len, cum_seq_lens_q)
    call.window(window_left)
    call.draft_mask(mask)
    if bmm1_scale is not None or bmm1_scale_log2 is None:
        call.scale("bmm1_scale", bmm1_scale)
    call.scale("bmm2_scale", bmm2_scale)
    call.log2_scale(bmm1_scale_log2)
    call.out_scale(o_scale)
    call.sinks(sinks)
    call.skip_softmax(skip_softmax_threshold_scale_factor)
    out = call.out(out, out_dtype, o_sf_scale, o_sf_vec_size)
    lse = call.lse(lse, return_lse)
    call.run(workspace_buffer, enable_pdl, stream, context)
    return (out, lse) if return_lse else out


@remembered
def cudnn_batch_decode_with_kv_cache(
    call: Call,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    scale: float,
    workspace_buffer: Union[Workspace, Tensor, None],
    *,
    max_sequence_kv: int,
    actual_seq_lens_kv: Optional[Tensor] = None,
    block_tables: Optional[Tensor] = None,
    is_cuda_graph_compatible: bool = False,
    batch_offsets_q: Optional[Tensor] = None,
    batch_offsets_o: Optional[Tensor] = None,
    batch_offsets_k: Optional[Tensor] = None,
    batch_offsets_v: Optional[Tensor] = None,
    out: Optional[Tensor] = None,
    q_len_per_req: int = 1,
    window_left: int = -1,
    sinks: Optional[Tensor] = None,
    lse: Optional[Tensor] = None,
    return_lse: bool = False,
    stream: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """The same attention in cuDNN's words, over a KV cache with pages or, without block_tables, of a stretch for each request.

    q                   [tokens, num_qo_heads, head_dim] or [batch, num_qo_heads, 1, head_dim], bf16, fp16 or e4m3
    k_cache, v_cache    [pages, num_kv_heads, page_size, head_dim], of any strides but the last, which is 1; without block_tables
                        [batch, num_kv_heads, tokens, head_dim]
    scale               of the logits
    max_sequence_kv     a hint, as max_seq_len of `trtllm_batch_decode_with_kv_cache`; without block_tables no request is longer
    actual_seq_lens_kv  i32 [batch] or [batch, 1, 1, 1]; None: every request is max_sequence_kv long. On the host beside a q on a GPU
                        they are copied there by the call, which then cannot be captured; pinned, they must stay as they are until
                        the stream has come so far
    batch_offsets_*     i64 [batch] or [batch + 1] on q's device, or i32, on the host: request b begins at that element of the tensor; with
                        block_tables those of k and v are added to where its pages lie. Of q and out multiples of 16 bytes, which on a
                        GPU nobody checks. With offsets on the host that are evenly spaced, from and by such multiples, any kernel serves
    block_tables        i32 [batch, pages of the longest], or with two axes of 1 between
    out                 as q; None: a new one
    lse, return_lse     f32 [tokens, num_qo_heads], base 2

    Returns out, or (out, lse) with return_lse. Raises NotImplementedError for batch_offsets_* on the host that are not evenly spaced, of
    tensors on a GPU; else as this module says.
    """
    del is_cuda_graph_compatible  # every call may be captured whose lengths are not on the host
    seen, lens = view(q, "q"), None
    if actual_seq_lens_kv is not None:
        lens = _without_axes_of_one(view(actual_seq_lens_kv, "actual_seq_lens_kv"), 1, "[batch] or [batch, 1, 1, 1]")
    k, v = view(k_cache, "k_cache"), view(v_cache, "v_cache")
    table = None
    if block_tables is not None:
        table = _without_axes_of_one(view(block_tables, "block_tables"), 2, "[batch, width] or [batch, 1, width, 1]")
    query = _without_axes_of_one(seen, 3, "[tokens, num_qo_heads, head_dim] or [batch, num_qo_heads, 1, head_dim]")
    q_len = max(integer("q_len_per_req", q_len_per_req), 1)
    if integer("max_sequence_kv", max_sequence_kv) < 0:
        raise InvalidArgumentError(f"max_sequence_kv is {max_sequence_kv}: it must be 0 or more")
    # Tensors with offsets may have more rows than there are requests.
    batch = next((counted.shape[0] for counted in (lens, table) if counted is not None), None)
    if batch is None:
        batch = k.shape[0] if batch_offsets_k is None else query.shape[0] // q_len
    keys, values = (of_pages(_CUDNN, seen, offsets, name, batch) if table is not None
                    else at_offsets(_CUDNN, seen, offsets, name, batch, any_element=True)
                    for seen, offsets, name in ((k, batch_offsets_k, "batch_offsets_k"), (v, batch_offsets_v, "batch_offsets_v")))
    if k.dtype == "u8":
        raise refuse(_CUDNN, "an NVFP4 KV cache (there is no parameter for its scales)")
    queries = at_offsets(_CUDNN, query, batch_offsets_q, "batch_offsets_q", batch, q_len)
    if out is None:  # where its rows have places of their own, as many of them as there are of q
        out = call.new(seen, seen.shape if batch_offsets_o is not None else (queries.seen.shape[0], *seen.shape[1:]), seen.dtype, "out")
    call.query(queries.seen)
    call.offsets("query_offsets", queries)
    call.kv_cache((keys.seen, values.seen), "HND")
    call.offsets("k_offsets", keys)
    call.offsets("v_offsets", values)
    if table is None:
        call.requests_for_pages(lens, max_sequence_kv)
    else:
        call.tables(table, lens, max_sequence_kv, shared=True, per_head=False, lens_may_be_on_host=True, length_name="max_sequence_kv")
        for cache, offsets, _ in (keys, values):
            if offsets is not None:
                require_pages_inside(cache, offsets, table, lens, max_sequence_kv)
    call.query_tokens(q_len_per_req, None, None)
    call.window(window_left)
    call.scale("bmm1_scale", scale, "scale")
    call.sinks(sinks)
    result = _without_axes_of_one(view(out, "out"), 3, f"as q, {seen.shape}")
    results = at_offsets(_CUDNN, result, batch_offsets_o, "batch_offsets_o", batch, q_len)
    call.out(results.seen, None, None, None)
    call.offsets("out_offsets", results)
    lse = call.lse(lse, return_lse)
    call.run(workspace_buffer, None, stream, context)
    return (out, lse) if return_lse else out


def _without_axes_of_one(seen: View, rank: int, meaning: str) -> View:
    """cuDNN writes axes that have one step: of four axes those are dropped that are behind the first and before the last that
    counts."""
    if len(seen.shape) == rank:
        return seen
    kept = {3: (0, 1, 3), 2: (0, 2), 1: (0,)}[rank]
    if len(seen.shape) != 4 or any(extent != 1 for axis, extent in enumerate(seen.shape) if axis not in kept):
        raise InvalidArgumentError(f"{seen.name} has shape {seen.shape}: it must be {meaning}")
    return seen._replace(shape=tuple(seen.shape[axis] for axis in kept), strides=tuple(seen.strides[axis] for axis in kept))


@remembered
def trtllm_batch_decode_with_kv_cache_mla(
    call: Call,
    query: Tensor,
    kv_cache: Tensor,
    workspace_buffer: Union[Workspace, Tensor, None],
    qk_nope_head_dim: int,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    block_tables: Tensor,
    seq_lens: Optional[Tensor],
    max_seq_len: int,
    sparse_mla_top_k: int = 0,
    out: Optional[Tensor] = None,
    bmm1_scale: Union[float, Tensor] = 1.0,
    bmm2_scale: Union[float, Tensor] = 1.0,
    sinks: Optional[Union[Tensor, list[Tensor]]] = None,
    skip_softmax_threshold_scale_factor: Optional[float] = None,
    enable_pdl: Optional[bool] = None,
    backend: str = "auto",
    is_var_seq: bool = True,
    uses_shared_paged_kv_idx: bool = True,
    lse: Optional[Tensor] = None,
    return_lse: bool = False,
    cute_dsl_impl: str = "auto",
    kv_scale_format: str = "auto",
    cum_seq_lens_q: Optional[Tensor] = None,
    max_q_len: Optional[int] = None,
    multi_ctas_kv_counter_buffer: Optional[Tensor] = None,
    sparse_mla_top_k_lens: Optional[Tensor] = None,
    enable_dcp: bool = False,
    cp_world: int = 1,
    cp_rank: int = 0,
    causal_seqlens_kv_global: Optional[Tensor] = None,
    use_fp16_softmax: Optional[bool] = None,
    *,
    stream: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """Multi-head latent attention with absorbed weights over a paged cache of one row a token.

    query            [batch, q_len, num_qo_heads, kv_lora_rank + qk_rope_head_dim], or [tokens, num_qo_heads, ...] with
                     cum_seq_lens_q; bf16, fp16 or e4m3. That is 512 + 64 or 256 + 64
    kv_cache         [pages, page_size, kv_lora_rank + qk_rope_head_dim] or with an axis of 1 behind pages; the query's dtype or e4m3.
                     A row is the token's K, its first kv_lora_rank elements are V. With sparse_mla_top_k also uint8 rows of 656
                     bytes (512 e4m3, 4 float32 scales, 64 bf16) or 352 (512 e2m1, 64 e4m3, 32 e4m3 scales)
    workspace_buffer a `Workspace`, else it has no effect: see parameters.md
    block_tables     i32 [batch, pages of the longest]; with sparse_mla_top_k the token ids, i32 [batch, q_len, sparse_mla_top_k] or
                     [tokens, sparse_mla_top_k]: page * page_size + token of the page, ids that name none count as not there
    seq_lens         i32 [batch]: KV tokens, the new ones included; with sparse_mla_top_k it may be None
    sparse_mla_top_k 0: all tokens; else of each query token the first min(top_k, tokens that it may see) of its ids, or as many as
                     sparse_mla_top_k_lens says, i32 [tokens]; all without seq_lens and those. kv_lora_rank 512 with qk_rope_head_dim 0 is then accepted, too
    max_seq_len      a hint, as of `trtllm_batch_decode_with_kv_cache`
    out              like the query, with kv_lora_rank elements; None: a new one, bf16 for an e4m3 query
    bmm1_scale       of the logits; usually 1 / sqrt(qk_nope_head_dim + qk_rope_head_dim)
    sinks            f32 [num_qo_heads]
    lse, return_lse  f32 [tokens, num_qo_heads], base 2; a caller's may have the query's shape without its last axis
    max_q_len        query tokens of the longest request, with cum_seq_lens_q; None: found on the host, taken for those of all on a GPU

    enable_dcp       the KV tokens of each request are dealt out over cp_world ranks: this one, cp_rank, has global tokens cp_rank,
                     cp_rank + cp_world, ..., seq_lens of them. Of each request causal_seqlens_kv_global, i32 [batch], says how many
                     there are on all ranks, the new ones included. `merge_states` makes one result of those of all ranks, and
                     their lse

    Returns out, or (out, lse) with return_lse. Raises as this module says.
    """
    del qk_nope_head_dim, is_var_seq, multi_ctas_kv_counter_buffer, use_fp16_softmax  # no effect, as the next three
    require_word("backend", backend, *_MLA_BACKENDS)
    require_word("cute_dsl_impl", cute_dsl_impl, "auto", "monolithic", "modular")
    require_word("kv_scale_format", kv_scale_format, "auto", "pow2_fp32", "arbitrary_fp32")
    if enable_dcp and sparse_mla_top_k:
        raise refuse(_MLA, "enable_dcp with sparse_mla_top_k")
    if enable_dcp and cum_seq_lens_q is not None:
        raise InvalidArgumentError("cum_seq_lens_q is given with enable_dcp: every request has as many query tokens there")
    if enable_dcp and not return_lse:
        raise InvalidArgumentError("return_lse is False with enable_dcp: what ranks have computed is merged by their lse")
    kv_lora_rank, qk_rope_head_dim = integer("kv_lora_rank", kv_lora_rank), integer("qk_rope_head_dim", qk_rope_head_dim)
    sparse_mla_top_k = integer("sparse_mla_top_k", sparse_mla_top_k)
    if sparse_mla_top_k < 0:
        raise InvalidArgumentError(f"sparse_mla_top_k is {sparse_mla_top_k}: it must be 0 (all tokens) or more")
    if sparse_mla_top_k_lens is not None and sparse_mla_top_k == 0:
        raise InvalidArgumentError("sparse_mla_top_k_lens is given with sparse_mla_top_k 0: leave it None, or say how many ids there are")
    if seq_lens is None and sparse_mla_top_k == 0:
        raise InvalidArgumentError("seq_lens is None: it must be i32 [batch]")
    whole, table = view(query, "query"), view(block_tables, "block_tables")
    q_len = None
    if cum_seq_lens_q is None:
        require_rank(whole, 4, "[batch, q_len, num_qo_heads, head_dim], or of three axes with cum_seq_lens_q")
        q_len = whole.shape[1]
        if max_q_len is not None:
            raise InvalidArgumentError(f"max_q_len is {max_q_len} without cum_seq_lens_q: leave it None")
    if whole.shape[-1] != kv_lora_rank + qk_rope_head_dim:
        raise InvalidArgumentError(f"query has head_dim {whole.shape[-1]}: it must be kv_lora_rank + qk_rope_head_dim = "
                                   f"{kv_lora_rank + qk_rope_head_dim}")
    if not uses_shared_paged_kv_idx and sparse_mla_top_k == 0:  # V lies in K's rows: its ids have nothing to say
        require_rank(table, 3, "[batch, 2, width]")
        table = table._replace(shape=(table.shape[0], table.shape[2]), strides=(table.strides[0], table.strides[2]))
    call.query(_tokens_together(whole))
    call.latent_cache(kv_cache, kv_lora_rank, sparse_mla_top_k > 0)
    if sparse_mla_top_k > 0:
        batch = whole.shape[0] if cum_seq_lens_q is None else view(cum_seq_lens_q, "cum_seq_lens_q").shape[0] - 1
        call.token_ids(_tokens_together(table, rank=2), sparse_mla_top_k, sparse_mla_top_k_lens, seq_lens, max_seq_len, batch)
    else:
        call.tables(table, seq_lens, max_seq_len, shared=True, per_head=False)
    call.query_tokens(q_len, max_q_len, cum_seq_lens_q, finds_most=True)
    if seq_lens is None and sparse_mla_top_k_lens is None:
        call.all_token_ids()
    deal_out(call, enable_dcp, cp_world, cp_rank, causal_seqlens_kv_global)
    call.scale("bmm1_scale", bmm1_scale)
    call.scale("bmm2_scale", bmm2_scale)
    call.sinks(sinks)
    call.skip_softmax(skip_softmax_threshold_scale_factor)
    if out is None:
        dtype = "bf16" if whole.dtype == "e4m3" else whole.dtype
        out = call.new(whole, (*whole.shape[:-1], kv_lora_rank), dtype, "out")
        call.out(_tokens_together(view(out, "out")._replace(dtype=dtype)), dtype, None, None)
    else:
        call.out(_tokens_together(view(out, "out")), None, None, None)
    if lse is None and return_lse:
        lse = call.new(whole, (call.num_tokens, whole.shape[-2]), "f32", "lse")
    if lse is not None:
        seen = view(lse, "lse")
        call.lse(_tokens_together(seen, rank=2) if len(seen.shape) == 3 else seen, True)
    call.run(workspace_buffer, enable_pdl, stream, context)
    return (out, lse) if return_lse else out


def _tokens_together(seen: View, rank: int = 3) -> View:
    """[batch, q_len, ...] as [tokens, ...]; what has `rank` axes already stays as it is."""
    if len(seen.shape) == rank:
        return seen
    require_rank(seen, rank + 1, "[batch, q_len, ...]")
    batch, q_len = seen.shape[:2]
    token = seen.strides[0] if q_len == 1 else seen.strides[1]
    if batch > 1 and q_len > 1 and seen.strides[0] != q_len * token:
        raise InvalidArgumentError(f"{seen.name} has strides {seen.strides} with shape {seen.shape}: those of a request must be q_len "
                                   "times those of a query token")
    return seen._replace(shape=(batch * q_len, *seen.shape[2:]), strides=(token, *seen.strides[2:]))


@remembered
def single_decode_with_kv_cache(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: Optional[float] = None,
    k_scale: Optional[float] = None,
    v_scale: Optional[float] = None,
    window_left: int = -1,
    logits_soft_cap: Optional[float] = None,
    sm_scale: Optional[float] = None,
    rope_scale: Optional[float] = None,
    rope_theta: Optional[float] = None,
    return_lse: bool = False,
    *,
    out: Optional[Tensor] = None,
    kv_cache_sf: Optional[tuple[Tensor, Tensor]] = None,
    v_sf_layout: Optional[str] = None,
    workspace_buffer: Union[Workspace, Tensor, None] = None,
    stream: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """One query token of one request over a contiguous KV cache, all of whose tokens it sees.

    q                    [num_qo_heads, head_dim], bf16, fp16 or e4m3
    k, v                 [tokens, num_kv_heads, head_dim], or with kv_layout "HND" [num_kv_heads, tokens, head_dim]; q's dtype,
                         e4m3, e5m2, or NVFP4: uint8, two elements a byte
    pos_encoding_mode    "NONE"; "ROPE_LLAMA": q and k are given unrotated; "ALIBI": to the logit of the token at position j is
                         added slope * (j - the query's position), the slopes a geometric series of the heads
    use_tensor_cores     no effect: every kernel does, with groups of any size
    q_scale, k_scale     multiply sm_scale, whose default is 1 / sqrt(head_dim)
    v_scale              multiplies the result, which is rounded once
    window_left          -1: no window
    logits_soft_cap      None, or not more than 0: none
    return_lse           also f32 [num_qo_heads], base 2; with "ALIBI" of logits to which slope * j was added
    out                  as q; None: a new one
    kv_cache_sf          with NVFP4: the scales of K and V, e4m3, as k and v with head_dim / 16; v_sf_layout as of
                         `trtllm_batch_decode_with_kv_cache`

    Returns out, or (out, lse). Raises as this module says.
    """
    del use_tensor_cores
    seen, k_seen, v_seen = view(q, "q"), view(k, "k"), view(v, "v")
    if len(seen.shape) != 2:
        raise InvalidArgumentError(f"q has shape {seen.shape}: it must be [num_qo_heads, head_dim]")
    if out is None:
        out = call.new(seen, seen.shape, seen.dtype, "out")
    result = view(out, "out")
    require_shape(result, seen.shape, "[num_qo_heads, head_dim]")
    call.query(_one_token(seen))
    call.contiguous_kv(k_seen, v_seen, kv_layout, kv_cache_sf, v_sf_layout)
    call.query_tokens(1, None, None)
    call.window(window_left)
    call.soft_cap(logits_soft_cap)
    call.positions(pos_encoding_mode, rope_scale, rope_theta)
    call.scale("bmm1_scale", product_of({"sm_scale": seen.shape[1] ** -0.5 if sm_scale is None else sm_scale, "q_scale": q_scale,
                                         "k_scale": k_scale}), "sm_scale * q_scale * k_scale")
    call.scale("bmm2_scale", 1.0 if v_scale is None else v_scale, "v_scale")
    call.out(_one_token(result), None, None, None)
    lse = None
    if return_lse:
        lse = call.new(seen, seen.shape[:1], "f32", "lse")
        call.lse(_one_token(view(lse, "lse")), True)
    call.run(workspace_buffer, None, stream, context)
    return (out, lse) if return_lse else out


def _one_token(seen: View) -> View:
    """An axis of one query token before the others."""
    return seen._replace(shape=(1, *seen.shape), strides=(0, *seen.strides))
