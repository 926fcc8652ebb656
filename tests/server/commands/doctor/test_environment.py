"""What the doctor says of the environment, of versions, and of headers."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from npucall.declare.catalogue import Catalogue
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_server.commands.doctor.device import check_versions
from npucall_server.commands.doctor.finding import Finding, Verdict
from npucall_server.commands.doctor.host import check_environment
from npucall_server.commands.doctor.prototypes import check_prototypes
from npucall_server.devices.base import DeviceFacts

from .conftest import DRIVER, Host, faults, not_ok, todo, warnings

FAULT, WARNING, OK = Verdict.FAULT, Verdict.WARNING, Verdict.OK
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def check(host: Host, number: int = 0, **changes: str | None) -> list[Finding]:
    """The findings where some variables differ from what set_env.sh exports; None: not set."""
    changed = {**host.environment, **changes}
    environment = {name: value for name, value in changed.items() if value is not None}
    return list(check_environment(environment, host.root, number))


def test_what_set_env_exports_is_well_by_another_name_and_behind_a_link_too(host: Host) -> None:
    (host.root / "latest").symlink_to(host.home)
    older = {"ASCEND_HOME_PATH": None, "ASCEND_TOOLKIT_HOME": str(host.home)}
    for changes in {}, {"ASCEND_HOME_PATH": str(host.root / "latest")}, older:
        assert not_ok(check(host, **changes)) == []


def test_a_missing_set_env_is_one_fault_that_names_the_script(host: Host) -> None:
    findings = list(check_environment({}, host.root, 0))
    assert faults(findings) == ["ASCEND_HOME_PATH and ASCEND_OPP_PATH are not set"]
    assert "`source /usr/local/Ascend/cann/set_env.sh`" in todo(findings)
    (host.home / "set_env.sh").unlink()
    assert "install CANN 8.1 or newer" in todo(check_environment({}, host.root, 0))


SHOWN = ", ".join(f"/{DRIVER}/{name}" for name in ("lib64", "lib64/common", "lib64/driver"))
WRONG = [
    (0, {"ASCEND_OPP_PATH": None}, FAULT,
     "ASCEND_OPP_PATH is not set; every call would end with 561107", "`source {home}/set_env.sh`"),
    (0, {"ASCEND_OPP_PATH": "/gone"}, FAULT,
     "ASCEND_OPP_PATH is /gone, but there is no such folder", ""),
    (0, {"ASCEND_OPP_PATH": "{root}/other/opp"}, WARNING,
     "ASCEND_OPP_PATH is {root}/other/opp, not {home}/opp", ""),
    (0, {"LD_LIBRARY_PATH": "/nothing"}, FAULT, "LD_LIBRARY_PATH does not have {home}/lib64",
     "LD_LIBRARY_PATH is read when a program starts"),
    (0, {"LD_LIBRARY_PATH": "{home}/lib64:/" + DRIVER + "/lib64"}, WARNING,
     "LD_LIBRARY_PATH does not have " + SHOWN, ""),
    (0, {"LD_LIBRARY_PATH": "/opt/cann/devlib:{path}"}, WARNING,
     "LD_LIBRARY_PATH has /opt/cann/devlib", ""),
    *((0, {VISIBLE: value}, WARNING, f"{VISIBLE} is {value!r}, which is no list of numbers", "")
      for value in ("", "0,", "all", "0;1", "-1")),
]  # fmt: skip


def test_a_variable_that_is_wrong_is_named(host: Host) -> None:
    (host.root / "other/opp").mkdir(parents=True)
    path = host.environment["LD_LIBRARY_PATH"]
    places = {"home": host.home, "root": host.root, "path": path}
    wrong: list[object] = []
    for number, changes, verdict, found, advice in WRONG:
        given = {name: value and value.format(**places) for name, value in changes.items()}
        findings = [f for f in check(host, number, **given) if f.verdict is verdict]
        fits = [f.found for f in findings] == [found.format(**places)]
        fits &= advice.format(**places) in todo(findings)
        wrong += [] if fits else [(changes, findings)]
    assert wrong == []


def test_a_toolkit_that_is_not_there_is_a_fault(host: Host) -> None:
    findings = check(host, ASCEND_HOME_PATH="/nowhere")
    assert "ASCEND_HOME_PATH is /nowhere, but no toolkit is there (no lib64)" in faults(findings)


def test_a_driver_that_is_not_there_is_no_matter_of_the_loader(host: Host) -> None:
    shutil.rmtree(host.root / DRIVER)
    assert warnings(check(host, LD_LIBRARY_PATH=f"{host.home}/lib64")) == []


def test_visible_devices_are_numbered_anew(host: Host) -> None:
    visible = {VISIBLE: "4,6"}
    said = f"{VISIBLE} is 4,6: cann:1 is its device 6"
    assert check(host, 1, **visible)[-1].found == said
    findings = check(host, 6, **visible)
    assert len(faults(findings)) == 1
    assert todo(findings) == "use cann:0 to cann:1, or unset the variable"


FITTING = DeviceFacts(cann_version="8.5.0", driver_version="25.5.1", runtime_version="1.15.0")
DRIVERS = [
    ("8.5.0", "24.1.rc3", WARNING),
    ("8.5.0", "25.0.rc1", OK),
    ("9.0.0", "24.1.0", WARNING),
    ("8.2.RC1", "23.0.6", WARNING),
    ("8.2.RC1", "24.1.rc2", OK),
    ("8.1.RC1", "23.0.6", OK),  # no table is known
    ("", "23.0.6", OK),
]


def test_a_driver_older_than_the_vendor_s_tables_name_is_a_warning() -> None:
    for cann, driver, expected in DRIVERS:
        facts = replace(FITTING, cann_version=cann, driver_version=driver)
        assert list(check_versions(facts))[1].verdict is expected, (cann, driver)
    (found,) = warnings(check_versions(replace(FITTING, driver_version="24.1.0")))
    assert found == (
        "CANN 8.5.0 needs driver 25.0 or newer, and this one is 24.1.0: functions that it does "
        "not know answer 207000"
    )


def test_versions_that_are_too_old_or_not_told_are_warnings() -> None:
    said = [finding.found for finding in check_versions(FITTING)]
    assert said == ["CANN 8.5.0, runtime interface 1.15.0", "driver 25.5.1"]
    findings = list(check_versions(replace(FITTING, driver_version="")))
    assert warnings(findings) == ["the driver does not report its version"]
    assert "version.info" in todo(findings)
    old = replace(FITTING, cann_version="8.0.0", runtime_version="1.12.0")
    assert warnings(check_versions(old)) == [
        "CANN 8.0.0, runtime interface 1.12.0: older than every version that npucall supports"
    ]
    assert warnings(check_versions(replace(FITTING, runtime_version=""))) == [
        "CANN 8.5.0; the runtime does not report its version"
    ]


# --- Headers that differ from the declared operators ----------------------------------------------

L1 = (
    "const aclTensor *gradOutput, const aclTensor *self, const aclTensor *target, "
    "int64_t reduction, aclTensor *gradInput"
)
CATALOGUE = Catalogue([l1_loss_backward])


def with_header(folder: Path, old: str = "", new: str = "") -> list[Finding]:
    """The findings where the header of L1LossBackward has something else in place of this."""
    folder.mkdir(exist_ok=True)
    parameters = L1.replace(old, new) if old else L1
    behind = "uint64_t *workspaceSize, aclOpExecutor **executor"
    text = f"aclnnStatus aclnnL1LossBackwardGetWorkspaceSize({parameters}, {behind});\n"
    (folder / "aclnn_l1_loss_backward.h").write_text(text)
    return check_prototypes([folder], CATALOGUE)


def test_a_header_that_agrees_is_well_and_another_const_is_the_same_call(tmp_path: Path) -> None:
    (finding,) = with_header(tmp_path)
    assert finding.found == (
        "1 of 1 declared operators are in the headers, each with the same types, order and names"
    )
    findings = with_header(tmp_path, "aclTensor *gradInput", "const aclTensor *gradInput")
    assert not_ok(findings) == []
    assert "the same call in C" in findings[1].found


@pytest.mark.parametrize(
    ("old", "new", "parameter"),
    [("int64_t reduction", "int32_t reduction", "parameter 4"),
     ("const aclTensor *target, ", "", "parameter 3"),
     ("aclTensor *gradInput", "aclTensor *gradInput, bool fast", "parameter 6"),
     ("const aclTensor *self", "const aclTensorList *self", "parameter 2")],
)  # fmt: skip
def test_another_type_is_a_fault(tmp_path: Path, old: str, new: str, parameter: str) -> None:
    (found,) = faults(with_header(tmp_path, old, new))
    assert found.startswith(f"aclnnL1LossBackward: {parameter}: expected ")


def test_tensors_that_changed_places_are_a_warning(tmp_path: Path) -> None:
    old, new = "*self, const aclTensor *target", "*target, const aclTensor *self"
    (found,) = warnings(with_header(tmp_path, old, new))
    said = "parameter 2: expected const aclTensor* self, the header has const aclTensor* target"
    assert said in found


def test_an_operator_that_no_header_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "aclnn_other.h").write_text("aclnnStatus aclnnOtherGetWorkspaceSize(int a, int b);")
    (finding,) = check_prototypes([tmp_path], CATALOGUE)
    assert finding.verdict is OK
    assert finding.found.endswith("not there: aclnnL1LossBackward")


def test_the_first_folder_that_has_an_operator_counts(tmp_path: Path) -> None:
    with_header(tmp_path / "second", L1, "int64_t self")
    with_header(tmp_path / "first")
    folders = [tmp_path / "first", tmp_path / "second"]
    assert faults(check_prototypes(folders, CATALOGUE)) == []


def test_no_headers_are_a_warning(tmp_path: Path) -> None:
    said = "to compare the declared operators with"
    none = "there are no headers of operators"
    assert warnings(check_prototypes([tmp_path])) == [f"{none} in {tmp_path}, {said}"]
    assert warnings(check_prototypes([])) == [f"{none}, {said}"]
