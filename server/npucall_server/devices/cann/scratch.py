"""Device memory that a lane keeps in addition to the tensors of calls: a workspace, and zeros."""

from __future__ import annotations

from npucall.declare.prepare import Prepared
from npucall.errors import NpucallError
from npucall_server.devices.cann.clearing import Clearing
from npucall_server.devices.cann.device_memory import device_buffer
from npucall_server.devices.cann.functions import AscendCL
from npucall_server.devices.cann.launch import known_workspace, tell_workspace
from npucall_server.devices.cleanup import Cleanup


class Scratch:
    """One workspace for all launches of a lane, and zeros for inputs whose values no kernel reads.

    ``clearing`` clears both on the lane's stream.
    """

    def __init__(self, acl: AscendCL, clearing: Clearing) -> None:
        self._clearing = clearing
        self._workspace, self._zeros = device_buffer(acl), device_buffer(acl)

    @property
    def kept(self) -> int:
        """Bytes of device memory that are kept."""
        return self._workspace.size + self._zeros.size + self._clearing.kept

    def disown(self) -> None:
        """The owner changes: the calls until now had another owner. Zeros are never written."""
        self._workspace.disown()

    def distrust(self) -> None:
        """As ``disown``; in addition, queued work may have failed."""
        self._workspace.distrust()
        self._zeros.distrust()

    def reserve_zeros(self, size: int) -> int:
        """Address of ``size`` bytes, which are zeros after ``clear``. No work may be under way.

        Raises OutOfMemoryError.
        """
        return self._zeros.reserve(size) or 0

    def clear(self) -> None:
        """Queues work that fills other owners' bytes, and new memory for zeros, with zeros."""
        self._workspace.clear(self._clearing.clear)
        self._zeros.clear(self._clearing.clear)

    def expect(self, call: Prepared) -> None:
        """Before a first phase: reserves and clears the workspace that a call is known to need."""
        if size := known_workspace(call):
            self._workspace.reserve_beside(size)
            self._workspace.clear(self._clearing.clear)

    def reserve_workspace(self, call: Prepared, size: int) -> int | None:
        """Address of ``size`` bytes; None if ``size`` is 0. Raises OutOfMemoryError.

        It is called between the phases of an operator, where no other operator may be launched. So
        new memory, which is rare, is cleared without a kernel. If there is no memory, the next try
        calls ``expect``, and fails before a first phase.
        """
        try:
            workspace = self._workspace.reserve_beside(size)
            self._workspace.clear(self._clearing.copy_zeros, size)
        except NpucallError:
            tell_workspace(call, size)
            raise
        return workspace

    def settle(self) -> None:
        """To be called when the stream has done what was queued."""
        self._workspace.settle()
        self._clearing.settle()

    def give_back(self) -> None:
        """Gives the memory back."""
        with Cleanup() as every:
            every.callback(self._workspace.give_back)
            every.callback(self._zeros.give_back)
            every.callback(self._clearing.give_back)
