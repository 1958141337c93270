# SPDX-License-Identifier: Apache-2.0
"""The memory through which the parts of a kernel hand each other partial results.

A launch needs it as its last launch left it. So nobody else may write there, it is made ready once, and launches that may run at
the same time have one each. Where the caller gives none, there is one for each stream, and for each GPU one for all that is
captured.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from libdecode import driver
from libdecode.arrays import is_torch, require_contiguous, size_bytes_of, view
from libdecode.context import Context, default_context
from libdecode.errors import ColdInCaptureError, InvalidArgumentError, NoDeviceError
from libdecode.library import library

ALIGNMENT_BYTES = 256
_SMALLEST_BYTES = 8 << 20
_CAPTURES = "captures"  # in the place of a stream


class Workspace:
    """Device memory that is libdecode's alone, made ready for launches.

    size_bytes  to allocate on the current GPU: of PyTorch if that is imported and has one, else of the driver.
                `Plan.workspace_bytes` says how many a plan needs; more will do, so one can serve many plans
    buffer      instead: a contiguous tensor on a GPU, used from its first multiple of 256 bytes on. Whoever else writes there,
                ever, spoils results or hangs a kernel
    stream      handle of the stream on which the memory is cleared. It is waited for, so launches on every stream find it ready. None:
                PyTorch's current one, without PyTorch the legacy default
    context     None: the default one

    Launches that may run at the same time (on two streams, in two graphs) need one each. It must outlive the graphs that it was
    captured in, and the launches on other streams than the one it was made on. Raises ValueError, ColdInCaptureError, DriverError;
    what PyTorch raises without memory.
    """

    def __init__(self, size_bytes: int | None = None, *, buffer: Any = None, stream: int | None = None, context: Context | None = None):
        if (size_bytes is None) == (buffer is None):
            raise InvalidArgumentError("Workspace() takes either size_bytes or buffer")
        if size_bytes is not None:
            use_torch = driver.torch_has_gpu()
            ordinal = driver.torch_current_ordinal() if use_torch else driver.current_ordinal()
            _refuse_capture(use_torch, stream, size_bytes)
            owner, address, size_bytes = _allocate(size_bytes, ordinal, use_torch)
        else:
            seen = view(buffer, "buffer")
            if seen.device[0] != "cuda":
                raise InvalidArgumentError("buffer is on the host: a workspace is memory of a GPU (the reference needs none)")
            require_contiguous(seen)
            use_torch, ordinal = is_torch(buffer), seen.device[1]
            owner, address, size_bytes = buffer, seen.address, size_bytes_of(seen)
            _refuse_capture(use_torch, stream, size_bytes)
        if stream is None:
            stream = driver.torch_stream(ordinal) if use_torch else 0
        self._take(owner, address, size_bytes, ordinal, use_torch, stream, context or default_context())

    def _take(self, owner: Any, address: int, size_bytes: int, ordinal: int, use_torch: bool, stream: int, context: Context) -> None:
        unaligned = -address % ALIGNMENT_BYTES
        self.owner, self.address, self.size_bytes, self.ordinal = owner, address + unaligned, size_bytes - unaligned, ordinal
        if self.size_bytes < ALIGNMENT_BYTES:
            raise InvalidArgumentError(f"the workspace has {size_bytes} bytes: {2 * ALIGNMENT_BYTES} are the least")
        arguments = (context.handle, self.address, self.size_bytes, stream)
        status = library().workspace_init(*arguments)
        if status == NoDeviceError.status and use_torch:
            driver.torch_make_current(ordinal)
            status = library().workspace_init(*arguments)
        library().check(status)
        driver.synchronize(stream)

    @classmethod
    def _made(cls, size_bytes: int, place: Place, context: Context) -> Workspace:
        made = cls.__new__(cls)
        owner, address, size_bytes = _allocate(size_bytes, place.ordinal, place.use_torch)
        made._take(owner, address, size_bytes, place.ordinal, place.use_torch, place.stream, context)
        return made


def _refuse_capture(use_torch: bool, stream: int | None, size_bytes: int) -> None:
    """Clearing would become a part of the graph, and waiting end the capture."""
    if driver.torch_is_capturing() if use_torch and stream is None else driver.is_capturing(stream or 0):
        raise ColdInCaptureError(f"a workspace of {size_bytes} bytes would be made ready inside a stream capture: make it before")


def _allocate(size_bytes: int, ordinal: int, use_torch: bool) -> tuple[Any, int, int]:
    """What keeps it, its address, and its size: enough that the bytes that were asked for remain behind the alignment."""
    size_bytes += ALIGNMENT_BYTES
    return (*(driver.torch_allocate(size_bytes, ordinal) if use_torch else driver.allocate(size_bytes)), size_bytes)


class Place(NamedTuple):
    """Where a launch goes."""

    ordinal: int  # of the GPU
    use_torch: bool  # memory comes from PyTorch
    stream: int
    is_capturing: bool


def _key(ordinal: int, stream: int, is_capturing: bool) -> tuple[int, int | str]:
    """Launches whose places have one key never run at the same time, but for graphs."""
    if is_capturing:
        return ordinal, _CAPTURES
    # CU_STREAM_PER_THREAD is another stream in every thread
    return ordinal, stream if stream != 2 else f"thread {threading.get_ident()}"


class _Pool:
    """The workspaces of whoever gives none. One that was handed out is kept: a graph may have its address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[tuple[int, int | str], Workspace] = {}
        self._outgrown: list[Workspace] = []

    def find(self, ordinal: int, stream: int, is_capturing: bool) -> Workspace | None:
        """That of a place; None: it is not there yet."""
        return self._ready.get(_key(ordinal, stream, is_capturing))

    def grow(self, place: Place, size_bytes: int, context: Context) -> Workspace:
        """One of that size at least, for the stream, and another for the captures of its GPU, which cannot allocate. Raises
        ColdInCaptureError; what `Workspace` does."""
        if place.is_capturing:
            raise ColdInCaptureError(
                f"a workspace of {size_bytes} bytes would have to be allocated inside a stream capture: make this call once before "
                "capturing, or give workspace_buffer=libdecode.Workspace(...)")
        size_bytes = max(_SMALLEST_BYTES, 1 << (size_bytes - 1).bit_length())
        with self._lock:
            wanted = _key(place.ordinal, place.stream, False)
            for key in (wanted, (place.ordinal, _CAPTURES)):
                old = self._ready.get(key)
                if old is not None and old.size_bytes >= size_bytes:
                    continue
                if old is not None:
                    self._outgrown.append(old)
                self._ready[key] = Workspace._made(size_bytes, place, context)
            return self._ready[wanted]


pool = _Pool()
