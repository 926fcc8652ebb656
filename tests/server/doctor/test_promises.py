"""Each promise of CANN that the doctor tries: where it is broken, a finding names it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall_server.devices.base import Ran
from npucall_server.devices.cann.lane import Lane
from npucall_server.devices.cann.resident import HandleMemory
from npucall_server.doctor import copies, promises, trial
from npucall_server.doctor.bench import Outcome
from npucall_server.doctor.device import examine
from npucall_server.doctor.finding import Finding, Verdict

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from npucall_server.npu_settings import AscendPaths

WRONG = Outcome("out: 1 of 6 numbers are wrong", launched_nothing=False, phases=None)
USED_AGAIN = {"workspace-reuse", "kept-descriptors", "phase-one-cache"}


def not_ok(paths: AscendPaths) -> list[Finding]:
    findings = [message for message in examine(0, paths) if isinstance(message, Finding)]
    assert findings[-1].found == "the device was given back"
    return [finding for finding in findings if finding.verdict is not Verdict.OK]


def settled(findings: list[Finding]) -> set[str]:
    return {key for finding in findings for key in finding.settles}


def test_what_is_wrong_the_second_time_is_laid_to_what_is_used_again(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = trial.check

    def wrong_again(lane: Lane, call: Any, seed: int) -> Outcome:
        return WRONG if seed > 1 else right(lane, call, seed)

    monkeypatch.setattr(trial, "check", wrong_again)
    found = not_ok(paths)
    assert settled(found) >= USED_AGAIN
    assert "the first run is right, the second is not: out: 1 of 6" in found[0].found


def test_what_is_wrong_behind_other_calls_is_laid_to_what_is_used_again(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = trial.check

    def wrong_later(lane: Lane, call: Any, seed: int) -> Outcome:
        return WRONG if seed == 4 else right(lane, call, seed)

    monkeypatch.setattr(trial, "check", wrong_later)
    (found,) = not_ok(paths)
    assert found.verdict is Verdict.FAULT
    assert {*found.settles} == USED_AGAIN


def test_a_program_that_is_wrong_is_a_fault(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "difference", lambda *_: "out: 1 of 64 numbers are wrong")
    (found,) = not_ok(paths)
    assert found.verdict is Verdict.FAULT
    assert {*found.settles} == {"moved-descriptors", "stream-order"}


def test_an_overflow_that_gives_the_largest_number_is_a_warning(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Lane.run

    def saturated(self: Lane, call: Any, *given: Any, **more: Any) -> Ran:
        ran = right(self, call, *given, **more)
        if ran.outputs[0] == np.float16(-np.inf).tobytes():
            return ran._replace(outputs=[np.float16(-65504).tobytes()])
        return ran

    monkeypatch.setattr(Lane, "run", saturated)
    (found,) = not_ok(paths)
    assert found.verdict is Verdict.WARNING
    assert found.found == "-120000 in FLOAT16: expected -infinity, found -65504.0"
    assert found.settles == ("infnan",)


def test_copies_that_are_wrong_are_faults_that_name_the_way(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = copies.check

    def wrong(lane: Lane, call: Any, seed: int) -> Outcome:
        return WRONG if call.bytes_in_flight > 1 << 20 else right(lane, call, seed)

    monkeypatch.setattr(copies, "check", wrong)
    whole, pieces, waiting = not_ok(paths)
    assert "all at once through pinned memory (staging_limit 64 MiB): out: 1 of" in whole.found
    assert "in pieces through pinned memory (staging_limit 1 MiB)" in pieces.found
    assert "from and to ordinary memory (staging_limit 0 MiB)" in waiting.found
    assert settled([whole, pieces, waiting]) == {"pinned-memory"}


def test_a_handle_that_holds_something_else_is_a_fault(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HandleMemory, "to_host", lambda _self, _address, size: bytes(size))
    found, *_ = not_ok(paths)  # what is filled with zeros is read through a handle too
    assert found.found == "a handle does not hold what was written into it"
    assert found.settles == ("handle-copies",)


@pytest.mark.parametrize(
    ("filled", "said"),
    [
        ((64, 64), "memory is not zeros though it was filled so"),
        ((0, 4 << 20), "memory beside what is filled with zeros has changed"),
    ],
)
def test_a_kernel_that_fills_less_or_more_than_it_should_is_a_fault(
    simulator: Simulator,
    paths: AscendPaths,
    monkeypatch: pytest.MonkeyPatch,
    filled: tuple[int, int],
    said: str,
) -> None:
    right, (start, size) = Lane.clear, filled
    monkeypatch.setattr(Lane, "clear", lambda self, at, _: right(self, at - 64 + start, size))
    (found,) = not_ok(paths)
    assert (found.verdict, found.found) == (Verdict.FAULT, said)
    assert found.settles == ("zero-kernel",)


def test_where_there_is_no_kernel_for_zeros_the_doctor_says_so(
    simulator: Simulator, paths: AscendPaths
) -> None:
    for nth in range(1, 40):
        simulator.fail("aclnnInplaceZeroGetWorkspaceSize", nth, status=561003)
    found = next(each for each in not_ok(paths) if "zero-kernel" in each.settles)
    assert (found.verdict, found.found) == (Verdict.WARNING, "3145824 bytes are zeros, by copies")


def test_memory_that_the_device_does_not_have_and_gives_is_a_warning(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    generous = SimpleNamespace(reserve=lambda _: 1, release=lambda: None)
    monkeypatch.setattr(promises, "device_buffer", lambda _: generous)
    (found,) = not_ok(paths)
    assert found.verdict is Verdict.WARNING
    assert found.found.startswith("the device allocated 2147483648 bytes, but reports 1073741824")
    assert found.settles == ("out-of-memory",)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("aclrtMemcpy", "aclrtMemcpy: expected status 0, found 507899"),
        ("aclSetRawTensorAddr", "aclSetRawTensorAddr: expected status 0, found 507899"),
        ("aclrtGetMemInfo", ""),
    ],
)
def test_a_promise_that_fails_with_a_status_is_a_fault_and_the_others_are_tried(
    simulator: Simulator, paths: AscendPaths, function: str, said: str
) -> None:
    simulator.fail(function, status=507899)
    found = not_ok(paths)
    assert [finding.verdict for finding in found] == [Verdict.FAULT if said else Verdict.WARNING]
    assert said in found[0].found
    assert simulator.call_count("aclrtResetDevice") == 1
