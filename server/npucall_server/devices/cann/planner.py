"""Plans calls: first phases that no second one follows, away from the threads that run calls.

What CANN does with a first phase alone, by its public sources (of opbase, from 8.5.0 on; those of
8.1 to 8.3 are not public):

- aclDestroyAclOpExecutor is documented for executors that repeat. Of one that never ran it frees
  the host memory, or gives it back to a pool; what it does not know as an executor it refuses with
  561000.
- The entry in the thread's cache stays behind, without its key, until 10,000 others have pushed it
  out or the thread ends. It answers nothing: a guard sees that no second phase has filled it. A
  version without that guard would answer the next equal first phase of the thread from the empty
  entry, and the second phase would launch nothing.
- An executor that stays alive keeps its entry too; equal first phases of the thread are then not
  cached any more.
- A thread that ends waits up to 60 s for executors that its cache still counts, unless some thread
  that ran a second phase has ended before.

So a thread that plans runs nothing, is replaced after ``PLANS_A_THREAD`` first phases, and may take
a minute to end.
"""

from __future__ import annotations

from queue import LifoQueue
from typing import TYPE_CHECKING

from npucall_server.devices.base import BrokenDeviceError, device_lost
from npucall_server.devices.cann.descriptors import Descriptors
from npucall_server.devices.cann.launch import known_workspace, tell_workspace, workspace_of
from npucall_server.devices.cann.memory import piece_bytes
from npucall_server.devices.cleanup import Cleanup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.declare.prepare import Prepared
    from npucall.errors import NpucallError
    from npucall_server.devices.cann.operators import OpApi
    from npucall_server.devices.cann.runtime import DeviceContext
    from npucall_server.devices.renewed import Renewed

PLANS_A_THREAD = 1000
"""First phases after which a thread is replaced: each may leave something behind in it."""
_NOWHERE = 1 << 40
"""Where tensors lie whose addresses nobody reads: not null, and aligned as addresses are."""


class Planner:
    """Asks first phases for their workspace, in the thread that makes it: it binds the context.

    It needs no stream and no memory of the device. Beside a lane, on one thread, it shows whether
    this CANN runs what has been planned (``npucall-server doctor``); a server keeps them apart.
    """

    def __init__(self, device: DeviceContext, operators: OpApi) -> None:
        self._base, self._operators = device.libraries.base, operators
        self._plans = 0
        self.broken: NpucallError | None = None
        """Why the device will not work again in this process."""
        device.bind()

    @property
    def spent(self) -> bool:
        """Whether its thread has made as many first phases as one may."""
        return self._plans >= PLANS_A_THREAD

    def plan(self, call: Prepared) -> int:
        """Bytes of workspace that a call needs. Raises what its first phase does."""
        if self.broken is not None:
            raise device_lost()
        function = self._operators.needed(call.operator)
        self._plans += 1
        try:
            with Descriptors(self._base, call, _addresses(call)) as descriptors:
                return workspace_of(function, descriptors.arguments, self._base)
        except BrokenDeviceError as error:
            self.broken = error
            raise

    def close(self) -> None:
        """There is nothing to give back: what is left goes with the thread."""


def _addresses(call: Prepared) -> dict[str, int]:
    """Addresses that nobody owns, each tensor's behind the one before, as in a lane's memory."""
    found, end = {}, _NOWHERE
    for name, spec in {**call.inputs, **call.outputs}.items():
        if spec.storage_bytes:
            found[name] = end
            end += piece_bytes(spec.storage_bytes)
    return found


class Plans:
    """Planners, as many as calls have turns, each in a thread that is opened when it is needed.

    Where ``keeps``, a call is planned once: what it needs is kept with it.
    """

    def __init__(self, planners: Sequence[Renewed[Planner]], *, keeps: bool) -> None:
        self._planners, self._keeps = planners, keeps
        self._free: LifoQueue[Renewed[Planner]] = LifoQueue()
        for planner in planners:
            self._free.put(planner)

    def plan(self, call: Prepared) -> int:
        """Bytes of workspace; the calling thread waits. Raises what the first phase does."""
        known = known_workspace(call)
        if self._keeps and known is not None:
            return known
        planner = self._free.get()
        try:
            workspace = planner.do(lambda planner: planner.plan(call))
        finally:
            self._free.put(planner)
        if self._keeps:
            tell_workspace(call, workspace)
        return workspace

    def close(self) -> None:
        """Closes them. Their threads end a while later."""
        with Cleanup() as every:
            for planner in self._planners:
                every.callback(planner.close)
