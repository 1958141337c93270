# SPDX-License-Identifier: Apache-2.0
"""libdecode.h for Python's ctypes: what pytorch_check.py and pytorch_bench.py need of it.

Run as a program, it proves the mirror: `python3 libdecode_ctypes.py INCLUDE_DIR` compiles a C program with the offset and size
of every field, and exits with 1 where this file says something else.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_void_p

BF16, FP16, E4M3, NVFP4 = 1, 2, 3, 4
HND, NHD = 0, 1
SF_LINEAR, SF_V_INTERLEAVE4 = 0, 1
WINDOW, SINKS, LSE, RAGGED_Q, DRAFT_MASK, V_PAGE_TABLE, QUERY_POSITIONS, SKIP_SOFTMAX = (1 << bit for bit in range(8))
SOFT_CAP, ALIBI, ROPE, LSE_NATURAL, BATCH_INVARIANT = (1 << bit for bit in range(8, 13))
OPEN_IGNORE_ENVIRONMENT, OPEN_BUNDLES_ONLY, OPEN_STRICT = 1, 2, 4


class Sized(ctypes.Structure):
    """A struct whose first field is its own size, as the library wants it."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.struct_size = ctypes.sizeof(self)


def strides(*names):
    return [(name + "_stride", c_int64) for name in names]


class Problem(Sized):
    _fields_ = (
        [("struct_size", c_size_t), ("op", c_int32), ("query_dtype", c_int32), ("kv_dtype", c_int32), ("out_dtype", c_int32)]
        + [("features", c_uint32)]
        + [(name, c_int32) for name in ("batch_size", "num_qo_heads", "num_kv_heads", "head_dim", "page_size", "q_len")]
        + [(name, c_int32) for name in ("max_seq_len", "window_left", "position_stride", "position_offset")]
        + [("skip_softmax_threshold_scale_factor", c_float)]
        + [("num_pages", c_int64), ("kv_layout", c_int32), ("v_sf_layout", c_int32)]
        + strides("query_token", "query_head", "out_token", "out_head", "lse_token", "lse_head")
        + strides("k_page", "k_head", "k_token", "v_page", "v_head", "v_token")
        + strides("k_sf_page", "k_sf_head", "k_sf_token", "v_sf_page", "v_sf_head", "v_sf_token")
        + strides("page_table_request", "page_table_head")
        + [("page_table_v_offset", c_int64)]
        + strides("seq_lens_request", "seq_lens_head")
        + [("total_kv_tokens", c_int64)]
        + [("logits_soft_cap", c_float), ("rope_scale", c_float), ("rope_theta", c_float), ("reserved", c_uint32)]
    )


class Tensors(Sized):
    _fields_ = (
        [("struct_size", c_size_t)]
        + [(name, c_void_p) for name in ("query", "k_cache", "v_cache", "k_sf", "v_sf", "page_table", "seq_lens")]
        + [(name, c_void_p) for name in ("out", "out_sf", "lse", "sinks", "cum_seq_lens_q", "query_positions", "draft_mask")]
        + [(name, c_float) for name in ("bmm1_scale", "bmm2_scale", "o_scale", "out_sf_scale")]
        + [("out_sf_start_token", c_int32), ("launch_flags", c_uint32)]
        + [(name, c_void_p) for name in ("bmm1_scale_device", "bmm1_scale_log2_device", "bmm2_scale_device", "workspace")]
        + [("workspace_bytes", c_size_t), ("alibi_slopes", c_void_p)]
    )


class OpenOptions(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("flags", c_uint32), ("log_level", c_int32), ("log", c_void_p), ("log_cookie", c_void_p),
        ("bundle_paths", POINTER(c_char_p)), ("num_bundle_paths", c_size_t), ("memory_bundles", c_void_p),
        ("num_memory_bundles", c_size_t), ("kernel_policy", c_char_p), ("root_hashes", c_void_p), ("num_root_hashes", c_size_t),
    ]


class PlanInfo(Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("kernel", c_char_p), ("bundle", c_char_p), ("reason", c_char_p),
        ("image_sha256", c_uint8 * 32), ("row_passes", c_int32), ("workers", c_int32), ("cluster_size", c_int32),
        ("predicted_ns", c_int32), ("workspace_bytes", c_size_t),
    ]


class Device(Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char * 64)] + [
        (name, c_int32)
        for name in ("compute_capability", "sm_count", "shared_bytes_per_sm", "max_shared_bytes_per_block",
                     "memory_bandwidth_gbps", "driver_version", "resident_clusters_2", "resident_clusters_4", "resident_clusters_8",
                     "resident_clusters_16")
    ]


C_NAMES = {Problem: "libdecode_problem", Tensors: "libdecode_tensors", OpenOptions: "libdecode_open_options",
           PlanInfo: "libdecode_plan_info", Device: "libdecode_device"}


class LibdecodeError(Exception):
    pass


class Library:
    """The functions of libdecode.so; a status other than OK is raised with the library's own message."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.libdecode_status_name.restype = c_char_p
        self.c.libdecode_error_message.restype = c_char_p
        self.c.libdecode_plan_workspace_bytes.restype = c_size_t
        self.c.libdecode_plan_workspace_bytes.argtypes = [c_void_p]
        self.c.libdecode_plan_get_info.argtypes = [c_void_p, POINTER(PlanInfo)]
        self.c.libdecode_plan_create.argtypes = [c_void_p, POINTER(Problem), c_void_p, POINTER(c_void_p)]
        self.c.libdecode_plan_launch.argtypes = [c_void_p, POINTER(Tensors), c_void_p]
        self.c.libdecode_plan_destroy.argtypes = [c_void_p]
        self.c.libdecode_plan_destroy.restype = None
        self.c.libdecode_workspace_init.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p]
        self.c.libdecode_prepare.argtypes = [c_void_p, POINTER(c_void_p), c_size_t]
        self.c.libdecode_reference.argtypes = [POINTER(Problem), POINTER(Tensors)]
        self.c.libdecode_open.argtypes = [POINTER(OpenOptions), POINTER(c_void_p)]
        self.c.libdecode_close.argtypes = [c_void_p]
        self.c.libdecode_close.restype = None

    def check(self, status):
        if status != 0:
            raise LibdecodeError(
                f"{self.c.libdecode_status_name(status).decode()}: {self.c.libdecode_error_message().decode()}")

    def reference(self, problem, tensors):
        self.check(self.c.libdecode_reference(byref(problem), byref(tensors)))

    def open(self, bundle_paths):
        """A context over these bundles and the installed ones."""
        paths = (c_char_p * len(bundle_paths))(*[os.fsencode(path) for path in bundle_paths])
        options = OpenOptions(bundle_paths=paths, num_bundle_paths=len(bundle_paths))
        context = c_void_p()
        self.check(self.c.libdecode_open(byref(options), byref(context)))
        return context

    def plan(self, context, problem):
        """A plan for the current CUDA device, ready to be launched inside a capture, and what was decided."""
        plan, info = c_void_p(), PlanInfo()
        self.check(self.c.libdecode_plan_create(context, byref(problem), None, byref(plan)))
        self.check(self.c.libdecode_prepare(context, byref(plan), 1))
        self.check(self.c.libdecode_plan_get_info(plan, byref(info)))
        return plan, info

    def workspace_init(self, context, address, size, stream):
        self.check(self.c.libdecode_workspace_init(context, address, size, stream))

    def launch(self, plan, tensors, stream):
        self.check(self.c.libdecode_plan_launch(plan, byref(tensors), stream))


def layout_of_mirror():
    """(field, offset, size) lines of every struct, as this file has them."""
    lines = []
    for struct, name in C_NAMES.items():
        lines.append(f"{name} 0 {ctypes.sizeof(struct)}")
        for field in struct._fields_:
            descriptor = getattr(struct, field[0])
            lines.append(f"{name}.{field[0]} {descriptor.offset} {descriptor.size}")
    return lines


def layout_of_header(include_dir):
    """The same lines from the C compiler."""
    program = ["#include <stdio.h>", "#include <libdecode.h>", "int main(void) {"]
    for struct, name in C_NAMES.items():
        program.append(f'printf("{name} 0 %zu\\n", sizeof({name}));')
        for field in struct._fields_:
            program.append(f'printf("{name}.{field[0]} %zu %zu\\n", offsetof({name}, {field[0]}), '
                           f"sizeof((({name} *)0)->{field[0]}));")
    program.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w", encoding="utf-8") as file:
            file.write("\n".join(program))
        subprocess.run([*os.environ.get("CC", "cc").split(), "-I", include_dir, "-o", binary, source], check=True)
        return subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: libdecode_ctypes.py INCLUDE_DIR")
    wrong = [f"here {ours}, libdecode.h {theirs}"
             for ours, theirs in zip(layout_of_mirror(), layout_of_header(sys.argv[1])) if ours != theirs]
    print("\n".join(wrong) if wrong else f"{len(layout_of_mirror())} sizes and offsets agree with libdecode.h")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
