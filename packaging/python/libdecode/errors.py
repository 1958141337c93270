# SPDX-License-Identifier: Apache-2.0
"""The statuses of libdecode.h as exceptions. One class a status; the hundreds are base classes.

1xx, the caller's mistake, is a ValueError; 2xx, no kernel, a NotImplementedError; everything else a RuntimeError. So a program
that catches those of Python needs to know none of these names.
"""

from __future__ import annotations


class LibdecodeError(Exception):
    """Any failure of libdecode. `str(error)` is what, where, why and what to do, in the library's words."""

    status = 0  #: the number of the libdecode_status
    cuda_result = 0  #: the CUresult behind a CudaError, else 0

    @classmethod
    def status_name(cls) -> str:
        """The enumerator in libdecode.h."""
        return next((name for name, (_, made) in _STATUSES.items() if made is cls), "LIBDECODE_ERROR_?")


class InvalidArgumentError(LibdecodeError, ValueError):
    """100, and the base of 1xx: an argument is wrong; the message names it, its value and what is accepted."""


class StructSizeError(InvalidArgumentError):
    """101: package and library are of different versions."""


class WorkspaceTooSmallError(InvalidArgumentError):
    """102."""


class WrongDeviceError(InvalidArgumentError):
    """103: the plan was made for another kind of GPU."""


class UnsupportedError(LibdecodeError, NotImplementedError):
    """200, and the base of 2xx: no kernel does this; the message names what."""


class NotInBundleError(UnsupportedError):
    """201: libdecode has such kernels, the bundles at hand do not."""


class NoGpuImageError(UnsupportedError):
    """202: no bundle serves this GPU."""


class OverrideError(UnsupportedError):
    """203: LIBDECODE_KERNEL or kernel_policy has a typo, no match, or forces what cannot be done."""


class StrictError(UnsupportedError):
    """204: only a slower class of kernel is at hand, and strict was asked for."""


class BundleError(LibdecodeError, RuntimeError):
    """The base of 3xx."""


class BundleNotFoundError(BundleError):
    """300."""


class BundleDamagedError(BundleError):
    """301."""


class BundleVersionError(BundleError):
    """302: bundle and library are of different releases."""


class BundleReadError(BundleError):
    """303: a file or folder cannot be read."""


class DriverError(LibdecodeError, RuntimeError):
    """The base of 4xx."""


class NoDriverError(DriverError):
    """400: libcuda.so.1 is absent."""


class DriverTooOldError(DriverError):
    """401."""


class NoDeviceError(DriverError):
    """402: no GPU, or no current CUDA context."""


class CudaError(DriverError):
    """403: a driver call failed; `cuda_result` has its code."""


class StateError(LibdecodeError, RuntimeError):
    """The base of 5xx."""


class ColdInCaptureError(StateError):
    """500: a kernel, or a workspace, would have to be made ready inside a stream capture."""


class ForkedError(StateError):
    """501: CUDA does not survive fork()."""


class OutOfMemoryError(StateError):
    """502: of the host."""


class InternalError(StateError):
    """599: a defect of libdecode; please report the message."""


_STATUSES = {
    "LIBDECODE_ERROR_INVALID_ARGUMENT": (100, InvalidArgumentError),
    "LIBDECODE_ERROR_STRUCT_SIZE": (101, StructSizeError),
    "LIBDECODE_ERROR_WORKSPACE_TOO_SMALL": (102, WorkspaceTooSmallError),
    "LIBDECODE_ERROR_WRONG_DEVICE": (103, WrongDeviceError),
    "LIBDECODE_ERROR_UNSUPPORTED": (200, UnsupportedError),
    "LIBDECODE_ERROR_NOT_IN_BUNDLE": (201, NotInBundleError),
    "LIBDECODE_ERROR_NO_GPU_IMAGE": (202, NoGpuImageError),
    "LIBDECODE_ERROR_OVERRIDE": (203, OverrideError),
    "LIBDECODE_ERROR_STRICT": (204, StrictError),
    "LIBDECODE_ERROR_BUNDLE_NOT_FOUND": (300, BundleNotFoundError),
    "LIBDECODE_ERROR_BUNDLE_DAMAGED": (301, BundleDamagedError),
    "LIBDECODE_ERROR_BUNDLE_VERSION": (302, BundleVersionError),
    "LIBDECODE_ERROR_IO": (303, BundleReadError),
    "LIBDECODE_ERROR_NO_DRIVER": (400, NoDriverError),
    "LIBDECODE_ERROR_DRIVER_TOO_OLD": (401, DriverTooOldError),
    "LIBDECODE_ERROR_NO_DEVICE": (402, NoDeviceError),
    "LIBDECODE_ERROR_CUDA": (403, CudaError),
    "LIBDECODE_ERROR_COLD_IN_CAPTURE": (500, ColdInCaptureError),
    "LIBDECODE_ERROR_FORKED": (501, ForkedError),
    "LIBDECODE_ERROR_OUT_OF_MEMORY": (502, OutOfMemoryError),
    "LIBDECODE_ERROR_INTERNAL": (599, InternalError),
}
for _number, _class in _STATUSES.values():
    _class.status = _number
del _number, _class
_BY_NUMBER = dict(_STATUSES.values())
_BASES = {1: InvalidArgumentError, 2: UnsupportedError, 3: BundleError, 4: DriverError, 5: StateError}


def from_status(status: int, message: str, cuda_result: int = 0) -> LibdecodeError:
    """The exception of a status, and of a number that a later library may have: that of its hundred."""
    error = _BY_NUMBER.get(status, _BASES.get(status // 100, LibdecodeError))(message)
    error.status = status
    if status == CudaError.status:
        error.cuda_result = cuda_result
    return error
