# SPDX-License-Identifier: Apache-2.0
"""Bundles and policy: `libdecode_context`, and what can be asked of it without a GPU."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from ctypes import byref, c_char_p, c_size_t, c_void_p
from typing import Any, NamedTuple

from libdecode import abi
from libdecode.errors import InvalidArgumentError, LibdecodeError
from libdecode.library import library, packaged_bundles
from libdecode.problem import DTYPE_NAMES, FEATURES, choice, require_problem

GPUS = ("sm_90", "sm_100", "sm_103", "sm_120", "sm_121")  # of the bits of libdecode_kernel_info.gpus
_LOG_LEVELS = {"none": abi.LOG_NONE, "error": abi.LOG_ERROR, "warn": abi.LOG_WARN, "info": abi.LOG_INFO, "debug": abi.LOG_DEBUG}
_LOG_NAMES = {number: name for name, number in _LOG_LEVELS.items()}


class Kernel(NamedTuple):
    """One kernel of the bundles: `libdecode_kernel_info`."""

    name: str
    bundle: str
    query_dtypes: tuple[str, ...]
    kv_dtype: str
    head_dim: int
    row_tile: int
    cluster_size: int
    threads: int
    shared_bytes: int
    registers: int
    gpus: tuple[str, ...]
    features: tuple[str, ...]
    image_bytes: int
    compressed_bytes: int
    image_sha256: str


class Bundle(NamedTuple):
    """One bundle: `libdecode_bundle_info`."""

    path: str
    gpus: tuple[str, ...]
    num_kernels: int
    num_images: int
    file_bytes: int
    root_hash: str


class Verdict(NamedTuple):
    """What selection says of one kernel: `libdecode_verdict`."""

    kernel: str
    reason: str
    eligible: bool
    chosen: bool
    predicted_ns: int


class Explanation(NamedTuple):
    """All verdicts about a problem, and either the name of the kernel that it gets or the error that a plan would raise."""

    chosen: str | None
    error: LibdecodeError | None
    verdicts: list[Verdict]


def _gpu_names(bits: int) -> tuple[str, ...]:
    return tuple(name for index, name in enumerate(GPUS) if bits >> index & 1)


def device_preset(name: str) -> abi.Device:
    """Typical facts of "sm_90" (H200), "sm_100" (B200), "sm_103" (B300), "sm_120" (RTX 5090) or "sm_121" (DGX Spark), or of a GPU by its
    name ("H100"; libdecode.h has them all), for `explain` and `Plan` where that GPU is not. Raises ValueError for another name."""
    device = abi.Device()
    library().check(library().device_preset(name.encode(), byref(device)))
    return device


class Context:
    """`libdecode_open`: reads the tables of all bundles; touches no GPU.

    bundle_paths        files and folders of *.bundle, beside the installed ones, which they overlay. The bundles of this package,
                        if it has any, come before them
    kernel_policy       as LIBDECODE_KERNEL, and instead of it
    log_level           "none", "error", "warn", "info", "debug"; None: LIBDECODE_LOG, else "none"
    log                 called with (level, message) from any thread; None: standard error
    ignore_environment  no LIBDECODE_* variable of the C library has any effect
    bundles_only        only bundle_paths
    strict              a slower class of kernel, or loading one inside a capture, is an error
    root_hashes         hexadecimal; if any, other bundles cannot be used

    May be used by any number of threads. Raises ValueError, OverrideError, BundleError, OutOfMemoryError; ImportError where there
    is no libdecode.so.0.
    """

    def __init__(self, bundle_paths: Iterable[str | os.PathLike[str]] = (), *, kernel_policy: str | None = None,
                 log_level: str | None = None, log: Callable[[str, str], None] | None = None, ignore_environment: bool = False,
                 bundles_only: bool = False, strict: bool = False, root_hashes: Iterable[str] = ()):
        self._handle = c_void_p()
        self._library = library()
        self.plans: weakref.WeakSet[Any] = weakref.WeakSet()  # which are to be destroyed before the context
        # A str is an iterable of letters: one path, not many.
        given = [bundle_paths] if isinstance(bundle_paths, (str, os.PathLike)) else list(bundle_paths)
        paths = [os.fsencode(path) for path in ([] if bundles_only else packaged_bundles()) + given]
        hashes = [_hash_bytes(text) for text in root_hashes]
        options = abi.OpenOptions(
            flags=ignore_environment * abi.OPEN_IGNORE_ENVIRONMENT | bundles_only * abi.OPEN_BUNDLES_ONLY | strict * abi.OPEN_STRICT,
            log_level=abi.LOG_DEFAULT if log_level is None else choice("log_level", log_level, _LOG_LEVELS),
            bundle_paths=(c_char_p * len(paths))(*paths), num_bundle_paths=len(paths),
            kernel_policy=None if kernel_policy is None else kernel_policy.encode(),
            root_hashes=ctypes.cast(ctypes.create_string_buffer(b"".join(hashes)), c_void_p) if hashes else None,
            num_root_hashes=len(hashes))
        if log is not None:
            self._log = abi.LOG_FUNCTION(lambda _, level, message: log(_LOG_NAMES.get(level, "?"), message.decode(errors="replace")))
            options.log = self._log
        self._library.check(self._library.open(byref(options), byref(self._handle)))

    @property
    def handle(self) -> c_void_p:
        """The libdecode_context, for calls of `libdecode.abi`. Raises ValueError once it is closed."""
        if not self._handle:
            raise InvalidArgumentError("the context is closed: open another")
        return self._handle

    def close(self) -> None:
        """Destroys the plans of this context and unloads every kernel. Closing again does nothing. Not while another thread uses
        it."""
        for plan in list(self.plans):
            plan.close()
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self._library.close(handle)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Not closed by the garbage collector: a kernel may still run, and unloading it would wait for the GPU or be refused.

    def kernels(self) -> list[Kernel]:
        """Every kernel of the bundles, sorted by name."""
        kernels, info = [], abi.KernelInfo()
        for index in range(self._library.kernel_count(self.handle)):
            self._library.check(self._library.kernel_get_info(self.handle, index, byref(info)))
            kernels.append(Kernel(
                info.name.decode(), info.bundle.decode(),
                tuple(name for number, name in DTYPE_NAMES.items() if info.query_dtypes >> number & 1),
                DTYPE_NAMES.get(info.kv_dtype, "?"), info.head_dim, info.row_tile, info.cluster_size, info.threads, info.shared_bytes,
                info.registers, _gpu_names(info.gpus), tuple(name for name, bit in FEATURES.items() if info.features & bit),
                info.image_bytes, info.compressed_bytes, bytes(info.image_sha256).hex()))
        return kernels

    def bundles(self) -> list[Bundle]:
        """Every bundle, earlier ones overlaid by later ones."""
        bundles, info = [], abi.BundleInfo()
        for index in range(self._library.bundle_count(self.handle)):
            self._library.check(self._library.bundle_get_info(self.handle, index, byref(info)))
            bundles.append(Bundle(info.path.decode(errors="replace"), _gpu_names(info.gpus), info.num_kernels, info.num_images,
                                  info.file_bytes, bytes(info.root_hash).hex()))
        return bundles

    def verify(self) -> None:
        """Decompresses, hashes and audits every image. Raises BundleDamagedError, BundleReadError, OutOfMemoryError."""
        self._library.check(self._library.verify(self.handle))

    def device(self) -> abi.Device:
        """The GPU of the calling thread's current CUDA context. Raises a DriverError or ForkedError."""
        device = abi.Device()
        self._library.check(self._library.device_current(self.handle, byref(device)))
        return device

    def explain(self, problem: abi.Problem, device: str | abi.Device | None = None) -> Explanation:
        """Which kernel `problem` gets on a GPU, why, and why not the others. `device`: a name as of `device_preset`, facts, or
        None for the current GPU; with the first two no GPU is needed. Raises ValueError for a problem that is wrong."""
        require_problem(problem)
        facts = self.device() if device is None else device_preset(device) if isinstance(device, str) else device
        verdicts: list[Verdict] = []

        def report(_cookie: Any, verdict: Any) -> None:
            said = verdict.contents
            verdicts.append(Verdict(said.kernel.decode(), said.reason.decode(errors="replace"), bool(said.eligible),
                                    bool(said.chosen), said.predicted_ns))

        status = self._library.explain(self.handle, byref(problem), byref(facts), abi.VERDICT_FUNCTION(report), None)
        error = self._library.error(status) if status != 0 else None
        if isinstance(error, InvalidArgumentError):
            raise error
        return Explanation(next((verdict.kernel for verdict in verdicts if verdict.chosen), None), error, verdicts)

    def workspace_bytes(self, problem: abi.Problem) -> int:
        """Of `libdecode_decode` on the current GPU. Raises what making a plan does."""
        require_problem(problem)
        needed = c_size_t()
        self._library.check(self._library.decode_workspace_bytes(self.handle, byref(problem), byref(needed)))
        return needed.value


def _hash_bytes(text: str) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != 32:
        raise InvalidArgumentError(f"root_hashes has {text!r}: a hash has 64 hexadecimal digits")
    return value


_lock = threading.Lock()
_default: Context | None = None


def default_context() -> Context:
    """The context of every call that is given none: opened with the first of them, never closed, one a process."""
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = Context()
    return _default
