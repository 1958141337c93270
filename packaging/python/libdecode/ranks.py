# SPDX-License-Identifier: Apache-2.0
"""KV tokens that are dealt out over ranks, one after the other: which of them a query token sees."""

from __future__ import annotations

from typing import Any

from libdecode import abi
from libdecode.call import Call
from libdecode.errors import InvalidArgumentError
from libdecode.number import integer


def deal_out(call: Call, enable_dcp: bool, cp_world: int, cp_rank: int, causal_seqlens_kv_global: Any) -> None:
    """Of a call that knows its query tokens. Token j of this rank is global token j * cp_world + cp_rank, and query token t of a request
    that of causal_seqlens_kv_global - q_len + t: both are counted from q_len before, so that positions are what the caller has given."""
    cp_world, cp_rank = integer("cp_world", cp_world, 1), integer("cp_rank", cp_rank, 0)
    if not enable_dcp:
        for name, is_given in (("cp_world", cp_world != 1), ("cp_rank", cp_rank != 0),
                               ("causal_seqlens_kv_global", causal_seqlens_kv_global is not None)):
            if is_given:
                raise InvalidArgumentError(f"{name} is given without enable_dcp: set that, or leave it out")
        return
    if cp_rank >= cp_world:
        raise InvalidArgumentError(f"cp_rank is {cp_rank}: it must be less than cp_world, {cp_world}")
    if causal_seqlens_kv_global is None:
        raise InvalidArgumentError("causal_seqlens_kv_global is None with enable_dcp: it must be i32 [batch]")
    problem = call.problem
    problem.features |= abi.FEATURE_QUERY_POSITIONS
    problem.position_stride, problem.position_offset = cp_world, cp_rank + problem.q_len
    call.vector("query_positions", causal_seqlens_kv_global, "causal_seqlens_kv_global", "i32", "[batch]", problem.batch_size)
