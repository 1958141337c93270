# SPDX-License-Identifier: Apache-2.0
"""One call in FlashInfer's words: its arguments in; a problem and tensors of libdecode_problem.h out, then the launch or the reference.

Each method takes what belongs together, checks what only Python can see (types, ranks, strides, devices), and sets the fields of
the two structs. What the library checks is left to it, so that an error has one wording.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, byref, c_float
from numbers import Real
from typing import Any, NamedTuple

from libdecode import abi, alibi, driver
from libdecode.arrays import (HOST, TypedArray, View, address_of, dtype_name, empty_like, is_torch, require_contiguous,
                              require_dense_rows, require_device, require_dtype, require_rank, require_shape, require_writable, view)
from libdecode.caches import ROW_STEP, SCALES_STEP, batch_of_one, page_axes, page_strides, pair
from libdecode.context import Context, default_context
from libdecode.errors import InternalError, InvalidArgumentError, NoDeviceError, UnsupportedError, WorkspaceTooSmallError
from libdecode.fp4 import FP4Tensor, is_fp4
from libdecode.indices import require_bounds, require_lengths_in_rows
from libdecode.library import library
from libdecode.number import MOST_I32, integer, real
from libdecode.offsets import Placed
from libdecode.problem import DTYPES, KV_LAYOUTS, SF_LAYOUTS, choice
from libdecode.scales import first_float, heads_together
from libdecode.workspace import Place, Workspace, pool

_ROW_DTYPES = ("bf16", "fp16", "e4m3")  # of queries, and of results that have no scales
# Of a row of bytes of sparse MLA: its format, what the library calls its dtype (None: the tensor's), elements that strides count a byte.
_LATENT_ROWS: dict[int | None, tuple[int, str | None, int]] = {
    None: (abi.KV_ROW_PLAIN, None, 1), 656: (abi.KV_ROW_FP8_SCALED_656, "e4m3", 1), 352: (abi.KV_ROW_NVFP4_352, "nvfp4", 2)}
_INTERLEAVING_GPUS = (100, 103)  # where FlashInfer's quantiser interleaves the scales of V


class Launch(NamedTuple):
    """Where a call went, in the words of its caller."""

    ordinal: int  # of the GPU
    stream: int | None
    workspace: Workspace | None
    context: Context | None


class Call:
    """One decode; the methods are called in the order in which they stand, `query` first, `run` last."""

    def __init__(self) -> None:
        self.problem, self.tensors = abi.Problem(), abi.Tensors()
        self.views: list[View] = []
        # For `remembered`: which tensor each pointer is of, what was allocated here, and where it went.
        self.pointers: dict[str, View] = {}
        self.made: list[Any] = []
        self.has_copy = False  # of a tensor, by the current stream
        self.length_is_hint = False  # max_seq_len: results do not depend on it
        self.launch: Launch | None = None

    def _see(self, array: Any, name: str) -> View:
        seen = view(array, name)
        self.views.append(seen)
        return seen

    def _point(self, field: str, seen: View) -> None:
        """A pointer of the tensors."""
        setattr(self.tensors, field, seen.address)
        self.pointers[field] = seen

    def vector(self, field: str, array: Any, name: str, dtype: str, meaning: str, length: int) -> None:
        """A pointer to a contiguous vector."""
        seen = self._see(array, name)
        require_dtype(seen, dtype)
        require_shape(seen, (length,), meaning)
        require_contiguous(seen)
        self._point(field, seen)

    def new(self, like: View, shape: tuple[int, ...], dtype: str, name: str) -> Any:
        """A tensor for a result that the caller gives no memory for."""
        made = empty_like(like, shape, dtype, name)
        self.made.append(made)
        return made

    # ------------------------------------------------------------------------------------------------------------ what

    def query(self, query: Any) -> None:
        """[tokens, num_qo_heads, head_dim]."""
        seen = self._see(query, "query")
        require_dtype(seen, *_ROW_DTYPES)
        require_rank(seen, 3, "[tokens, num_qo_heads, head_dim]")
        require_dense_rows(seen)
        problem = self.problem
        self.query_view = seen
        self.num_tokens, problem.num_qo_heads, problem.head_dim = seen.shape
        problem.query_dtype, problem.out_dtype = DTYPES[seen.dtype], DTYPES[seen.dtype]
        problem.query_token_stride, problem.query_head_stride = seen.stride(0), seen.stride(1)
        self._point("query", seen)

    def offsets(self, field: str, placed: Placed) -> None:
        """Of a tensor whose requests have places of their own, or that begins where only kernels that know such places let it."""
        if placed.offsets is not None or placed.is_odd:
            self.problem.features |= abi.FEATURE_QUERY_OFFSETS if field in ("query_offsets", "out_offsets") else abi.FEATURE_KV_OFFSETS
        if placed.offsets is not None:
            self.views.append(placed.offsets)
            self._point(field, placed.offsets)

    def kv_cache(self, kv_cache: Any, kv_layout: str) -> None:
        """One tensor [pages, 2, ...] or [pages, 1, ...] (K and V the same), or the pair (K, V). A page is [num_kv_heads,
        page_size, head_dim], or with NHD [page_size, num_kv_heads, head_dim]."""
        problem = self.problem
        problem.kv_layout, self.kv_layout = choice("kv_layout", kv_layout, KV_LAYOUTS), kv_layout
        k, v = (seen._replace(dtype="nvfp4") if seen.dtype == "u8" else seen for seen in pair(kv_cache, "kv_cache", self._see))
        for seen in (k, v):
            require_dtype(seen, "bf16", "fp16", "e4m3", "e5m2", "nvfp4")
            require_rank(seen, 4, page_axes(self.kv_layout, "head_dim"))
            require_dense_rows(seen)
        require_dtype(v, k.dtype)
        require_shape(v, k.shape, "as K's")
        per_element, step = (2, ROW_STEP) if k.dtype == "nvfp4" else (1, 1)
        if k.shape[3] * per_element != problem.head_dim:
            raise InvalidArgumentError(f"{k.name} has head_dim {k.shape[3] * per_element}, {self.query_view.name} "
                                       f"{problem.head_dim}: they must be equal")
        head, token = (1, 2) if self.kv_layout == "HND" else (2, 1)
        problem.kv_dtype = DTYPES[k.dtype]
        problem.num_pages, problem.num_kv_heads, problem.page_size = k.shape[0], k.shape[head], k.shape[token]
        problem.k_page_stride, problem.k_head_stride, problem.k_token_stride = page_strides(k, head, token, per_element, step)
        problem.v_page_stride, problem.v_head_stride, problem.v_token_stride = page_strides(v, head, token, per_element, step)
        self._point("k_cache", k)
        self._point("v_cache", v)
        self.k_view = k

    def latent_cache(self, kv_cache: Any, kv_lora_rank: int, sparse: bool = False) -> None:
        """Of MLA: [pages, page_size, head_dim] or [pages, 1, page_size, head_dim]; the first kv_lora_rank elements of a row are
        its V. Where it is sparse, rows may be 656 or 352 bytes (uint8)."""
        problem, seen = self.problem, self._see(kv_cache, "kv_cache")
        row_format, dtype, per_element = _LATENT_ROWS[None]
        if sparse and seen.dtype == "u8":
            if seen.shape[-1] not in _LATENT_ROWS:
                raise InvalidArgumentError(f"kv_cache has rows of {seen.shape[-1]} bytes: accepted are 656 and 352, or rows of a dtype")
            row_format, dtype, per_element = _LATENT_ROWS[seen.shape[-1]]
        else:
            require_dtype(seen, *_ROW_DTYPES)
        if len(seen.shape) == 4 and seen.shape[1] == 1:
            seen = seen._replace(shape=(seen.shape[0], *seen.shape[2:]), strides=(seen.strides[0], *seen.strides[2:]))
        require_rank(seen, 3, "[pages, page_size, head_dim] or [pages, 1, page_size, head_dim]")
        require_dense_rows(seen)
        if dtype is None and seen.shape[2] != problem.head_dim:
            raise InvalidArgumentError(f"kv_cache has head_dim {seen.shape[2]}, query {problem.head_dim}: they must be equal")
        problem.op, problem.num_kv_heads, problem.v_head_dim = abi.OP_MLA_DECODE, 1, kv_lora_rank
        problem.kv_dtype, problem.num_pages, problem.page_size = DTYPES[dtype or seen.dtype], seen.shape[0], seen.shape[1]
        problem.k_page_stride, problem.k_token_stride = seen.stride(0) * per_element, seen.stride(1) * per_element
        problem.kv_row_format = row_format
        self._point("k_cache", seen)

    def token_ids(self, ids: View, top_k: int, top_k_lens: Any, seq_lens: Any, max_seq_len: int, batch: int) -> None:
        """Of sparse MLA: i32 [tokens, top_k], each page * page_size + token; top_k_lens i32 [tokens] or None: as many as the query
        token sees of seq_lens i32 [batch], and without them, see `all_token_ids`, all."""
        problem = self.problem
        require_dtype(ids, "i32")
        require_shape(ids, (self.num_tokens, top_k), "[tokens, sparse_mla_top_k]")
        require_dense_rows(ids)
        problem.sparse_top_k, problem.sparse_token_ids_stride = top_k, ids.stride(0)
        problem.batch_size, problem.max_seq_len, self.length_is_hint = batch, integer("max_seq_len", max_seq_len), True
        self.views.append(ids)
        self._point("sparse_token_ids", ids)
        if top_k_lens is not None:
            problem.features |= abi.FEATURE_SPARSE_TOP_K_LENS
            self.vector("sparse_top_k_lens", top_k_lens, "sparse_mla_top_k_lens", "i32", "[tokens]", self.num_tokens)
        if seq_lens is not None:
            lens = self._see(seq_lens, "seq_lens")
            require_dtype(lens, "i32")
            require_shape(lens, (batch,), "[batch]")
            problem.seq_lens_request_stride = lens.stride(0)
            self._point("seq_lens", lens)

    def all_token_ids(self) -> None:
        """Count, of each query token: requests are so long that the first query token sees as many tokens as it has ids."""
        self.problem.kv_capacity_tokens = self.problem.sparse_top_k + self.problem.q_len - 1

    def kv_scales(self, kv_cache_sf: Any, name: str, v_sf_layout: str | None) -> None:
        """Of NVFP4 KV: (scales of K, scales of V), each e4m3 [pages, num_kv_heads, page_size, head_dim / 16] or as NHD, or both
        in one [pages, 2, ...]. V's interleaved ones of NHD are copied, as `heads_together` says."""
        problem = self.problem
        if problem.kv_dtype != abi.DTYPE_NVFP4:
            if kv_cache_sf is not None:
                raise InvalidArgumentError(f"{name} is given with a KV cache of {self.k_view.dtype}: only NVFP4 has it")
            if v_sf_layout is not None:
                raise InvalidArgumentError(f"v_sf_layout is given with a KV cache of {self.k_view.dtype}: only NVFP4 has it")
            return
        if kv_cache_sf is None:
            raise InvalidArgumentError(f"{name} is None with an NVFP4 KV cache (uint8): give the scales of K and V")
        if v_sf_layout is None:
            ordinal = self.k_view.device[1] if self.k_view.device[0] == "cuda" else None
            interleaves = ordinal is not None and driver.compute_capability(ordinal) in _INTERLEAVING_GPUS
            v_sf_layout = "v_interleave4" if interleaves else "linear"
        problem.v_sf_layout = choice("v_sf_layout", v_sf_layout, SF_LAYOUTS)
        k, v = pair(kv_cache_sf, name, self._see)
        shape = (problem.num_pages, problem.num_kv_heads, problem.page_size, problem.head_dim // 16)
        is_hnd = self.kv_layout == "HND"
        for seen in (k, v):
            require_dtype(seen, "e4m3", "u8")
            require_shape(seen, shape if is_hnd else (shape[0], shape[2], shape[1], shape[3]), page_axes(self.kv_layout, "head_dim / 16"))
            require_dense_rows(seen)
        head, token = (1, 2) if is_hnd else (2, 1)
        problem.k_sf_page_stride, problem.k_sf_head_stride, problem.k_sf_token_stride = page_strides(k, head, token, step=SCALES_STEP)
        is_interleaved = problem.v_sf_layout == abi.SF_V_INTERLEAVE4  # without gaps
        if is_interleaved and not is_hnd:
            (v, self.has_copy), head, token = heads_together(v), 1, 2
            self.views.append(v)
        problem.v_sf_page_stride, problem.v_sf_head_stride, problem.v_sf_token_stride = page_strides(
            v, head, token, step=1 if is_interleaved else SCALES_STEP)
        self._point("k_sf", k)
        self._point("v_sf", v)

    # ------------------------------------------------------------------------------------------------------ which tokens

    def tables(self, block_tables: Any, seq_lens: Any, max_seq_len: int, *, shared: bool, per_head: bool,
               lens_may_be_on_host: bool = False, length_name: str = "max_seq_len") -> None:
        """block_tables i32 [batch, width]; not `shared` [batch, 2, width]; `per_head` [num_kv_heads, batch, width] and then
        seq_lens [num_kv_heads, batch], else [batch]. seq_lens None: every request has max_seq_len tokens."""
        problem = self.problem
        table, lens = self._see(block_tables, "block_tables"), None
        require_dtype(table, "i32")
        heads = (problem.num_kv_heads,) if per_head else ()
        max_seq_len = integer(length_name, max_seq_len)
        if seq_lens is None:
            batch, problem.kv_capacity_tokens = table.shape[len(heads)] if len(table.shape) > len(heads) else 0, max_seq_len
        else:
            lens = self._lengths(seq_lens, "seq_lens", lens_may_be_on_host)
            require_dtype(lens, "i32")
            require_rank(lens, 1 + per_head, "[num_kv_heads, batch]" if per_head else "[batch]")
            batch = lens.shape[-1]
            require_shape(lens, (*heads, batch), "[num_kv_heads, batch]" if per_head else "[batch]")
        parts = () if shared else (2,)
        axes = f"[{'num_kv_heads, ' if per_head else ''}batch, {'' if shared else '2, '}width]"
        require_rank(table, len(heads) + 1 + len(parts) + 1, axes)
        width = table.shape[-1]
        require_shape(table, (*heads, batch, *parts, width), axes)
        require_dense_rows(table)
        if width == 0:
            raise InvalidArgumentError(f"block_tables has shape {table.shape}: a row must have an entry")
        if problem.num_pages == 0 and batch > 0:  # which the library would take for any number
            raise InvalidArgumentError(f"{self.pointers['k_cache'].name} has no page, with {batch} requests: it must have one")
        if lens is not None:
            require_lengths_in_rows(lens, table, problem.page_size)
        elif max_seq_len == 0:  # which the library would take for what the rows of the table have room for
            problem.batch_size = batch
            self._without_tokens()
            return
        request = len(heads)
        problem.batch_size, problem.max_seq_len, self.length_is_hint = batch, max_seq_len, lens is not None
        if not shared:
            problem.features |= abi.FEATURE_V_PAGE_TABLE
            problem.page_table_v_offset = table.stride(request + 1)
        problem.page_table_request_stride = table.stride(request) or width
        if per_head:
            problem.page_table_head_stride = table.stride(0)
        self._point("page_table", table)
        if lens is not None:
            problem.seq_lens_head_stride = lens.stride(0) if per_head else 0
            problem.seq_lens_request_stride = lens.stride(request)
            self._point("seq_lens", lens)

    def _lengths(self, seq_lens: Any, name: str, may_be_on_host: bool) -> View:
        """On the host beside a query on a GPU, where that may be, the launch copies them."""
        seen = view(seq_lens, name)
        if may_be_on_host and seen.device == HOST and self.query_view.device[0] == "cuda":
            self.problem.features |= abi.FEATURE_HOST_SEQ_LENS
        else:
            self.views.append(seen)
        return seen

    def contiguous_kv(self, k: View, v: View, kv_layout: str, kv_cache_sf: Any, v_sf_layout: str | None) -> None:
        """Of one request, all of whose tokens count: [tokens, num_kv_heads, head_dim], or in HND with the first two exchanged.
        NVFP4 has scales, likewise with head_dim / 16."""
        choice("kv_layout", kv_layout, KV_LAYOUTS)
        axes = "[tokens, num_kv_heads, head_dim]" if kv_layout == "NHD" else "[num_kv_heads, tokens, head_dim]"
        for seen in (k, v):
            require_rank(seen, 3, axes)
        self.kv_cache(tuple(batch_of_one(seen) for seen in (k, v)), kv_layout)
        if kv_cache_sf is not None:
            if not isinstance(kv_cache_sf, (tuple, list)) or len(kv_cache_sf) != 2:
                raise InvalidArgumentError(f"kv_cache_sf is a {type(kv_cache_sf).__name__}: it must be a pair, the scales of K and of V")
            scales = [view(one, f"kv_cache_sf[{number}]") for number, one in enumerate(kv_cache_sf)]
            for seen in scales:
                require_rank(seen, 3, f"{axes[:-1]} / 16]")
            kv_cache_sf = tuple(batch_of_one(seen) for seen in scales)
        self.kv_scales(kv_cache_sf, "kv_cache_sf", v_sf_layout)
        self.requests_for_pages(None, self.problem.page_size)

    def _without_tokens(self) -> None:
        """Requests that have none have no pages either: they are stretches with room for none."""
        self.problem.features |= abi.FEATURE_CONTIGUOUS_KV
        self.problem.page_size = self.problem.num_pages = self.problem.kv_capacity_tokens = 0

    def requests_for_pages(self, seq_lens: Any, most_tokens: int) -> None:
        """What `kv_cache` took for pages is a request each, with room for that many tokens at most. seq_lens i32 [batch]; None: all
        of them count."""
        problem = self.problem
        problem.features |= abi.FEATURE_CONTIGUOUS_KV
        problem.batch_size, problem.kv_capacity_tokens = problem.num_pages, min(problem.page_size, integer("max_sequence_kv", most_tokens))
        problem.page_size = problem.num_pages = 0
        if seq_lens is not None:
            lens = self._lengths(seq_lens, "actual_seq_lens_kv", True)
            require_dtype(lens, "i32")
            require_shape(lens, (problem.batch_size,), "[batch]")
            require_contiguous(lens)
            self._point("seq_lens", lens)

    def query_tokens(self, q_len_per_req: int | None, max_q_len: int | None, cum_seq_lens_q: Any, *, finds_most: bool = False) -> None:
        """As many for each request, or i32 [batch + 1] that says which are whose, of which none has more than max_q_len; where that is None
        and `finds_most`, those of the longest on the host, on a GPU, which is not waited for, those of all."""
        problem, batch = self.problem, self.problem.batch_size
        max_q_len, q_len_per_req = (None if length is None else integer(name, length)
                                    for name, length in (("max_q_len", max_q_len), ("q_len_per_req", q_len_per_req)))
        if cum_seq_lens_q is not None:
            if max_q_len is None and not finds_most:
                raise InvalidArgumentError("max_q_len is None with cum_seq_lens_q: give the most query tokens that a request has")
            problem.features |= abi.FEATURE_RAGGED_Q
            self.vector("cum_seq_lens_q", cum_seq_lens_q, "cum_seq_lens_q", "i32", "[batch + 1]", batch + 1)
            # Fewer are right: what is captured for most tokens of a batch has query rows behind those of its requests.
            longest = require_bounds(self.pointers["cum_seq_lens_q"], self.num_tokens, f"tokens of {self.query_view.name}", from_zero=True)
            problem.q_len = max(longest, 1) if max_q_len is None else max_q_len
        else:
            if q_len_per_req is None:
                raise InvalidArgumentError("q_len_per_req is None without cum_seq_lens_q: give one of the two")
            if max_q_len not in (None, q_len_per_req):
                raise InvalidArgumentError(f"max_q_len is {max_q_len} with q_len_per_req {q_len_per_req} and without "
                                           "cum_seq_lens_q: leave it None, or say which query tokens are whose")
            problem.q_len = q_len_per_req
            if self.num_tokens != batch * q_len_per_req:
                raise InvalidArgumentError(f"{self.query_view.name} has {self.num_tokens} tokens: {batch} requests of "
                                           f"q_len_per_req {q_len_per_req} have {batch * q_len_per_req}")
        if problem.q_len < 1:
            name = "q_len_per_req" if cum_seq_lens_q is None else "max_q_len"
            raise InvalidArgumentError(f"{name} is {problem.q_len}: it must be 1 or more")

    def window(self, window_left: int) -> None:
        """The query's own position and this many before it; -1, and what is more than any position has before it: all."""
        window_left = integer("window_left", window_left, -1, None)
        if 0 <= window_left < MOST_I32:
            self.problem.features |= abi.FEATURE_WINDOW
            self.problem.window_left = window_left

    def draft_mask(self, mask: Any) -> None:
        """u16 [tokens, 2 * ceil(q_len / 32)]: bit c of row t is 1 where draft token t sees c. Also [batch, q_len, ...], but of a ragged
        batch, whose rows lie as those of the query."""
        if mask is None:
            return
        seen, problem = self._see(mask, "mask"), self.problem
        require_dtype(seen, "u16")
        words = 2 * -(-problem.q_len // 32)
        flat = (self.num_tokens, words)
        if len(seen.shape) == 3 and problem.features & abi.FEATURE_RAGGED_Q:
            raise InvalidArgumentError(f"mask has shape {seen.shape} with cum_seq_lens_q: it must be [tokens, 2 * ceil(max_q_len / 32)] = {flat}, "
                                       "of which each row is that of the same row of query")
        if len(seen.shape) == 3:
            require_shape(seen, (problem.batch_size, problem.q_len, words), "[batch, q_len, 2 * ceil(q_len / 32)]")
        else:
            require_shape(seen, flat, "[tokens, 2 * ceil(q_len / 32)]")
        require_contiguous(seen)
        problem.features |= abi.FEATURE_DRAFT_MASK
        self._point("draft_mask", seen)

    # ---------------------------------------------------------------------------------------------------- with which logits

    def scale(self, name: str, value: Any, written: str | None = None) -> None:
        """A float, or the first f32 of a tensor: on the device it is read there, when the kernel runs. `written`: the caller's name of it."""
        written = written or name
        if value is None:
            raise TypeError(f"{written} is None: it must be a number or a tensor")
        if not isinstance(value, Real):
            seen = first_float(view(value, written))
            if seen.device != HOST or self.query_view.device == HOST:
                self.views.append(seen)
                self._point(name + "_device", seen)
                return
            value = c_float.from_address(seen.address).value
        if real(written, value) == 0:
            raise InvalidArgumentError(f"{written} is 0: the library takes that for 1, so a scale of 0 must be a tensor on the device")
        setattr(self.tensors, name, value)

    def log2_scale(self, value: Any) -> None:
        """bmm1_scale times log2(e), one f32 on the device; wins over bmm1_scale."""
        if value is not None:
            self._point("bmm1_scale_log2_device", first_float(self._see(value, "bmm1_scale_log2"), alone=True))

    def out_scale(self, o_scale: float | None) -> None:
        """Without effect; the library requires 1 with a 16-bit result."""
        if o_scale is not None:
            if real("o_scale", o_scale) == 0:
                raise InvalidArgumentError("o_scale is 0: the library takes that for 1")
            self.tensors.o_scale = o_scale

    def soft_cap(self, logits_soft_cap: float | None) -> None:
        """None and what is not more than 0: off."""
        if logits_soft_cap is not None and real("logits_soft_cap", logits_soft_cap) > 0:
            self.problem.features |= abi.FEATURE_SOFT_CAP
            self.problem.logits_soft_cap = logits_soft_cap

    def positions(self, mode: str, rope_scale: float | None, rope_theta: float | None) -> None:
        """NONE, ALIBI with the slopes of alibi.py, or ROPE_LLAMA, whose scale and theta are 1 and 10000 where they are None."""
        if mode not in ("NONE", "ROPE_LLAMA", "ALIBI"):
            raise InvalidArgumentError(f"pos_encoding_mode is {mode!r}: accepted are 'NONE', 'ROPE_LLAMA', 'ALIBI'")
        if mode == "ALIBI":
            self.problem.features |= abi.FEATURE_ALIBI
        if mode == "ROPE_LLAMA":
            self.problem.features |= abi.FEATURE_ROPE
            self.problem.rope_scale, self.problem.rope_theta = rope_scale or 1.0, rope_theta or 1e4

    def sinks(self, sinks: Any) -> None:
        """f32 [num_qo_heads], or a list of that one tensor."""
        if sinks is None:
            return
        if isinstance(sinks, (list, tuple)) and type(sinks) is not TypedArray:
            if len(sinks) != 1:
                raise InvalidArgumentError(f"sinks is a list of {len(sinks)}: it must be one tensor [num_qo_heads]")
            sinks = sinks[0]
        self.problem.features |= abi.FEATURE_SINKS
        self.vector("sinks", sinks, "sinks", "f32", "[num_qo_heads]", self.problem.num_qo_heads)

    def skip_softmax(self, factor: float | None) -> None:
        """None and 0: off."""
        if factor is not None and real("skip_softmax_threshold_scale_factor", factor):
            self.problem.features |= abi.FEATURE_SKIP_SOFTMAX
            self.problem.skip_softmax_threshold_scale_factor = factor

    # ---------------------------------------------------------------------------------------------------------- results

    def out(self, out: Any, out_dtype: Any, o_sf_scale: float | None, o_sf_vec_size: int | None) -> Any:
        """The result, the caller's or a new one. The dtype is out_dtype, else that of `out`, else the query's."""
        problem = self.problem
        shape = (self.num_tokens, problem.num_qo_heads, problem.v_head_dim or problem.head_dim)
        wanted = None if out_dtype is None else dtype_name(out_dtype)
        if wanted == "nvfp4" or is_fp4(out):
            if wanted not in (None, "nvfp4"):
                raise InvalidArgumentError(f"out_dtype is {wanted} with an out of nvfp4: they must be equal")
            return self._fp4_out(out, shape, o_sf_scale, o_sf_vec_size)
        for name, value in (("o_sf_scale", o_sf_scale), ("o_sf_vec_size", o_sf_vec_size)):
            if value is not None:
                raise InvalidArgumentError(f"{name} is {value} with a result that is not nvfp4: only that has it")
        if out is None:
            dtype = wanted or self.query_view.dtype
            if dtype not in _ROW_DTYPES:
                raise InvalidArgumentError(f"out_dtype is {dtype}: accepted are {', '.join(_ROW_DTYPES)}, nvfp4")
            out = self.new(self.query_view, shape, dtype, "out")
            seen = self._see(out, "out")._replace(dtype=dtype)
        else:
            seen = self._see(out, "out")
            carried = {"u16": ("bf16", "fp16"), "u8": ("e4m3",)}.get(seen.dtype, ())
            # Bits without a name have that of out_dtype, else of the query.
            if (wanted or self.query_view.dtype) in carried:
                seen = seen._replace(dtype=wanted or self.query_view.dtype)
            require_dtype(seen, *([wanted] if wanted else _ROW_DTYPES))
            require_shape(seen, shape, "[tokens, num_qo_heads, head_dim]")
            require_dense_rows(seen)
            require_writable(seen)
        problem.out_dtype = DTYPES[seen.dtype]
        problem.out_token_stride, problem.out_head_stride = seen.stride(0), seen.stride(1)
        self._point("out", seen)
        return out

    def _fp4_out(self, out: Any, shape: tuple[int, int, int], o_sf_scale: float | None, o_sf_vec_size: int | None) -> Any:
        problem, tensors = self.problem, self.tensors
        if o_sf_vec_size not in (None, 16):
            raise InvalidArgumentError(f"o_sf_vec_size is {o_sf_vec_size}: a block of NVFP4 has 16 elements")
        if o_sf_scale is None or real("o_sf_scale", o_sf_scale) <= 0:
            raise InvalidArgumentError(f"o_sf_scale is {o_sf_scale}: an nvfp4 result needs one, more than 0")
        columns = -(-shape[1] * shape[2] // 16 // 4) * 4
        if out is None:
            rows = max(-(-shape[0] // 128) * 128, 128)
            data = empty_like(self.query_view, (*shape[:2], shape[2] // 2), "nvfp4", "out")
            out = FP4Tensor(data, empty_like(self.query_view, (rows, columns), "e4m3", "out"), 0, shape)
        elif not is_fp4(out):
            raise InvalidArgumentError(f"out is a {type(out).__name__} with out_dtype nvfp4: it must be an FP4Tensor")
        data, scale = self._see(out.data, "out.data"), self._see(out.scale, "out.scale")
        require_dtype(data, "u8", "nvfp4")
        require_shape(data, (*shape[:2], shape[2] // 2), "[tokens, num_qo_heads, head_dim / 2]")
        require_dense_rows(data)
        require_dtype(scale, "e4m3", "u8")
        require_rank(scale, 2, "[rows, columns]")
        require_contiguous(scale)
        rows = scale.shape[0]
        if rows % 128 or scale.shape[1] != columns or not 0 <= out.scale_start_index <= rows - shape[0]:
            raise InvalidArgumentError(
                f"out.scale has shape {scale.shape} with scale_start_index {out.scale_start_index}: it must have {columns} "
                f"columns, and a multiple of 128 rows that hold the {shape[0]} tokens from that row on")
        require_writable(data)
        require_writable(scale)
        problem.out_dtype = abi.DTYPE_NVFP4
        problem.out_token_stride, problem.out_head_stride = 2 * data.stride(0), 2 * data.stride(1)
        self._point("out", data)
        self._point("out_sf", scale)
        tensors.out_sf_scale, tensors.out_sf_start_token = o_sf_scale, out.scale_start_index
        return out

    def lse(self, lse: Any, return_lse: bool) -> Any:
        """f32 [tokens, num_qo_heads], base 2: the caller's, a new one, or None where it is not asked for."""
        if lse is None and not return_lse:
            return None
        problem, shape = self.problem, (self.num_tokens, self.problem.num_qo_heads)
        if lse is None:
            lse = self.new(self.query_view, shape, "f32", "lse")
        seen = self._see(lse, "lse")
        require_dtype(seen, "f32")
        require_shape(seen, shape, "[tokens, num_qo_heads]")
        require_writable(seen)
        problem.features |= abi.FEATURE_LSE
        if problem.features & abi.FEATURE_ALIBI:  # whose lse counts biases from the first token, as FlashInfer's
            problem.features |= abi.FEATURE_LSE_ALIBI_FROM_ZERO
        problem.lse_token_stride, problem.lse_head_stride = seen.stride(0), seen.stride(1)
        self._point("lse", seen)
        return lse

    # ------------------------------------------------------------------------------------------------------------- launch

    def run(self, workspace_buffer: Any, enable_pdl: bool | None, stream: int | None, context: Context | None) -> None:
        """On the host the reference, on a GPU the kernel that the library chooses. `workspace_buffer` counts if it is a
        Workspace."""
        kind, ordinal = require_device(self.views)
        for field, seen in self.pointers.items():
            setattr(self.tensors, field, address_of(seen, self.views))
        if kind == "cpu":
            if self.problem.features & abi.FEATURE_ALIBI:
                slopes = alibi.on_host(self.problem.num_qo_heads)
                self.tensors.alibi_slopes = addressof(slopes)
            library().check(library().reference(byref(self.problem), byref(self.tensors)))
            return
        if self.has_copy and stream not in (None, driver.torch_stream(ordinal)):
            raise UnsupportedError(f"stream is {stream} with interleaved scales of V in NHD, which are copied on PyTorch's current stream: leave it "
                                   "None, or give the scales with kv_layout HND")
        workspace = workspace_buffer if isinstance(workspace_buffer, Workspace) else None
        self.tensors.launch_flags = 0 if enable_pdl is False else abi.LAUNCH_PROGRAMMATIC
        launch_at(self.query_view, stream, lambda place: self._launch(context or default_context(), workspace, place))
        if is_torch(self.query_view.owner):
            self.launch = Launch(ordinal, stream, workspace, context)

    def _launch(self, context: Context, own: Workspace | None, place: Place) -> None:
        if self.problem.features & abi.FEATURE_ALIBI:
            self.tensors.alibi_slopes = alibi.on_gpu(place, self.problem.num_qo_heads)
        workspace = own or pool.find(place.ordinal, place.stream, place.is_capturing)
        for _ in range(3):  # at most a context to be made current, and a workspace to grow
            self.tensors.workspace = workspace.address if workspace else None
            self.tensors.workspace_bytes = workspace.size_bytes if workspace else 0
            try:
                if workspace is None:
                    workspace = pool.grow(place, max(context.workspace_bytes(self.problem), 1), context)
                    continue
                library().check(library().decode(context.handle, byref(self.problem), byref(self.tensors), place.stream))
                return
            except WorkspaceTooSmallError:
                if own:
                    raise
                workspace = None
            except NoDeviceError:
                if not place.use_torch:
                    raise
                driver.torch_make_current(place.ordinal)
        raise InternalError("the workspace stays too small; please report this")


# ----------------------------------------------------------------------------------------------------------------- helpers


def launch_at(seen: View, stream: int | None, launch: Callable[[Place], None]) -> None:
    """Calls `launch` where a tensor on a GPU is at home: its GPU current, the current stream unless another is given."""
    ordinal = seen.device[1]
    if not is_torch(seen.owner):
        launch(Place(ordinal, False, stream or 0, driver.is_capturing(stream or 0)))
        return
    current = driver.torch_current_ordinal()
    if current != ordinal:
        driver.torch_make_current(ordinal)
    try:
        if stream is None:
            launch(Place(ordinal, True, driver.torch_stream(ordinal), driver.torch_is_capturing()))
        else:
            launch(Place(ordinal, True, stream, driver.is_capturing(stream)))
    finally:
        if current != ordinal:
            driver.torch_make_current(current)


def refuse(function: str, what: str) -> UnsupportedError:
    """For what no part of libdecode does yet."""
    return UnsupportedError(f"{function}: libdecode does not do {what} yet")
