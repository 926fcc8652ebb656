"""What the doctor says of the device, on the simulator: a healthy one, and each fault of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.more import every_third

from npucall_server.devices.base import DeviceFacts
from npucall_server.devices.cann.statuses import error_of
from npucall_server.doctor import compare, planning, report
from npucall_server.doctor.bench import Outcome
from npucall_server.doctor.device import check_health, check_memory, check_product, examine
from npucall_server.doctor.failure import failed
from npucall_server.doctor.finding import Finding, Section, Verdict

from .hosts import faults, todo, warnings

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from npucall.declare.prepare import Prepared
    from npucall_server.npu_settings import AscendPaths

GIB = 1 << 30


def examined(paths: AscendPaths, number: int = 0) -> list[Finding]:
    return [message for message in examine(number, paths) if isinstance(message, Finding)]


def test_a_healthy_device_has_nothing_but_good_findings(
    simulator: Simulator, paths: AscendPaths
) -> None:
    findings = examined(paths)
    assert {finding.verdict for finding in findings} == {Verdict.OK}
    assert findings[-1].found == "the device was given back"


@pytest.mark.more
@pytest.mark.parametrize(
    "soc", ["Ascend910A", "Ascend310P3", "Ascend310B1", "Ascend910_9391", "Ascend950PR_9599"]
)
def test_a_healthy_device_of_each_product_has_nothing_but_good_findings(
    simulator: Simulator, paths: AscendPaths, soc: str
) -> None:
    simulator.set_soc(soc)
    findings = examined(paths)
    assert {finding.verdict for finding in findings} == {Verdict.OK}
    assert (simulator.violations(), simulator.live_objects()) == ([], {})


def test_a_healthy_device_is_used_as_cann_demands(simulator: Simulator, paths: AscendPaths) -> None:
    examined(paths)
    assert (simulator.violations(), simulator.live_objects()) == ([], {})


def test_launches_of_nothing_are_faults_and_nothing_else_is_tried(
    simulator: Simulator, paths: AscendPaths
) -> None:
    simulator.set_kernels("none")
    findings = examined(paths)
    wrong = faults(findings)
    assert len(wrong) > 5
    assert all("first run: nothing has run, though every function answered" in w for w in wrong)
    assert findings[-1].found == "the device was given back"
    assert simulator.call_count("aclDestroyAclOpExecutor") == 0


def test_wrong_numbers_are_faults_that_say_which(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rather(call: Prepared, *given: Any, **options: Any) -> list[Any]:
        right = evaluate(call, *given, **options)
        if call.operator.name not in names:
            names.append(call.operator.name)
        is_third = names.index(call.operator.name) == 2  # the first ones serve other trials too
        return [bytes(len(right[0])), *right[1:]] if is_third else right

    evaluate = compare.evaluate.run
    names: list[str] = []
    monkeypatch.setattr(compare.evaluate, "run", rather)
    found = faults(examined(paths))
    assert found
    other = [w for w in found if names[2] not in w or " are wrong: expected " not in w]
    assert not other


def test_a_cache_without_the_guard_is_a_warning_that_settles_the_claim(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_UNRUN", "unguarded")
    simulator.reset()
    findings = examined(paths)
    (found,) = [finding for finding in findings if finding.verdict is not Verdict.OK]
    assert found.verdict is Verdict.WARNING
    assert "a run after a plan on the same thread launches nothing" in found.found
    assert "needs npucall's planner thread" in found.todo
    assert found.settles == ("unrun-executor",)
    assert findings[-1].found == "the device was given back"
    assert "look      A first phase alone harms nothing" in report.as_file({}, findings)
    assert simulator.violations() == []


def test_an_executor_that_is_not_destroyed_is_a_warning_that_settles_the_claim(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_UNRUN", "refused")
    simulator.reset()
    findings = examined(paths)
    (found,) = [finding for finding in findings if finding.verdict is not Verdict.OK]
    assert found.verdict is Verdict.WARNING
    assert "aclDestroyAclOpExecutor: expected status 0, found 561000" in found.found
    assert found.settles == ("unrun-executor",)
    assert findings[-1].found == "the device was given back"
    assert "look      A first phase alone harms nothing" in report.as_file({}, findings)


def test_what_runs_wrong_behind_a_plan_is_a_fault(
    simulator: Simulator, paths: AscendPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong_behind_a_plan(self: planning.PlansAndRuns, call: Prepared, seed: int) -> Outcome:
        del self, call, seed
        return Outcome("out: 3 of 6 numbers are wrong", launched_nothing=False, phases=None)

    monkeypatch.setattr(planning.PlansAndRuns, "plan_and_run", wrong_behind_a_plan)
    (found,) = faults(examined(paths))
    assert found.endswith("on the same thread: out: 3 of 6 numbers are wrong")


def test_a_device_beyond_those_that_are_there_is_a_fault(
    simulator: Simulator, paths: AscendPaths
) -> None:
    assert faults(examined(paths, 2)) == [
        "there is no cann:2: this process sees 2 devices, numbered from 0"
    ]
    assert simulator.call_count("aclrtSetDevice") == 0


@pytest.mark.parametrize(
    ("function", "status", "advice"),
    every_third(
        [
            ("aclrtGetDeviceCount", 507899, "`npu-smi info`"),
            ("aclInit", 500000, "CANN found no device"),
            ("aclrtSetDevice", 507033, "another container may hold it"),
            ("aclrtSetDevice", 207006, "group HwHiAiUser"),
            ("aclrtCreateStreamWithConfig", 207008, "end other processes on it"),
            ("aclrtMalloc", 207001, "`npu-smi info` lists processes"),
            (
                "aclnnKlDivBackwardGetWorkspaceSize",
                561003,
                "install the operator package of this SoC",
            ),
            ("aclnnKlDivBackward", 207000, "the driver may be older than the toolkit"),
            ("aclrtResetDevice", 507899, "`npu-smi info`"),
        ]
    ),
)
def test_a_function_that_fails_is_a_fault_with_what_to_do(
    simulator: Simulator, paths: AscendPaths, function: str, status: int, advice: str
) -> None:
    simulator.fail(function, status=status)
    findings = examined(paths)
    (found,) = faults(findings)
    assert f"{function}: expected status 0, found {status} " in found
    assert advice in todo(findings)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (561107, "ASCEND_OPP_PATH is not set"),
        (561112, "kernel package is not installed"),
        (207000, "the driver may be older than the toolkit"),
    ],
)
def test_an_error_with_a_status_has_the_advice_of_the_status(status: int, advice: str) -> None:
    finding = failed(error_of("aclnnXxxGetWorkspaceSize", status, "text"), "trying Xxx")
    assert finding.found.startswith("trying Xxx: aclnnXxxGetWorkspaceSize: expected status 0")
    assert advice in finding.todo


def test_a_kernel_that_fails_is_a_fault_and_ends_the_examination(
    simulator: Simulator, paths: AscendPaths
) -> None:
    simulator.fail("aclnnKlDivBackward", status=507015, what="at_sync")
    findings = examined(paths)
    assert findings[-1].verdict is Verdict.FAULT
    assert "a kernel failed on the device" in findings[-1].todo
    assert simulator.call_count("aclrtResetDevice") == 0


def test_a_kernel_that_is_missing_does_not_keep_the_device_open(
    simulator: Simulator, paths: AscendPaths
) -> None:
    simulator.fail("aclnnKlDivBackwardGetWorkspaceSize", status=561003)
    examined(paths)
    assert simulator.live_objects() == {}


def test_a_device_that_cannot_time_is_a_warning(simulator: Simulator, paths: AscendPaths) -> None:
    simulator.fail("aclrtCreateEventExWithFlag", status=207000)
    findings = examined(paths)
    assert faults(findings) == []
    assert warnings(findings)[0].startswith("nothing is timed on the device from here on")


def test_a_soc_that_no_product_has_is_a_fault(simulator: Simulator, paths: AscendPaths) -> None:
    simulator.set_soc("Ascend777X")
    findings = examined(paths)
    assert faults(findings)[0].startswith("soc: expected the name of an Ascend SoC")
    assert findings[-1].found == "the device was given back"


def test_a_soc_that_is_near_to_a_product_is_a_warning(
    simulator: Simulator, paths: AscendPaths
) -> None:
    simulator.set_soc("Ascend910B5")
    findings = examined(paths)
    assert faults(findings) == []
    (found,) = warnings(findings)
    assert "it is like Ascend910B (Atlas A2); dtypes" in found
    assert findings[-1].found == "the device was given back"


def test_a_product_without_the_operators_is_not_tried(
    simulator: Simulator, paths: AscendPaths
) -> None:
    simulator.set_soc("Ascend310")
    (found,) = warnings(examined(paths))
    assert found == "none of the declared operators is here for Ascend 310: nothing was run"


def test_a_custom_library_of_another_user_is_a_warning(
    simulator: Simulator, paths: AscendPaths, tree: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom = paths._replace(custom=(tree.custom,))
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    (found,) = warnings(examined(custom))
    assert "owned by user" in found


def test_a_variant_of_a_custom_package_is_named(
    simulator: Simulator, paths: AscendPaths, tree: object
) -> None:
    findings = examined(paths._replace(custom=(tree.custom,)))
    said = [finding.found for finding in findings]
    assert "operators with several variants have the variant community" in said


def test_every_step_says_what_it_does(simulator: Simulator, paths: AscendPaths) -> None:
    titles = [message.title for message in examine(0, paths) if isinstance(message, Section)]
    assert list(dict.fromkeys(titles)) == [
        "libraries", "device", "versions", "operators", "trial", "copies", "planning", "memory",
    ]  # fmt: skip


def test_the_state_of_a_device_is_what_it_says() -> None:
    verdicts = [check_health(DeviceFacts(healthy=state)).verdict for state in (True, False, None)]
    assert verdicts == [Verdict.OK, Verdict.FAULT, Verdict.WARNING]


@pytest.mark.parametrize(
    ("free", "total", "expected"),
    [
        (60 * GIB, 64 * GIB, Verdict.OK),
        (2 * GIB, 64 * GIB, Verdict.OK),
        (2 * GIB - 1, 64 * GIB, Verdict.WARNING),
        (GIB, 2 * GIB, Verdict.OK),
        (0, 0, Verdict.WARNING),
    ],
)
def test_little_memory_is_a_warning(free: int, total: int, expected: Verdict) -> None:
    facts = DeviceFacts(memory_free_bytes=free, memory_total_bytes=total)
    assert check_memory(facts).verdict is expected


def test_the_product_of_a_soc_is_named() -> None:
    assert check_product("Ascend910_9391").found == "Ascend910_9391 is Atlas A3"
