"""What the doctor says of the device, on the simulator: a healthy one, and each fault of one."""

from pathlib import Path
from typing import Any

import pytest
from tests.simulator.control import Simulator
from tests.simulator.tree import MACHINE, Tree

from npucall.declare.prepare import Prepared
from npucall_server.commands.doctor import bench, promises, report, trial
from npucall_server.commands.doctor.device import (
    check_libraries,
    check_opening,
    check_state,
    examine,
)
from npucall_server.commands.doctor.finding import Finding, Section, Verdict, fault
from npucall_server.devices.base import DeviceFacts
from npucall_server.devices.cann.runtime import open_libraries
from npucall_server.settings.npu import AscendPaths

from .conftest import Examined, faults, not_ok, todo, warnings

GIB = 1 << 30
OK, WARNING, FAULT = Verdict.OK, Verdict.WARNING, Verdict.FAULT
GIVEN_BACK = "the device was given back"
SECTIONS = [
    "libraries", "device", "versions", "operators", "trial", "copies", "planning", "memory",
]  # fmt: skip
SOCS = ["Ascend910A", "Ascend310P3", "Ascend310B1", "Ascend910_9391", "Ascend950PR_9599"]
TRIED = "aclnnSmoothL1Loss"


@pytest.mark.parametrize("soc", ["", *(pytest.param(soc, marks=pytest.mark.more) for soc in SOCS)])
def test_a_healthy_device_has_nothing_but_good_findings_and_is_used_as_cann_demands(
    simulator: Simulator, paths: AscendPaths, soc: str
) -> None:
    if soc:
        simulator.set_soc(soc)
    messages = list(examine(0, paths))
    findings = [message for message in messages if isinstance(message, Finding)]
    assert not_ok(findings) == []
    assert findings[-1].found == GIVEN_BACK
    computed = [each for each in findings if "no elements" not in each.found]
    runs = 2 * sum(": right twice" in finding.found for finding in computed)
    timed = f"the device's clock timed {runs} of {runs} runs, with the same events"
    assert timed in [finding.found for finding in findings]
    titles = dict.fromkeys(each.title for each in messages if isinstance(each, Section))
    assert list(titles) == SECTIONS
    assert (simulator.violations(), simulator.live_objects()) == ([], {})


def test_launches_of_nothing_are_faults_and_nothing_else_is_tried(
    examined: Examined, simulator: Simulator
) -> None:
    simulator.set_kernels("none")
    findings = examined()
    wrong = faults(findings)
    assert len(wrong) > 1
    assert all("first run: nothing has run, though every function answered" in w for w in wrong)
    assert findings[-1].found == GIVEN_BACK
    assert simulator.call_count("aclDestroyAclOpExecutor") == 0


def test_wrong_numbers_are_faults_that_say_which(
    examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rather(call: Prepared, *given: Any, **options: Any) -> list[Any]:
        right = evaluate(call, *given, **options)
        wrong = call.operator.name == TRIED
        return [bytes(len(right[0])), *right[1:]] if wrong else right

    evaluate = bench.evaluate.run
    monkeypatch.setattr(bench.evaluate, "run", rather)
    found = faults(examined(trial._runs, trial._again))
    assert found
    assert [w for w in found if TRIED not in w or " are wrong: expected " not in w] == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [("unguarded", "a run after a plan on the same thread launches nothing"),
     ("refused", "aclDestroyAclOpExecutor: expected status 0, found 561000")],
)  # fmt: skip
def test_what_cann_does_with_executors_that_never_ran_is_a_warning_that_settles_the_claim(
    examined: Examined, simulator: Simulator, monkeypatch: pytest.MonkeyPatch, kind: str, said: str
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_UNRUN", kind)
    simulator.reset()
    findings = examined(trial._runs, promises.plans)
    (found,) = not_ok(findings)
    assert found.verdict is WARNING
    assert said in found.found
    assert "needs npucall's planner thread" in found.todo
    assert found.settles == ("unrun-executor",)
    assert findings[-1].found == GIVEN_BACK
    assert "look      A first phase alone harms nothing" in report.as_file({}, {}, findings)
    assert simulator.violations() == []


def test_what_runs_wrong_behind_a_plan_is_a_fault(
    examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "out: 3 of 6 numbers are wrong"
    monkeypatch.setattr(promises.PlansAndRuns, "plan_and_run", lambda *_: wrong)
    (found,) = faults(examined(promises.plans))
    assert found.endswith("on the same thread: out: 3 of 6 numbers are wrong")


def test_a_device_beyond_those_that_are_there_is_a_fault(
    examined: Examined, simulator: Simulator
) -> None:
    said = "there is no cann:2: this process sees 2 devices, numbered from 0"
    assert faults(examined(number=2)) == [said]
    assert simulator.call_count("aclrtSetDevice") == 0


FAILS = [
    ("aclrtGetDeviceCount", 507899, "`npu-smi info`"),
    ("aclInit", 500000, "CANN found no device"),
    ("aclrtSetDevice", 507033, "another container may hold it"),
    ("aclrtSetDevice", 207006, "group HwHiAiUser"),
    ("aclrtCreateStreamWithConfig", 207008, "end other processes on it"),
    ("aclrtMalloc", 207001, "`npu-smi info` lists processes"),
    (f"{TRIED}GetWorkspaceSize", 561003, "install the operator package of this SoC"),
    (f"{TRIED}GetWorkspaceSize", 561107, "ASCEND_OPP_PATH is not set"),
    (f"{TRIED}GetWorkspaceSize", 561112, "kernel package is not installed"),
    (TRIED, 207000, "the driver may be older than the toolkit"),
    ("aclrtResetDevice", 507899, "`npu-smi info`"),
]


def test_a_function_that_fails_is_a_fault_with_what_to_do(
    examined: Examined, simulator: Simulator
) -> None:
    for function, status, advice in FAILS:
        simulator.reset()
        simulator.fail(function, status=status)
        findings = examined(trial._runs)
        (found,) = faults(findings)
        assert f"{function}: expected status 0, found {status} " in found
        assert advice in todo(findings)
        if status == 561003:  # a kernel that is missing does not keep the device open
            assert simulator.live_objects() == {}


def test_a_kernel_that_fails_is_a_fault_and_ends_the_examination(
    examined: Examined, simulator: Simulator
) -> None:
    simulator.fail(TRIED, status=507015, what="at_sync")
    findings = examined()
    assert findings[-1].verdict is FAULT
    assert "a kernel failed on the device" in findings[-1].todo
    assert simulator.call_count("aclrtResetDevice") == 0


def test_a_device_that_cannot_time_is_a_warning(examined: Examined, simulator: Simulator) -> None:
    simulator.fail("aclrtCreateEventExWithFlag", status=207000)
    findings = examined(trial._runs)
    assert faults(findings) == []
    assert warnings(findings)[0].startswith("nothing is timed on the device from here on")


@pytest.mark.parametrize(
    ("soc", "verdict", "said"),
    [("Ascend777X", FAULT, "soc: expected the name of an Ascend SoC"),
     ("Ascend910B5", WARNING, "it is like Ascend910B (Atlas A2); dtypes"),
     ("Ascend310", WARNING,
      "none of the declared operators is here for Ascend 310: nothing was run")],
)  # fmt: skip
def test_a_soc_that_no_product_has_or_that_has_no_operators_is_said(
    examined: Examined, simulator: Simulator, soc: str, verdict: Verdict, said: str
) -> None:
    simulator.set_soc(soc)
    findings = examined(trial._runs)
    (found,) = not_ok(findings)
    assert found.verdict is verdict
    assert said in found.found
    assert findings[-1].found == GIVEN_BACK


def test_a_custom_package_names_its_variant_and_an_owner_that_is_another_user(
    examined: Examined, paths: AscendPaths, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom = paths._replace(custom=(tree.custom,))
    said = [finding.found for finding in examined(trial._again, paths=custom)]
    assert "operators with several variants have the variant community" in said
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    (found,) = warnings(examined(trial._again, paths=custom))
    assert "owned by user" in found


def state(facts: DeviceFacts) -> list[Finding]:
    """What is said of health, product and memory."""
    return [each for each in check_state("Ascend910_9391", facts) if isinstance(each, Finding)]


def test_the_state_of_a_device_is_what_it_says() -> None:
    verdicts = [state(DeviceFacts(healthy=healthy))[0].verdict for healthy in (True, False, None)]
    assert verdicts == [OK, FAULT, WARNING]
    assert state(DeviceFacts())[1].found == "Ascend910_9391 is Atlas A3"


@pytest.mark.parametrize(
    ("free", "total", "expected"),
    [(60 * GIB, 64 * GIB, OK), (2 * GIB, 64 * GIB, OK), (2 * GIB - 1, 64 * GIB, WARNING),
     (GIB, 2 * GIB, OK), (0, 0, WARNING)],
)  # fmt: skip
def test_little_memory_is_a_warning(free: int, total: int, expected: Verdict) -> None:
    facts = DeviceFacts(memory_free_bytes=free, memory_total_bytes=total)
    assert state(facts)[2].verdict is expected


MISSING = "cannot open shared object file: No such file or directory"


def test_the_files_that_were_loaded_are_named_and_functions_that_are_missing(
    simulator: Simulator, paths: AscendPaths, tmp_path: Path
) -> None:
    libraries = open_libraries(paths)
    said = [finding.found for finding in check_libraries(libraries, paths)]
    assert paths.home is not None
    assert f"loaded {paths.home.resolve()}/{MACHINE}-linux/lib64/libnnopbase.so" in said
    assert said[-1] == "every function is there"
    found = warnings(check_libraries(libraries, paths._replace(home=tmp_path)))
    assert len(found) == 3
    assert all(text.endswith(f"which is not the library in {tmp_path}/lib64") for text in found)
    del libraries.acl.aclFinalizeReference
    last = list(check_libraries(libraries, paths))[-1]
    assert last.verdict is OK
    assert "but for aclFinalizeReference" in last.found


def test_libraries_that_cannot_be_opened_lead_to_what_is_missing() -> None:
    tried = f"expected one of liba.so, libb.so, found none:\n  liba.so: liba.so: {MISSING}"
    finding = check_opening(f"{tried}\nSource the toolkit's set_env.sh")
    assert finding == fault(tried, "source the toolkit's set_env.sh", "library-names")
    finding = check_opening(f"expected:\n  libascendcl.so: libascend_hal.so: {MISSING}\nSource it")
    assert finding.todo.startswith("libascend_hal.so belongs to the driver: see the section driver")
    finding = check_opening("expected CANN 8.1 or newer, found no aclrtX in libascendcl.so")
    assert finding.found.startswith("expected CANN 8.1 or newer")
    assert finding.todo.startswith("install CANN 8.1 or newer")
