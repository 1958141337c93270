# SPDX-License-Identifier: Apache-2.0
"""The host's time of a Python call beyond the C function that it ends in, which is replaced by one that does nothing.

    LIBDECODE_LIBRARY=FILE PYTHONPATH=packaging/python tests/bench/python_time.py

with PyTorch and a GPU. Without a GPU, PyTorch's tensors on the host are taken for a GPU's, and the GPU is the one that the processor
plays:

    LD_LIBRARY_PATH=BUILD/tests/command LIBDECODE_WRITE_BUNDLES=BUILD/tests/command/write_bundles \\
    LIBDECODE_LIBRARY=BUILD/loader/libdecode.so.0 PYTHONPATH=packaging/python:tests/python tests/bench/python_time.py

The best of many short rounds: other work on the processor only adds.
"""

import itertools
import timeit
from ctypes import CDLL, CFUNCTYPE, c_char_p, c_int, c_void_p

import torch

import libdecode
from libdecode import arrays, driver, remembered
from libdecode.library import library

CALLS, ROUNDS = 100, 500
BATCH, HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, PAGES = 16, 8, 2, 64, 16, 64


def take_the_host_for_a_gpu():
    """PyTorch's functions for that are replaced by built-in ones that take as long."""
    import played_gpu
    played_gpu.make_current()
    stream = played_gpu.Stream().handle
    arrays.HOST = ("cuda", 0)
    remembered._is_on_gpu = lambda tensor: True
    quick = driver.torch_quick()._replace(stream={0: stream}.__getitem__, current_ordinal=int, is_capturing=bool)
    driver.torch_quick = lambda: quick
    driver.torch_is_capturing, driver.torch_current_ordinal = quick.is_capturing, quick.current_ordinal
    driver.torch_allocate = lambda size_bytes, _: driver.allocate(size_bytes)


def without_c(*arguments):
    """A function of the library that takes nothing, does nothing and returns 0: called with whatever."""
    return CFUNCTYPE(c_int, *arguments)(("libdecode_error_cuda_result", CDLL(library().path)))


def best(call):
    """Of one call, in us."""
    return min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def main():
    launch = without_c(c_void_p, c_void_p, c_char_p, c_void_p)
    library().decode_packed = launch
    has_gpu = torch.cuda.is_available()
    if not has_gpu:
        take_the_host_for_a_gpu()
    device = "cuda" if has_gpu else "cpu"
    query = torch.zeros(BATCH, HEADS, HEAD_DIM, dtype=torch.bfloat16, device=device)
    out, cache = torch.empty_like(query), torch.zeros(PAGES, 2, KV_HEADS, PAGE_SIZE, HEAD_DIM, dtype=torch.bfloat16, device=device)
    table = torch.zeros(BATCH, 8, dtype=torch.int32, device=device)
    lens = torch.full((BATCH,), 100, dtype=torch.int32, device=device)
    k, v, one = cache[:, 0], cache[:, 1], query[0]
    single_k, single_v = (torch.zeros(64, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=device) for _ in range(2))
    workspace = libdecode.Workspace(8 << 20)
    plan = libdecode.Plan(libdecode.Problem(
        query_dtype="bf16", batch_size=BATCH, num_qo_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, page_size=PAGE_SIZE,
        max_seq_len=128, page_table_request_stride=8), workspace=workspace)
    decode, lengths = libdecode.trtllm_batch_decode_with_kv_cache, itertools.cycle(range(1, 128))
    calls = {
        "batch decode, out and a Workspace given": lambda: decode(query, cache, workspace, table, lens, 128, 0.125, 1.0, out=out),
        "batch decode, out given": lambda: decode(query, cache, None, table, lens, 128, 0.125, 1.0, out=out),
        "batch decode, the pair (K, V), out given": lambda: decode(query, (k, v), None, table, lens, 128, 0.125, 1.0, out=out),
        "batch decode": lambda: decode(query, cache, None, table, lens, 128, 0.125, 1.0),
        "batch decode of a new length, out given": lambda: decode(query, cache, None, table, lens, next(lengths), 0.125, 1.0, out=out),
        "cuDNN's words": lambda: libdecode.cudnn_batch_decode_with_kv_cache(
            query, k, v, 0.125, None, max_sequence_kv=128, actual_seq_lens_kv=lens, block_tables=table, out=out),
        "single decode": lambda: libdecode.single_decode_with_kv_cache(one, single_k, single_v),
        "Plan.run": lambda: plan.run(query, k, v, table, lens, out, bmm1_scale=0.125),
    }
    for call in calls.values():
        call()  # the long way, with the library
    plan._launch, library().decode = without_c(c_void_p, c_char_p, c_void_p), without_c(c_void_p, c_void_p, c_void_p, c_void_p)
    print(f"{'ctypes alone':<44}{best(lambda: launch(None, None, b'', None)):6.2f} us")
    print(f"{'torch.empty_like alone':<44}{best(lambda: torch.empty_like(query)):6.2f} us")
    for name, call in calls.items():
        print(f"{name:<44}{best(call):6.2f} us")


if __name__ == "__main__":
    main()
