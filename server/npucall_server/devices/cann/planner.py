"""Plans calls: runs first phases without second ones, in threads that run no calls.

What CANN does with a first phase alone, according to its public sources (of opbase, from 8.5.0 on;
those of 8.1 to 8.3 are not public):

- aclDestroyAclOpExecutor is documented for executors that repeat. If an executor never ran, it
  frees the executor's host memory, or gives the memory back to a pool. It refuses an object that it
  does not know as an executor with 561000.
- The entry in the thread's cache stays, without its key, until 10,000 other entries have pushed it
  out or the thread ends. CANN does not answer from it: a guard notices that no second phase has
  filled it. A version without that guard would answer the thread's next equal first phase from the
  empty entry, and the second phase would launch nothing.
- An executor that is not destroyed keeps its entry too. Then equal first phases of the thread are
  not cached any more.
- A thread that ends waits up to 60 s for the executors that its cache still counts, unless a thread
  that ran a second phase has ended before.

So a thread that plans does not run calls. It is replaced after ``PLANS_A_THREAD`` first phases, and
may take a minute to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import LifoQueue

from npucall.declare.prepare import Prepared
from npucall.errors import NpucallError
from npucall_server.devices.base import BrokenDeviceError, device_lost
from npucall_server.devices.cann.descriptors import Descriptors
from npucall_server.devices.cann.device_memory import piece_bytes
from npucall_server.devices.cann.launch import known_workspace, tell_workspace, workspace_of
from npucall_server.devices.cann.operators import OpApi
from npucall_server.devices.cann.runtime import DeviceContext
from npucall_server.devices.cleanup import Cleanup
from npucall_server.devices.renewed import Renewed

PLANS_A_THREAD = 1000
"""First phases after which a thread is replaced: each of them may leave something in the thread."""
_NOWHERE = 1 << 40
"""Start of the addresses of tensors that no kernel reads: not null, and aligned as usual."""


class Planner:
    """Asks first phases how much workspace they need. Used in the thread that makes it.

    It binds the context to that thread. It needs no stream and no device memory. In a server, a
    planner and a lane have different threads. ``npucall-server doctor`` puts both into one thread,
    to see whether this CANN runs a call that was planned before.
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
        """Bytes of workspace that a call needs. Raises the error of its first phase."""
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
        """Does nothing: everything that is left goes with the thread."""


def _addresses(call: Prepared) -> dict[str, int]:
    """Addresses without memory, one tensor after the other, as in a lane's memory."""
    found, end = {}, _NOWHERE
    for name, spec in {**call.inputs, **call.outputs}.items():
        if spec.storage_bytes:
            found[name] = end
            end += piece_bytes(spec.storage_bytes)
    return found


class Plans:
    """As many planners as there are turns. Each gets a thread when it is first needed.

    If ``keeps``, a call is planned only once: its workspace size is kept with it.
    """

    def __init__(self, planners: Sequence[Renewed[Planner]], *, keeps: bool) -> None:
        self._planners, self._keeps = planners, keeps
        self._free: LifoQueue[Renewed[Planner]] = LifoQueue()
        for planner in planners:
            self._free.put(planner)

    def plan(self, call: Prepared) -> int:
        """Bytes of workspace. The calling thread waits. Raises the error of the first phase."""
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
        """Closes them. Their threads end a little later."""
        with Cleanup() as every:
            for planner in self._planners:
                every.callback(planner.close)
