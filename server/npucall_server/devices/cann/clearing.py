"""Fills device memory with zeros, by a kernel on a lane's stream.

aclrtMemsetAsync could do it too. But on all products except the newest ones it fills host memory
and copies it to the device, which takes as long as a call of that size.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Output, parameter_of
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT
from npucall.errors import NpucallError, OutOfMemoryError
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.device_memory import ALIGNED, device_buffer, round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ctypes import c_void_p

    from npucall_server.devices.cann.functions import AscendCL

    Launch = Callable[[Prepared, Mapping[str, int], Callable[[int], int | None]], int]
    """Queues a call whose tensors lie at addresses. The function answers where its workspace is."""

SLOWER = "device memory is cleared by aclrtMemsetAsync, which is slower"
"""Beginning of the note that says that the kernel is missing."""
_SELF = "selfRef"
_ZERO = prototype_only(
    "aclnnInplaceZero", (parameter_of(_SELF, "aclTensor*", Output),), "aclnn_zero.h"
)
_LARGEST = 1 << 30
"""The most bytes that one kernel fills."""


class Clearing:
    """Fills memory with zeros for a lane. Used in the lane's thread.

    If the kernel is missing, ``note`` is called once with the reason, and copies do its work.
    """

    def __init__(
        self, acl: AscendCL, stream: c_void_p, launch: Launch, note: Callable[[str], None]
    ) -> None:
        self._acl, self._stream, self._launch, self._note = acl, stream, launch, note
        self._workspace = device_buffer(acl)
        self._has_kernel = True

    @property
    def kept(self) -> int:
        """Bytes of device memory that are kept."""
        return self._workspace.size

    def clear(self, address: int, length: int, room: int = 0) -> None:
        """Queues work that fills memory with zeros.

        It also fills the memory up to the next multiple of 32 bytes, and perhaps up to ``room``.
        The address is a multiple of 32.
        """
        if self._has_kernel:
            try:
                starts, size = pieces(round_up(length, ALIGNED), room)
                for start in starts:
                    self._launch(_call(size), {_SELF: address + start}, self._workspace_of)
            except NpucallError as error:
                self._go_without_kernel(error)
            else:
                return
        self.copy_zeros(address, length)

    def copy_zeros(self, address: int, length: int, room: int = 0) -> None:
        """As ``clear``, but without a kernel: allowed between the phases of another kernel."""
        del room
        self._acl.aclrtMemsetAsync(address, length, 0, length, self._stream)

    def settle(self) -> None:
        """To be called when the stream has done what was queued."""
        self._workspace.settle()

    def give_back(self) -> None:
        """Gives the memory back."""
        self._workspace.give_back()

    def _go_without_kernel(self, error: NpucallError) -> None:
        """Goes on without the kernel if the operator itself was refused; else raises the error."""
        refused = error.details.get("function", _ZERO.name).startswith(_ZERO.name)
        if not refused or isinstance(error, BrokenDeviceError | OutOfMemoryError):
            raise error
        self._has_kernel = False
        self._note(f"{SLOWER}: {error}")

    def _workspace_of(self, size: int) -> int | None:
        """Address of the kernel's workspace, which never holds a caller's data."""
        return self._workspace.reserve_beside(size)


def pieces(length: int, room: int) -> tuple[list[int], int]:
    """The pieces that fill a length with zeros: their starts, and one size, a power of two.

    There are only a few sizes, since planning the first kernel of each size takes long. The last
    piece may overlap the one before it. It may end after the length, but not after ``room``.
    """
    size = 1 << (length - 1).bit_length()
    if size > max(length, room):
        size //= 2
    size = min(size, _LARGEST)
    return [*range(0, length - size, size), max(length - size, 0)], size


@lru_cache
def _call(size: int) -> Prepared:
    """The call that fills ``size`` bytes. It is the same on every product."""
    spec = TensorSpec(FLOAT, (size // FLOAT.itemsize,))
    return prepare(Call(_ZERO, {_SELF: spec}, ()), A2, Catalogue([_ZERO]))
