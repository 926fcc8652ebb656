"""What the doctor says of the environment."""

from __future__ import annotations

import shutil

import pytest

from npucall_server.doctor.environment import check_environment
from npucall_server.doctor.finding import Finding, Verdict

from .hosts import DRIVER, Host, faults, todo, warnings


def check(host: Host, number: int = 0, **changes: str | None) -> list[Finding]:
    """The findings where some variables differ from what set_env.sh exports; None: not set."""
    changed = {**host.environment, **changes}
    environment = {name: value for name, value in changed.items() if value is not None}
    return check_environment(environment, host.root, number)


def test_what_set_env_exports_is_well(host: Host) -> None:
    assert {finding.verdict for finding in check(host)} == {Verdict.OK}


def test_a_missing_set_env_is_one_fault_that_names_the_script(host: Host) -> None:
    findings = check_environment({}, host.root, 0)
    assert faults(findings) == ["ASCEND_HOME_PATH and ASCEND_OPP_PATH are not set"]
    assert "`source /usr/local/Ascend/cann/set_env.sh`" in todo(findings)


def test_a_host_without_a_toolkit_is_told_to_install_one(host: Host) -> None:
    (host.home / "set_env.sh").unlink()
    assert "install CANN 8.1 or newer" in todo(check_environment({}, host.root, 0))


def test_the_older_name_of_the_toolkit_s_variable_counts(host: Host) -> None:
    findings = check(host, ASCEND_HOME_PATH=None, ASCEND_TOOLKIT_HOME=str(host.home))
    assert faults(findings) == []


def test_a_toolkit_that_is_not_there_is_a_fault(host: Host) -> None:
    findings = check(host, ASCEND_HOME_PATH="/nowhere")
    assert "ASCEND_HOME_PATH is /nowhere, but no toolkit is there (no lib64)" in faults(findings)


def test_operators_that_no_variable_names_are_a_fault(host: Host) -> None:
    findings = check(host, ASCEND_OPP_PATH=None)
    assert faults(findings) == ["ASCEND_OPP_PATH is not set; every call would end with 561107"]
    assert f"`source {host.home}/set_env.sh`" in todo(findings)


def test_operators_that_are_not_there_are_a_fault(host: Host) -> None:
    assert faults(check(host, ASCEND_OPP_PATH="/gone")) == [
        "ASCEND_OPP_PATH is /gone, but there is no such folder"
    ]


def test_operators_of_another_toolkit_are_a_warning(host: Host) -> None:
    other = host.root / "other/opp"
    other.mkdir(parents=True)
    findings = check(host, ASCEND_OPP_PATH=str(other))
    assert warnings(findings) == [f"ASCEND_OPP_PATH is {other}, not {host.home}/opp"]


def test_a_link_to_the_toolkit_is_the_toolkit(host: Host) -> None:
    latest = host.root / "latest"
    latest.symlink_to(host.home)
    findings = check(host, ASCEND_HOME_PATH=str(latest))
    assert {finding.verdict for finding in findings} == {Verdict.OK}


def test_a_loader_s_path_without_the_toolkit_is_a_fault(host: Host) -> None:
    findings = check(host, LD_LIBRARY_PATH="")
    assert faults(findings) == [f"LD_LIBRARY_PATH does not have {host.home}/lib64"]
    assert "LD_LIBRARY_PATH is read when a program starts" in todo(findings)


def test_a_loader_s_path_without_the_driver_is_a_warning(host: Host) -> None:
    findings = check(host, LD_LIBRARY_PATH=f"{host.home}/lib64:/{DRIVER}/lib64")
    shown = ", ".join(f"/{DRIVER}/{name}" for name in ("lib64", "lib64/common", "lib64/driver"))
    assert warnings(findings) == [f"LD_LIBRARY_PATH does not have {shown}"]


def test_a_driver_that_is_not_there_is_no_matter_of_the_loader(host: Host) -> None:
    shutil.rmtree(host.root / DRIVER)
    assert warnings(check(host, LD_LIBRARY_PATH=f"{host.home}/lib64")) == []


def test_stub_libraries_in_the_loader_s_path_are_a_warning(host: Host) -> None:
    path = f"/opt/cann/devlib:{host.environment['LD_LIBRARY_PATH']}"
    assert warnings(check(host, LD_LIBRARY_PATH=path)) == ["LD_LIBRARY_PATH has /opt/cann/devlib"]


def test_visible_devices_are_numbered_anew(host: Host) -> None:
    findings = check(host, 1, ASCEND_RT_VISIBLE_DEVICES="4,6")
    assert findings[-1].found == "ASCEND_RT_VISIBLE_DEVICES is 4,6: cann:1 is its device 6"


def test_a_device_beyond_the_visible_ones_is_a_fault(host: Host) -> None:
    findings = check(host, 6, ASCEND_RT_VISIBLE_DEVICES="4,6")
    assert len(faults(findings)) == 1
    assert todo(findings) == "use cann:0 to cann:1, or unset the variable"


@pytest.mark.parametrize("value", ["", "0,", "all", "0;1", "-1"])
def test_visible_devices_that_are_no_numbers_are_a_warning(host: Host, value: str) -> None:
    assert warnings(check(host, ASCEND_RT_VISIBLE_DEVICES=value)) == [
        f"ASCEND_RT_VISIBLE_DEVICES is {value!r}, which is no list of numbers"
    ]
