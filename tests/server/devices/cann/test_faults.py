"""Every C function that a plan, a call or a program uses fails: in every situation, every way."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from tests.more import TURNS

from npucall.errors import DeviceLostError
from npucall.statuses import Fate
from npucall_server.devices.base import ResidentPart, Step
from npucall_server.devices.cann.functions import AscendCL, NnOpBase
from npucall_server.devices.cann.program import pace_of

from .calls import SITUATIONS, Case, Situation, l1
from .faults import CANNOT_FAIL, SYNCHRONISE, Fault, failure, fault_of, kind_of
from .opened import Open, Opened, bytes_of

NOT_NEEDED_AGAIN = (SYNCHRONISE, "aclDestroy", "aclrtFree")
"""A stream that cannot be waited for breaks the device; what is destroyed once is gone."""
MANY = 20
"""So often a function fails in a row that a second try of the call does not help."""
NOT_OF_CALLS = {
    "aclInit", "aclFinalize", "aclFinalizeReference", "aclrtGetVersion", "aclsysGetCANNVersion",
    "aclsysGetVersionStr", "aclrtGetDeviceCount", "aclrtSetDevice", "aclrtResetDevice",
    "aclrtGetSocName", "aclrtGetRunMode", "aclrtQueryDeviceStatus",
    "aclrtGetDeviceUtilizationRate", "aclrtGetCurrentContext", "aclrtSetCurrentContext",
    "aclrtSetDeviceSatMode", "aclrtSetSysParamOpt", "aclrtCtxSetSysParamOpt",
    "aclrtCreateStreamWithConfig", "aclrtDestroyStream", "aclrtDestroyEvent",
    "aclrtGetMemInfo", "aclSetRawTensorAddr",
}  # fmt: skip
OF_FAILURES = {"aclGetRecentErrMsg", "aclDestroyAclOpExecutor"}
MENDED = (Fate.MEMORY,)
NAMED = (Fate.ARGUMENT, Fate.UNAVAILABLE, Fate.CALL)
WORKSPACE = 512 + 16384
"""The simulator's for small inputs: their bytes rounded up to 512, and 16 KiB."""


class Part(NamedTuple):
    """What a test of a sweep tries: a situation with faults of these fates."""

    situation: str
    fates: tuple[Fate, ...] = tuple(Fate)

    def __str__(self) -> str:
        return f"{self.situation}, {len(self.fates)} fates"


def parts(first: str, *others: str) -> list[Any]:
    """The first situation in make test, but for two fates; the second one more, the rest long."""
    quick, later = Part(first, (Fate.ARGUMENT, Fate.MEMORY, Fate.BROKEN)), Part(first, NAMED[1:])
    rest = (pytest.param(Part(o), marks=TURNS[min(n, 2)]) for n, o in enumerate(others, 1))
    return [quick, pytest.param(later, marks=pytest.mark.more), *rest]


SOME_TIMES = 3
"""After which a function that some work uses has been called twice, or will never be."""


class Sweep(NamedTuple):
    """One work in one situation, done on a fresh device for each fault."""

    open_device: Open
    situation: Situation
    serves: Callable[[Opened, Case], bool]
    """Does the work, and says whether its answer is right."""

    def ready(self) -> tuple[Opened, Case]:
        """A device to which all has happened that comes before, and the call."""
        opened = self.open_device(**self.situation.settings)
        for ask in self.situation.before:
            assert opened.serves(ask(opened))
        return opened, self.situation.then(opened)

    def functions(self) -> list[str]:
        """The C functions that the work uses."""
        opened, case = self.ready()
        functions = opened.functions(lambda: self.serves(opened, case))
        opened.close()
        return list(functions)

    def faults(self, fates: Iterable[Fate], *occurrences: int) -> list[Fault]:
        """Each function that fails at each of these calls of it."""
        functions = [name for name in self.functions() if name not in CANNOT_FAIL]
        return [fault_of(f, name, nth) for f in fates for name in functions for nth in occurrences]

    def misfits(self, faults: Iterable[Fault], *, times: int = 1) -> list[str]:
        """What goes wrong when one function fails; so many times in a row."""
        found = []
        for fault in faults:
            opened, case = self.ready()
            fault.set(opened.simulator, times)
            wrong = self._meet(opened, case, fault, mended=times == 1)
            if wrong is not None:
                found += wrong or self._after(opened, case, fault)
            opened.abandon()
        return found

    def _meet(self, opened: Opened, case: Case, fault: Fault, *, mended: bool) -> list[str] | None:
        """Does the work until the fault is met; None if it never calls that function so often."""
        last = opened.simulator.call_count(fault.function) + fault.nth
        for _ in range(SOME_TIMES):
            served: list[bool] = []
            error = failure(lambda served=served: served.append(self.serves(opened, case)))  # type: ignore[misc]
            if served == [False]:
                return [f"{fault}: another answer"]
            if opened.simulator.call_count(fault.function) >= last:
                opened.simulator.clear_faults()
                if fault.tolerated or (mended and fault.fate is Fate.MEMORY):
                    return [f"{fault}: expected no error, found {error!r}"] if error else []
                return fault.misfits(error)
            if error is not None:
                return [f"{fault}: found {error!r} too soon"]
        return None

    def _after(self, opened: Opened, case: Case, fault: Fault) -> list[str]:
        """What is wrong once the work has failed."""
        found = opened.simulator.violations()
        breaks = fault.fate is Fate.BROKEN and not fault.tolerated
        if len(opened.lost) != breaks:
            found.append(f"lost {opened.lost}")
        if not breaks:
            if not self.serves(opened, case):
                found.append("the next time the answer was another one")
            opened.close()
            live = opened.simulator.live_objects()
            found += [f"left {live}"] if live else []
            found += opened.simulator.violations()
        return [f"{fault}: {what}" for what in found]


of_every_situation = pytest.mark.parametrize("part", parts(*SITUATIONS), ids=str)


@of_every_situation
def test_a_failure_in_a_call_is_named_and_the_next_call_is_right(
    open_device: Open, part: Part
) -> None:
    sweep = Sweep(open_device, SITUATIONS[part.situation], Opened.serves)
    found = sweep.misfits(sweep.faults(part.fates, 1, 2))
    lasting = sweep.faults({*part.fates} & {*MENDED}, 1)
    needed = [fault for fault in lasting if not fault.function.startswith(NOT_NEEDED_AGAIN)]
    assert found + sweep.misfits(needed, times=MANY) == []


@of_every_situation
def test_a_stream_that_cannot_be_waited_for_breaks_the_device(
    open_device: Open, part: Part
) -> None:
    for fate in {*part.fates} - {Fate.BROKEN}:
        opened, case = Sweep(open_device, SITUATIONS[part.situation], Opened.serves).ready()
        fault = fault_of(fate, SYNCHRONISE)
        fault.set(opened.simulator, MANY)
        error = failure(lambda: opened.run(case))  # noqa: B023
        assert type(error) is (DeviceLostError if fate is Fate.MEMORY else kind_of(fault.status))
        lost, violations = opened.lost, opened.simulator.violations()
        opened.abandon()
        assert (len(lost), violations) == (1, [])


def test_the_situations_reach_every_function_that_a_call_uses(open_device: Open) -> None:
    sweeps = (Sweep(open_device, each, Opened.serves) for each in SITUATIONS.values())
    used = {function for sweep in sweeps for function in sweep.functions()}
    declared = {*AscendCL.declared(), *NnOpBase.declared()}
    assert declared - used == NOT_OF_CALLS | OF_FAILURES


def plans(opened: Opened, case: Case) -> bool:
    return opened.plan(case) == WORKSPACE


@pytest.mark.parametrize(
    "part",
    parts("a scalar", "an array of bools", "a list of tensors", "a list of scalars"),
    ids=str,
)
def test_a_failure_in_a_plan_is_named_and_the_next_plan_is_right(
    open_device: Open, part: Part
) -> None:
    situation = SITUATIONS[part.situation]._replace(settings={"kept_calls": 0})
    sweep = Sweep(open_device, situation, plans)  # each plan is a first phase
    found = sweep.misfits(sweep.faults(part.fates, 1, 2))
    lasting = sweep.faults({*part.fates} & {*MENDED}, 1)
    assert found + sweep.misfits(lasting, times=MANY) == []


def test_a_plan_touches_no_memory(device: Opened) -> None:
    device.plan(l1(device))  # opens the thread
    case = SITUATIONS["a scalar"].then(device)
    assert list(device.functions(lambda: device.plan(case))) == [
        "aclCreateScalar", "aclCreateTensor", "aclDestroyAclOpExecutor", "aclDestroyScalar",
        "aclDestroyTensor", "aclnnRsubGetWorkspaceSize", "aclrtGetLastError",
    ]  # fmt: skip


def serves_program(opened: Opened, case: Case) -> bool:
    """Whether its call is right three times: sent, from handles, from handles into handles.

    Between the second and the third others have their turn.
    """
    pace_of(case.call).nanoseconds = 6e6
    handles: list[Any] = []

    def filled(data: bytes, offset: int) -> ResidentPart:
        handles.append(opened.device.allocate(offset + len(data)))
        handles[-1].write(0, bytes(offset) + data)
        return ResidentPart(handles[-1], offset, len(data))

    try:
        first, second = (
            {name: filled(data, offset) for name, data in case.storages.items()}
            for offset in (64, 4)
        )
        targets = {}
        for name, spec in case.call.outputs.items():
            handles.append(opened.device.allocate(spec.storage_bytes))
            targets[name] = handles[-1]
        steps = [Step(case.call, case.storages), Step(case.call, first)]
        outputs = opened.program([*steps, Step(case.call, second, targets)])
        return [*outputs[:2], [bytes_of(each) for each in targets.values()]] == [case.answers] * 3
    finally:
        for memory in handles:
            memory.free()


def fits_programs(fault: Fault) -> bool:
    """Not what gives memory back, whose failure nobody is told; not what runs it again."""
    again = fault.function == SYNCHRONISE and fault.fate is Fate.CALL
    return not again and not fault.function.startswith("aclrtFree")


@of_every_situation
def test_a_failure_in_a_program_is_named_and_the_next_program_is_right(
    open_device: Open, part: Part
) -> None:
    sweep = Sweep(open_device, SITUATIONS[part.situation], serves_program)
    assert sweep.misfits(filter(fits_programs, sweep.faults(part.fates, 1, 2))) == []
