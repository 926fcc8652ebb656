"""Each promise of CANN that the doctor tries: where it is broken, a finding names it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.simulator.control import Simulator

from npucall_server.commands.doctor import promises, trial
from npucall_server.commands.doctor.finding import Verdict
from npucall_server.devices.cann.lane import Lane
from npucall_server.devices.cann.program import ProgramRun
from npucall_server.devices.cann.resident import HandleMemory

from .conftest import Examined, not_ok

WRONG = "out: 1 of 6 numbers are wrong", None
USED_AGAIN = {"workspace-reuse", "kept-descriptors", "phase-one-cache"}
WARNING, FAULT = Verdict.WARNING, Verdict.FAULT
Break = Callable[[pytest.MonkeyPatch], None]


def wrong_at(*seeds: int) -> Break:
    """Calls with these numbers come out wrong."""

    def break_it(monkeypatch: pytest.MonkeyPatch) -> None:
        right = trial.check

        def check(lane: Lane, call: Any, seed: int) -> Any:
            return WRONG if seed in seeds else right(lane, call, seed)

        monkeypatch.setattr(trial, "check", check)

    return break_it


def order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "difference", lambda *_: "out: 1 of 64 numbers are wrong")


def infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ProgramRun.outputs

    def saturated(self: ProgramRun) -> list[list[Any]]:
        found = right(self)
        if [bytes(each) for each in found[0]] == [np.float16(-np.inf).tobytes()]:
            return [[np.float16(-65504).tobytes()]]
        return found

    monkeypatch.setattr(ProgramRun, "outputs", saturated)


def handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HandleMemory, "to_host", lambda _self, _address, size: bytes(size))


def fills(start: int, size: int) -> Break:
    """Zeros are written from another byte on, and so many."""

    def break_it(monkeypatch: pytest.MonkeyPatch) -> None:
        right = Lane.clear
        monkeypatch.setattr(Lane, "clear", lambda self, at, _: right(self, at - 64 + start, size))

    return break_it


def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    generous = SimpleNamespace(reserve=lambda _: 1, give_back=lambda: None)
    monkeypatch.setattr(promises, "device_buffer", lambda _: generous)


@pytest.mark.parametrize(
    ("step", "broken", "verdict", "said", "settles"),
    [
        (trial._again, wrong_at(4), FAULT, "behind the others: out: 1 of 6", USED_AGAIN),
        (promises.programs, order, FAULT, "a program of 12 steps: out: 1 of 64",
         {"moved-descriptors", "stream-order"}),
        (promises.overflow, infinities, WARNING,
         "-120000 in FLOAT16: expected -infinity, found -65504.0", {"infnan"}),
        (promises.handles, handles, FAULT, "a handle does not hold what was written into it",
         {"handle-copies"}),
        (promises.clearing, fills(64, 64), FAULT,
         "memory is not zeros though it was filled so", {"zero-kernel"}),
        (promises.clearing, fills(0, 4 << 20), FAULT,
         "memory beside what is filled with zeros has changed", {"zero-kernel"}),
        (promises.too_much, limits, WARNING,
         "the device allocated 2147483648 bytes, but reports 1073741824", {"out-of-memory"}),
    ],
    ids=["reuse", "order", "infinities", "handles", "too few zeros", "too many", "limits"],
)  # fmt: skip
def test_a_promise_that_is_broken_is_named_and_the_device_given_back(
    examined: Examined, monkeypatch: pytest.MonkeyPatch, step: Any, broken: Break,
    verdict: Verdict, said: str, settles: set[str],
) -> None:  # fmt: skip
    broken(monkeypatch)
    findings = examined(step)
    (found,) = not_ok(findings)
    assert said in found.found
    assert (found.verdict, {*found.settles}) == (verdict, settles)
    assert findings[-1].found == "the device was given back"


def test_what_is_wrong_the_second_time_is_laid_to_what_is_used_again(
    examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_at(2)(monkeypatch)
    found = not_ok(examined())
    assert {key for finding in found for key in finding.settles} >= USED_AGAIN
    assert "the first run is right, the second is not: out: 1 of 6" in found[0].found


def test_copies_that_are_wrong_are_faults_that_name_the_way(
    examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "check", lambda *_, **__: WRONG)
    whole, pieces, waiting = not_ok(examined(promises.copies))
    assert "all at once through pinned memory (staging_limit 64 MiB): out: 1 of" in whole.found
    assert "in pieces through pinned memory (staging_limit 1 MiB)" in pieces.found
    assert "from and to ordinary memory (staging_limit 0 MiB)" in waiting.found
    assert {key for each in (whole, pieces, waiting) for key in each.settles} == {"pinned-memory"}
    assert {each.verdict for each in (whole, pieces, waiting)} == {FAULT}


def test_where_there_is_no_kernel_for_zeros_the_doctor_says_so(
    examined: Examined, simulator: Simulator
) -> None:
    for nth in range(1, 40):
        simulator.fail("aclnnInplaceZeroGetWorkspaceSize", nth, status=561003)
    found = next(each for each in not_ok(examined(promises.clearing)) if each.settles)
    assert (found.verdict, found.found) == (WARNING, "3145824 bytes are zeros, by copies")
    assert found.settles == ("zero-kernel",)


@pytest.mark.parametrize("function", ["aclrtMemcpy", "aclSetRawTensorAddr", "aclrtGetMemInfo"])
def test_a_promise_that_fails_with_a_status_is_a_fault_and_the_others_are_tried(
    examined: Examined, simulator: Simulator, function: str
) -> None:
    simulator.fail(function, status=507899)
    findings = examined()
    (found,) = not_ok(findings)
    if function == "aclrtGetMemInfo":
        assert found.verdict is WARNING
    else:
        assert f"{function}: expected status 0, found 507899" in found.found
        assert found.verdict is FAULT
    assert findings[-1].found == "the device was given back"
    assert simulator.call_count("aclrtResetDevice") == 1
