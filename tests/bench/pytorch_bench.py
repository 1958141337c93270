# SPDX-License-Identifier: Apache-2.0
"""Times libdecode beside PyTorch's own attention, in one process on one GPU.

    python3 pytorch_bench.py LIBDECODE_SO [--bundle PATH]... [--trace FILE.csv] [--only TEXT] [--host-time]

libdecode reads a paged cache (page 16, random pages). PyTorch gets the same numbers as contiguous [batch, heads, tokens, dim],
which is what its attention wants, and every form of the call that runs is tried: the fastest counts. Both are cold: calls
rotate over regions until more than 200 MB lie between two uses. 10 to 40 calls make one CUDA graph; a time is the median of
11 replays divided by the calls. TB/s counts K and V once. How fast the GPU can read at all is what `libdecode bench` measures;
the copy printed here is PyTorch's, for scale. --trace takes the columns input_length,output_length: seq_len = input + output / 2
+ 1. --only cuts the list of shapes. Exits with 77 without a GPU, with 1 if the two results differ.
"""

import argparse
import contextlib
import csv
import ctypes
import dataclasses
import math
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/python"))
import libdecode

HEAD_DIM, PAGE = 128, 16
COLD_BYTES = 200_000_000
MIN_CALLS, MAX_CALLS, REPLAYS = 10, 40, 11
FP32_CHECK_BYTES = 600_000_000
CLEARING_SECONDS = 0.5


@dataclasses.dataclass
class Shape:
    name: str
    heads: int
    kv_heads: int
    seq_lens: list

    def kv_bytes(self):
        return sum(self.seq_lens) * self.kv_heads * HEAD_DIM * 2 * 2

    def pages(self):
        return [-(-length // PAGE) for length in self.seq_lens]

    def uniform(self):
        return len(set(self.seq_lens)) == 1


def uniform(heads, kv_heads, batch, tokens):
    return Shape(f"{heads}/{kv_heads} b{batch} x {tokens}", heads, kv_heads, [tokens] * batch)


SHAPES = [
    uniform(32, 8, 1, 4096), uniform(32, 8, 1, 32768), uniform(32, 8, 16, 4096), uniform(32, 8, 64, 4096),
    uniform(32, 8, 128, 8192), uniform(8, 1, 64, 8192),
]


def trace_shapes(path):
    """The batch of a trace, and a uniform one with as many tokens."""
    with open(path, encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        lengths = [int(row["input_length"]) + int(row["output_length"]) // 2 + 1 for row in rows]
    even = sum(lengths) // len(lengths)
    return [Shape(f"32/8 b{len(lengths)} trace", 32, 8, lengths), uniform(32, 8, len(lengths), even)]


class Batch:
    """One pool of random K and V, cut into regions that hold the whole batch each; one query."""

    def __init__(self, shape):
        self.shape = shape
        batch, pages = len(shape.seq_lens), shape.pages()
        self.regions = 1 if shape.kv_bytes() > COLD_BYTES else COLD_BYTES // shape.kv_bytes() + 2
        # Short ones need many, since the start of a graph, some 10 us, is in the time too.
        self.calls = MIN_CALLS if self.regions == 1 else min(MAX_CALLS, self.regions * max(1, MAX_CALLS // self.regions))
        pool_shape = (self.regions * sum(pages), shape.kv_heads, PAGE, HEAD_DIM)
        self.k, self.v = (torch.randn(pool_shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        self.query = torch.randn(batch, shape.heads, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
        self.seq_lens = torch.tensor(shape.seq_lens, dtype=torch.int32, device="cuda")
        order = torch.randperm(pool_shape[0], device="cuda", dtype=torch.int32)
        self.tables = torch.zeros(self.regions, batch, max(pages), dtype=torch.int32, device="cuda")
        taken = 0
        for region in range(self.regions):
            for request, count in enumerate(pages):
                self.tables[region, request, :count] = order[taken : taken + count]
                taken += count

    def contiguous(self, pool, region, request):
        """One request's K or V as [kv_heads, tokens, dim]."""
        length = self.shape.seq_lens[request]
        ids = self.tables[region, request, : -(-length // PAGE)].long()
        return pool[ids].permute(1, 0, 2, 3).reshape(self.shape.kv_heads, -1, HEAD_DIM)[:, :length]


def graph_time(calls, run):
    """Microseconds of one call: `calls` of them in a CUDA graph, median over the replays."""
    run(0)  # whatever a first call sets up happens outside the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in range(calls):
            run(call)
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000 / calls)
    return statistics.median(times)


# ----------------------------------------------------------------------------------------------------------- libdecode


class Libdecode:
    """libdecode on one batch: plan, workspace, and the tensors of each region."""

    def __init__(self, context, batch):
        shape = batch.shape
        self.out = torch.empty_like(batch.query)
        self.plan = libdecode.Plan(libdecode.Problem(
            query_dtype="bf16", batch_size=len(shape.seq_lens), num_qo_heads=shape.heads, num_kv_heads=shape.kv_heads,
            head_dim=HEAD_DIM, page_size=PAGE, max_seq_len=max(shape.seq_lens), num_pages=batch.k.shape[0],
            page_table_request_stride=batch.tables.stride(1)), context=context)
        info = self.plan.info
        self.kernel, self.workers, self.cluster_size = info.kernel, info.workers, info.cluster_size
        torch.cuda.synchronize()
        self.regions = [(batch.query, batch.k, batch.v, table, batch.seq_lens, self.out) for table in batch.tables]

    def run(self, call):
        self.plan.run(*self.regions[call % len(self.regions)], bmm1_scale=1 / math.sqrt(HEAD_DIM))

    def close(self):
        self.plan.close()


# ------------------------------------------------------------------------------------------------------------- PyTorch


def backends():
    """(name, context manager) of PyTorch's own choice and of every fused SDPA backend that it has."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    named = [("flash", "FLASH_ATTENTION"), ("cudnn", "CUDNN_ATTENTION"), ("efficient", "EFFICIENT_ATTENTION")]
    found = [("default", contextlib.nullcontext)]
    for name, member in named:
        if hasattr(SDPBackend, member):
            found.append((name, lambda backend=getattr(SDPBackend, member): sdpa_kernel(backend)))
    return found


def uniform_forms(batch, out):
    """(name, run) of SDPA over contiguous K and V, with grouped heads, and with the group's heads as query rows (same result)."""
    shape = batch.shape
    count, group = len(shape.seq_lens), shape.heads // shape.kv_heads
    k, v = (torch.empty(batch.regions, count, shape.kv_heads, shape.seq_lens[0], HEAD_DIM, dtype=torch.bfloat16, device="cuda")
            for _ in range(2))
    for region in range(batch.regions):
        for request in range(count):
            k[region, request] = batch.contiguous(batch.k, region, request)
            v[region, request] = batch.contiguous(batch.v, region, request)

    def grouped(call):
        region = call % batch.regions
        out[0] = F.scaled_dot_product_attention(batch.query[:, :, None], k[region], v[region], enable_gqa=True)

    def folded(call):
        region = call % batch.regions
        rows = batch.query.view(count, shape.kv_heads, group, HEAD_DIM)
        out[0] = F.scaled_dot_product_attention(rows, k[region], v[region])

    for form, call in (("sdpa gqa", grouped), ("sdpa folded", folded)):
        for name, backend in backends():
            yield f"{form} {name}", backend, call


def ragged_forms(batch, out):
    """SDPA request by request, and the variable-length attention of newer versions over packed K and V."""
    shape = batch.shape
    count, group = len(shape.seq_lens), shape.heads // shape.kv_heads
    regions = range(batch.regions)
    k, v = ([[batch.contiguous(pool, region, request)[None].contiguous() for request in range(count)] for region in regions]
            for pool in (batch.k, batch.v))

    def each(call):
        region, results = call % batch.regions, []
        for request in range(count):
            rows = batch.query[request].view(1, shape.kv_heads, group, HEAD_DIM)
            results.append(F.scaled_dot_product_attention(rows, k[region][request], v[region][request]))
        out[0] = results

    for name, backend in backends():
        yield f"sdpa per request {name}", backend, each
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return
    packed = [[torch.cat([one[0].transpose(0, 1) for one in pool[region]]) for region in regions] for pool in (k, v)]
    ends = torch.tensor([0, *shape.seq_lens]).cumsum(0).to(torch.int32).cuda()
    starts = torch.arange(count + 1, dtype=torch.int32, device="cuda")

    def variable(call):
        region = call % batch.regions
        out[0] = varlen_attn(batch.query, packed[0][region], packed[1][region], starts, ends, 1, max(shape.seq_lens))

    yield "varlen_attn", contextlib.nullcontext, variable


def best_of_pytorch(batch):
    """(microseconds, form, result of region 0, every form's time or why it has none)."""
    best, notes, out = None, [], [None]
    for name, backend, run in (uniform_forms if batch.shape.uniform() else ragged_forms)(batch, out):
        try:
            with backend():
                run(0)
                torch.cuda.synchronize()
                result = torch.cat(out[0]) if isinstance(out[0], list) else out[0]
                result = result.reshape(batch.query.shape).clone()
                microseconds = graph_time(batch.calls, run)
        except (RuntimeError, TypeError, ValueError, AssertionError) as error:
            notes.append(f"{name}: {(str(error) or repr(error)).splitlines()[0][:100]}")
            torch.cuda.synchronize()
            continue
        notes.append(f"{name}: {microseconds:.1f} us")
        if best is None or microseconds < best[0]:
            best = (microseconds, name, result)
    out[0] = None
    return best, notes


def fp32_truth(batch):
    """Region 0 in float32, request by request."""
    shape, group = batch.shape, batch.shape.heads // batch.shape.kv_heads
    results = []
    for request in range(len(shape.seq_lens)):
        k, v = (batch.contiguous(pool, 0, request).float() for pool in (batch.k, batch.v))
        rows = batch.query[request].float().view(shape.kv_heads, group, HEAD_DIM)
        weights = torch.softmax(torch.einsum("hgd,hsd->hgs", rows, k) / math.sqrt(HEAD_DIM), -1)
        results.append(torch.einsum("hgs,hsd->hgd", weights, v).reshape(shape.heads, HEAD_DIM))
    return torch.stack(results)


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


# ----------------------------------------------------------------------------------------------------------- host time

EMPTY_KERNEL = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry empty(.param .align 64 .b8 block[512]) { ret; }
"""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [(name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")] + [
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("num_attributes", ctypes.c_uint)]


def host_time(launch):
    """Microseconds of the host for one call: the median of 21 rounds of 200 calls, each round on an idle GPU."""
    rounds = []
    for _ in range(21):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            launch()
        rounds.append((time.perf_counter() - start) * 1e6 / 200)
    torch.cuda.synchronize()
    return statistics.median(rounds)


def print_host_times(context):
    """libdecode_plan_launch and a bare cuLaunchKernelEx, both through ctypes, whose own cost is in both."""
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    stream = torch.cuda.current_stream().cuda_stream
    for result in (driver.cuModuleLoadData(ctypes.byref(module), EMPTY_KERNEL),
                   driver.cuModuleGetFunction(ctypes.byref(function), module, b"empty")):
        if result != 0:
            sys.exit(f"the empty kernel for the host time: CUresult {result}")
    batch = Batch(uniform(32, 8, 1, 16))  # so short that the GPU keeps up
    ours = Libdecode(context, batch)
    block = ctypes.create_string_buffer(512)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    config = LaunchConfig(grid_x=max(1, ours.workers * ours.cluster_size), grid_y=1, grid_z=1, block_x=128, block_y=1, block_z=1,
                          stream=stream)
    addresses = [tensor.data_ptr() for tensor in ours.regions[0]]
    tensors = libdecode.abi.Tensors(
        **dict(zip(("query", "k_cache", "v_cache", "page_table", "seq_lens", "out"), addresses)), bmm1_scale=1 / math.sqrt(HEAD_DIM),
        workspace=ours.plan.workspace.address, workspace_bytes=ours.plan.workspace.size_bytes)
    config_pointer, tensors_pointer = ctypes.byref(config), ctypes.byref(tensors)
    launch_kernel, plan_launch = driver.cuLaunchKernelEx, libdecode.library().plan_launch
    launch_kernel.argtypes = [ctypes.c_void_p] * 4
    bare = host_time(lambda: launch_kernel(config_pointer, function, parameters, None))
    whole = host_time(lambda: plan_launch(ours.plan.handle, tensors_pointer, stream))
    with_tensors = host_time(lambda: ours.run(0))
    print(f"host time through ctypes: libdecode_plan_launch {whole:.2f} us, bare cuLaunchKernelEx {bare:.2f} us, "
          f"difference {whole - bare:+.2f} us; Plan.run with PyTorch's tensors and stream {with_tensors:.2f} us, "
          f"{with_tensors - whole:+.2f} us beside libdecode_plan_launch")
    ours.close()
    driver.cuModuleUnload(module)


def print_copy():
    source = torch.empty(2_000_000_000, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    microseconds = graph_time(MIN_CALLS, lambda call: target.copy_(source))
    print(f"torch copy of 2 GB: {2 * source.numel() / microseconds / 1e6:.2f} TB/s, read and written bytes together")


def compare(context, shape):
    batch = Batch(shape)
    ours = Libdecode(context, batch)
    ours.run(0)
    torch.cuda.synchronize()
    our_result = ours.out.clone()
    our_time = graph_time(batch.calls, ours.run)
    best, notes = best_of_pytorch(batch)
    truth = fp32_truth(batch) if shape.kv_bytes() <= FP32_CHECK_BYTES else None
    line = f"{shape.name:<20} {our_time:>9.1f} us {shape.kv_bytes() / our_time / 1e6:>6.2f} TB/s"
    if best is not None:
        line += f" {best[0]:>10.1f} us {best[0] / our_time:>6.2f}x  {relative(our_result, best[2]):>9.1e}"
    else:
        line += f" {'none ran':>13} {'':>7}  {'':>9}"
    line += f"  {relative(our_result, truth):>9.1e}" if truth is not None else f"  {'-':>9}"
    line += f"  {relative(best[2], truth):>9.1e}" if truth is not None and best is not None else f"  {'-':>9}"
    print(f"{line}  {ours.kernel} | {best[1] if best else '-'}", flush=True)
    for note in notes:
        print(f"    {note}", file=sys.stderr)
    ours.close()
    return math.isfinite(our_time) and (best is None or relative(our_result, best[2]) < 2e-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", metavar="LIBDECODE_SO")
    parser.add_argument("--bundle", action="append", default=[], help="a bundle or a folder of bundles; may be repeated")
    parser.add_argument("--trace", help="CSV with input_length,output_length: adds its batch, and a uniform one beside it")
    parser.add_argument("--only", default="", help="the shapes whose name holds this text")
    parser.add_argument("--host-time", action="store_true", help="also the host's time of one launch")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU that PyTorch can use: nothing to measure")
        sys.exit(77)
    torch.manual_seed(1)
    torch.cuda.init()
    torch.zeros(1, device="cuda")  # PyTorch's context is current from here on, and libdecode uses it
    os.environ["LIBDECODE_LIBRARY"] = arguments.library
    context = libdecode.open(arguments.bundle)

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, bf16, head_dim {HEAD_DIM}, page {PAGE}, cold KV")
    print_copy()
    print(f"{'shape':<20} {'libdecode':>12} {'':>11} {'PyTorch':>13} {'ratio':>7}  {'ours~torch':>9}  {'ours~f32':>9}  "
          f"{'torch~f32':>9}  kernel | form of PyTorch")
    good = True
    for shape in SHAPES + (trace_shapes(arguments.trace) if arguments.trace else []):
        if arguments.only in shape.name:
            good = compare(context, shape) and good
            torch.cuda.empty_cache()
            # While the driver clears the memory that was freed, kernels get a tenth less of the bandwidth.
            torch.cuda.synchronize()
            time.sleep(CLEARING_SECONDS)
    if arguments.host_time:
        print_host_times(context)
    context.close()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
