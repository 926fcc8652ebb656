"""The two phases of an operator, which belong to one aclOpExecutor [src:executor-once]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import byref, c_uint64, c_void_p
from time import perf_counter_ns
from typing import Any

from npucall.declare.prepare import Prepared
from npucall.errors import NpucallError
from npucall_server.devices.cann.functions import NnOpBase
from npucall_server.devices.cann.operators import OpApiFunction


class Launcher:
    """Launches operators on one stream, in one thread."""

    def __init__(self, base: NnOpBase, stream: c_void_p) -> None:
        self._base, self._stream = base, stream
        self.left_unrun = False
        """Whether a first phase had no second one. Then later launches of this thread may not run;
        ``planner`` says why."""

    def launch(
        self,
        function: OpApiFunction,
        arguments: Sequence[Any],
        before_phase_two: Callable[[int], int | None],
    ) -> int:
        """Queues one operator; answers the nanoseconds of phase one.

        ``before_phase_two`` gets the size of the workspace and answers its address. If it raises,
        the launch ends, and this thread must not be used any more. If the first phase fails, it
        makes no aclOpExecutor. The second phase consumes the executor, even if it fails. If
        ``before_phase_two`` fails, the executor has to be destroyed; nothing else can fail there.
        """
        start = perf_counter_ns()
        size, executor = _phase_one(function, arguments)
        spent = perf_counter_ns() - start
        try:
            workspace = before_phase_two(size)
        except BaseException:
            self.left_unrun = True
            _destroy(self._base, executor)
            raise
        function.execute(workspace, size, executor, self._stream)
        return spent


def workspace_of(function: OpApiFunction, arguments: Sequence[Any], base: NnOpBase) -> int:
    """Bytes of workspace that the operator needs: phase one alone."""
    size, executor = _phase_one(function, arguments)
    _destroy(base, executor)
    return size


def known_workspace(call: Prepared) -> int | None:
    """Bytes of workspace that a call is known to need; None if no first phase has said it."""
    found = call.followed.get(workspace_of)
    return found if isinstance(found, int) else None


def tell_workspace(call: Prepared, size: int) -> None:
    """Keeps with a call how much workspace its first phase asked for."""
    call.followed[workspace_of] = size


def _phase_one(function: OpApiFunction, arguments: Sequence[Any]) -> tuple[int, c_void_p]:
    size, executor = c_uint64(), c_void_p()
    try:
        function.get_workspace_size(*arguments, byref(size), byref(executor))
    except NpucallError as error:
        error.details["phase"] = "plan"
        raise
    return size.value, executor


def _destroy(base: NnOpBase, executor: c_void_p) -> None:
    """Destroys an executor that never ran. If CANN refuses, only host memory is lost."""
    with suppress(NpucallError):
        base.aclDestroyAclOpExecutor(executor)
