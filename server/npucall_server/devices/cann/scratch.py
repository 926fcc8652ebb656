"""Device memory that a lane keeps beside the tensors of calls: a workspace, and zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall_server.devices.cann.launch import known_workspace, tell_workspace
from npucall_server.devices.cann.memory import device_buffer
from npucall_server.devices.cleanup import Cleanup

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall_server.devices.cann.clearing import Clearing
    from npucall_server.devices.cann.functions import AscendCL


class Scratch:
    """One workspace for all that a lane launches, and what its calls read where nobody reads.

    ``clearing`` fills it on the lane's stream.
    """

    def __init__(self, acl: AscendCL, clearing: Clearing) -> None:
        self._clearing = clearing
        self._workspace, self._zeros = device_buffer(acl), device_buffer(acl)

    @property
    def kept(self) -> int:
        """Bytes of device memory that are kept."""
        return self._workspace.size + self._zeros.size + self._clearing.kept

    def disown(self) -> None:
        """The calls until now were another owner's than the next one. Nobody writes zeros."""
        self._workspace.disown()

    def distrust(self) -> None:
        """Likewise, and what was queued may have failed."""
        self._workspace.distrust()
        self._zeros.distrust()

    def reserve_zeros(self, size: int) -> int:
        """Address of so many bytes that are zeros behind ``clear``; nothing is under way.

        Raises OutOfMemoryError.
        """
        return self._zeros.reserve(size) or 0

    def clear(self) -> None:
        """Queues that others' bytes are filled with zeros, and zeros that are new."""
        self._workspace.clear(self._clearing.clear)
        self._zeros.clear(self._clearing.clear)

    def expect(self, call: Prepared) -> None:
        """Reserves the workspace that a call is known to need, before its first phase."""
        self._workspace.reserve_beside(known_workspace(call) or 0)

    def reserve_workspace(self, call: Prepared, size: int) -> int | None:
        """Address of so many bytes; None for none. Raises OutOfMemoryError.

        Between the phases of an operator, where no other one is launched: what is new, which is
        rare, is filled without a kernel. Where there is none, the next try ``expect``s it, and ends
        before a first phase.
        """
        try:
            workspace = self._workspace.reserve_beside(size)
            self._workspace.clear(self._clearing.copy_zeros, size)
        except NpucallError:
            tell_workspace(call, size)
            raise
        return workspace

    def settle(self) -> None:
        """The stream has passed what was queued."""
        self._workspace.settle()
        self._clearing.settle()

    def release(self) -> None:
        """Gives the memory back."""
        with Cleanup() as every:
            every.callback(self._workspace.release)
            every.callback(self._zeros.release)
            every.callback(self._clearing.release)
