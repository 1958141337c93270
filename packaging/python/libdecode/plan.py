# SPDX-License-Identifier: Apache-2.0
"""A kernel chosen once, launched many times: `libdecode_plan`, with as little Python as possible between the caller and the
launch."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, NamedTuple

from libdecode import abi, driver
from libdecode.arrays import view
from libdecode.context import Context, default_context, device_preset
from libdecode.errors import InvalidArgumentError, NoDeviceError
from libdecode.library import library
from libdecode.problem import require_problem
from libdecode.workspace import Workspace

_pack = abi.TENSORS_STRUCT.pack
_TENSORS_BYTES = abi.TENSORS_BYTES


class PlanInfo(NamedTuple):
    """What selection decided: `libdecode_plan_info`."""

    kernel: str
    bundle: str
    reason: str
    image_sha256: str
    row_passes: int
    workers: int
    cluster_size: int
    predicted_ns: int
    workspace_bytes: int


class Plan:
    """The kernel of a problem.

    problem    a `Problem`; read here, later changes have no effect
    device     None: the GPU of the current CUDA context, whose kernel is loaded at once, so that `run` may be captured. "cpu":
               the float64 reference on the host. A name as of `device_preset`, or facts: for `info` and `workspace_bytes` alone
    context    None: the default one
    workspace  a `Workspace` that other plans may share; None: one of the plan's own. Runs of a plan that may overlap (on two
               streams, in two graphs) need one each: give it to `run`

    May be used by any number of threads. Raises ValueError for a wrong problem, TypeError for what is none, NotImplementedError where no
    kernel does it, else another LibdecodeError.
    """

    def __init__(self, problem: abi.Problem, *, device: str | abi.Device | None = None, context: Context | None = None,
                 workspace: Workspace | None = None):
        self._handle: int | None = None
        require_problem(problem)
        if not isinstance(device, (str, abi.Device, type(None))):
            raise TypeError(f"device is a {type(device).__name__}: it must be None, a name or a libdecode.abi.Device")
        self._library = library()
        self._problem = type(problem).from_buffer_copy(problem)
        self.is_reference = device == "cpu"
        self.workspace = workspace
        self._launch = self._library.plan_launch_packed
        self._uses_torch = False
        if self.is_reference:
            return
        self.context = context or default_context()
        facts = device_preset(device) if isinstance(device, str) else device
        handle = c_void_p()
        self._library.check(self._library.plan_create(self.context.handle, byref(problem), None if facts is None else byref(facts),
                                                      byref(handle)))
        self._handle = handle.value
        self.context.plans.add(self)
        if device is None:
            self._library.check(self._library.prepare(self.context.handle, byref(handle), 1))
            self._uses_torch = driver.torch_has_gpu()
            if workspace is None:
                self.workspace = Workspace(max(self.workspace_bytes, 256), context=self.context)

    def close(self) -> None:
        """Frees the plan; launches already enqueued are not affected. Closing again does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.plan_destroy(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    @property
    def handle(self) -> int | None:
        """The libdecode_plan, for calls of `libdecode.abi`; None for the reference, and once it is closed."""
        return self._handle

    @property
    def workspace_bytes(self) -> int:
        """Of device memory, that a run needs."""
        return int(self._library.plan_workspace_bytes(self._handle))

    @property
    def info(self) -> PlanInfo:
        """Which kernel, and why. Raises ValueError for the reference, which has none."""
        if self.is_reference:
            raise InvalidArgumentError("the reference has no kernel to tell about")
        info = abi.PlanInfo()
        self._library.check(self._library.plan_get_info(self._handle, byref(info)))
        return PlanInfo(info.kernel.decode(), info.bundle.decode(errors="replace"), info.reason.decode(errors="replace"),
                        bytes(info.image_sha256).hex(), info.row_passes, info.workers, info.cluster_size, info.predicted_ns,
                        info.workspace_bytes)

    def run(self, query: Any, k_cache: Any, v_cache: Any, page_table: Any, seq_lens: Any, out: Any, *, bmm1_scale: float = 1.0,
            bmm2_scale: float = 1.0, stream: int | None = None, lse: Any = None, sinks: Any = None, k_sf: Any = None,
            v_sf: Any = None, out_sf: Any = None, cum_seq_lens_q: Any = None, query_positions: Any = None, draft_mask: Any = None,
            alibi_slopes: Any = None, query_rope: Any = None, sparse_token_ids: Any = None, sparse_top_k_lens: Any = None,
            query_offsets: Any = None, out_offsets: Any = None, k_offsets: Any = None, v_offsets: Any = None,
            bmm1_scale_device: Any = None, bmm1_scale_log2_device: Any = None,
            bmm2_scale_device: Any = None, o_scale: float = 1.0, out_sf_scale: float = 1.0, out_sf_start_token: int = 0,
            programmatic: bool = False, history_final: bool = False, workspace: Workspace | None = None) -> None:
        """Enqueues the kernel and returns; for device="cpu" computes.

        Arguments are those of `libdecode_tensors`, by name: tensors, or addresses as int, on the device of the plan, with the
        dtypes, shapes and strides that the problem says. That is not looked at here: what is wrong reads or writes elsewhere.
        MLA has no v_cache, contiguous KV and sparse MLA no page_table: None. They must live, and keep their values, until the kernel has run.
        Lengths, page table and scales on the device are read when it runs; the host's scales are those of this call.

        stream        handle; None: PyTorch's current one if PyTorch is imported and has a GPU, else the legacy default
        programmatic  the kernel may begin before the one ahead of it on the stream ends; it reads nothing before that has
        history_final with programmatic, a promise: lengths, page tables and all KV rows but the newest were final before the kernel
                      ahead began (LIBDECODE_LAUNCH_HISTORY_FINAL of libdecode_problem.h says which); most kernels then read older rows at
                      once

        Allocates no device memory, copies nothing, waits for nothing. Raises ValueError for a missing or unaligned tensor, a
        scale of 0, a workspace too small; DriverError, StateError.
        """
        if not (bmm1_scale and bmm2_scale and o_scale and out_sf_scale):
            raise InvalidArgumentError("a scale is 0: the library takes that for 1. On the device bmm1_scale and bmm2_scale may be 0")
        try:  # PyTorch's tensors are the case that is to be fast
            rows = query.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr()
            indices = page_table.data_ptr(), seq_lens.data_ptr(), out.data_ptr()
        except AttributeError:
            rows = _address(query), _address(k_cache), 0 if v_cache is None else _address(v_cache)
            indices = 0 if page_table is None else _address(page_table), 0 if seq_lens is None else _address(seq_lens), _address(out)
        memory = self.workspace if workspace is None else workspace
        tensors = _pack(
            _TENSORS_BYTES, *rows, 0 if k_sf is None else _address(k_sf), 0 if v_sf is None else _address(v_sf), *indices,
            0 if out_sf is None else _address(out_sf), 0 if lse is None else _address(lse), 0 if sinks is None else _address(sinks),
            0 if cum_seq_lens_q is None else _address(cum_seq_lens_q), 0 if query_positions is None else _address(query_positions),
            0 if draft_mask is None else _address(draft_mask), bmm1_scale, bmm2_scale, o_scale, out_sf_scale, out_sf_start_token,
            programmatic | (history_final and abi.LAUNCH_HISTORY_FINAL), 0 if bmm1_scale_device is None else _address(bmm1_scale_device),
            0 if bmm1_scale_log2_device is None else _address(bmm1_scale_log2_device),
            0 if bmm2_scale_device is None else _address(bmm2_scale_device),
            0 if memory is None else memory.address, 0 if memory is None else memory.size_bytes,
            0 if alibi_slopes is None else _address(alibi_slopes), 0 if query_rope is None else _address(query_rope),
            0 if sparse_token_ids is None else _address(sparse_token_ids), 0 if sparse_top_k_lens is None else _address(sparse_top_k_lens),
            0 if query_offsets is None else _address(query_offsets), 0 if out_offsets is None else _address(out_offsets),
            0 if k_offsets is None else _address(k_offsets), 0 if v_offsets is None else _address(v_offsets))
        if self.is_reference:
            status = self._library.reference_packed(self._problem, tensors)
        else:
            if stream is None and self._uses_torch and memory is not None:
                stream = driver.torch_stream(memory.ordinal)
            status = self._launch(self._handle, tensors, stream)
        if status != 0:
            self._recover(status, tensors, stream, memory)

    def _recover(self, status: int, tensors: bytes, stream: int | None, memory: Workspace | None) -> None:
        if status == NoDeviceError.status and self._uses_torch and memory is not None:
            driver.torch_make_current(memory.ordinal)
            status = self._launch(self._handle, tensors, stream)
        self._library.check(status)


def _address(tensor: Any) -> int:
    if tensor is None:
        return 0  # the library says which of those that it needs
    if type(tensor) is int:
        return tensor
    if hasattr(tensor, "data_ptr"):
        return int(tensor.data_ptr())
    return view(tensor, "tensor").address
