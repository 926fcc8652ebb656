"""What the doctor says of device nodes, driver and custom packages."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from npucall_server.doctor.finding import Verdict
from npucall_server.doctor.host import check_custom_packages, check_driver, check_nodes
from npucall_server.npu_settings import AscendPaths

from .hosts import DRIVER, NODES, Host, faults, todo, warnings

LIBRARY = "op_api/lib/libcust_opapi.so"


def test_nodes_that_are_there_and_may_be_used_are_well(host: Host) -> None:
    (finding,) = check_nodes(host.root)
    assert (finding.verdict, finding.found) == (Verdict.OK, f"/dev has {', '.join(NODES)}")


def test_a_host_without_nodes_has_one_fault(tmp_path: Path) -> None:
    findings = check_nodes(tmp_path)
    expected = (
        "/dev does not have davinci0 (or another number), davinci_manager, devmm_svm, hisi_hdc"
    )
    assert faults(findings) == [expected]
    assert "--device /dev/davinci_manager" in todo(findings)


@pytest.mark.parametrize("node", ["davinci_manager", "devmm_svm", "hisi_hdc"])
def test_a_missing_node_is_named(host: Host, node: str) -> None:
    (host.root / "dev" / node).unlink()
    assert faults(check_nodes(host.root)) == [f"/dev does not have {node}"]


def test_a_device_of_any_number_will_do(host: Host) -> None:
    (host.root / "dev/davinci0").unlink()
    (host.root / "dev/davinci1").rename(host.root / "dev/davinci13")
    assert faults(check_nodes(host.root)) == []


def test_a_node_that_the_user_may_not_use_is_named_with_its_group(host: Host) -> None:
    node = host.root / "dev/davinci1"
    node.chmod(0o660)
    findings = check_nodes(host.root, usable=lambda node: node.name != "davinci1")
    group = grp.getgrgid(node.stat().st_gid).gr_name
    (found,) = faults(findings)
    assert found.endswith(f"may not use /dev/davinci1 (group {group}, mode 0660)")
    assert "usermod -aG HwHiAiUser <user>" in todo(findings)


def test_a_node_has_to_be_readable_and_writable(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK | os.W_OK)
    assert len(faults(check_nodes(host.root))) == 1


def test_a_driver_that_is_there_is_well(host: Host) -> None:
    findings = check_driver(host.root)
    assert [finding.found for finding in findings] == [
        f"/{DRIVER} has libascend_hal.so",
        "the driver's version is 25.5.0",
    ]


def test_a_missing_driver_is_a_fault(tmp_path: Path) -> None:
    findings = check_driver(tmp_path)
    assert faults(findings) == [f"there is no driver in /{DRIVER}"]
    assert f"-v /{DRIVER}/lib64:/{DRIVER}/lib64:ro" in todo(findings)


def test_an_empty_mount_of_the_driver_is_a_fault(host: Host) -> None:
    (host.root / DRIVER / "lib64/driver/libascend_hal.so").unlink()
    assert faults(check_driver(host.root)) == [f"there is no libascend_hal.so in /{DRIVER}/lib64"]


def test_a_driver_whose_version_is_not_mounted_is_a_warning(host: Host) -> None:
    (host.root / DRIVER / "version.info").unlink()
    findings = check_driver(host.root)
    assert faults(findings) == []
    assert len(warnings(findings)) == 1


def test_a_driver_in_another_place_is_found_by_the_installer_s_file(host: Host) -> None:
    (host.root / "opt").mkdir()
    (host.root / DRIVER).rename(host.root / "opt/driver")
    (host.root / "etc").mkdir()
    (host.root / "etc/ascend_install.info").write_text(
        "UserGroup=HwHiAiUser\nDriver_Install_Path_Param=/opt\n"
    )
    assert check_driver(host.root)[0].found == "/opt/driver has libascend_hal.so"


def install(package: Path) -> None:
    (package / "op_api/lib").mkdir(parents=True)
    (package / LIBRARY).touch()


def test_a_host_without_custom_packages_says_so(host: Host) -> None:
    (finding,) = check_custom_packages(host.paths)
    assert finding.found == "none is installed: operators are CANN's own"


def test_a_custom_package_that_is_there_is_well(tmp_path: Path) -> None:
    install(tmp_path / "vendor")
    (finding,) = check_custom_packages(AscendPaths(None, None, (tmp_path / "vendor",)))
    assert finding.verdict is Verdict.OK


@pytest.mark.parametrize("missing", ["gone", f"empty/{LIBRARY}"])
def test_a_custom_package_that_is_not_there_is_a_warning(tmp_path: Path, missing: str) -> None:
    (tmp_path / "empty").mkdir()
    package = tmp_path / Path(missing).parts[0]
    (found,) = warnings(check_custom_packages(AscendPaths(None, None, (package,))))
    assert found == (
        f"ASCEND_CUSTOM_OPP_PATH names {package}, but there is no {tmp_path / missing}: CANN "
        "ignores the package"
    )


def test_a_vendor_that_the_configuration_names_is_looked_for(host: Host) -> None:
    install(host.home / "opp/vendors/one")
    (host.home / "opp/vendors/config.ini").write_text("load_priority=one,two\n")
    findings = check_custom_packages(host.paths)
    assert [finding.verdict for finding in findings] == [Verdict.OK, Verdict.WARNING]


def test_a_vendor_behind_a_blank_is_a_warning(host: Host) -> None:
    install(host.home / "opp/vendors/one")
    install(host.home / "opp/vendors/two")
    (host.home / "opp/vendors/config.ini").write_text("load_priority=one, two\n")
    (unnamed, unlisted) = warnings(check_custom_packages(host.paths))
    assert f"names {host.home}/opp/vendors/ two, but there is no " in unnamed
    assert f"{host.home}/opp/vendors/two is installed, but " in unlisted


def test_a_vendor_that_the_configuration_does_not_name_is_a_warning(host: Host) -> None:
    install(host.home / "opp/vendors/one")
    findings = check_custom_packages(host.paths)
    assert len(warnings(findings)) == 1
    assert "write load_priority=one there" in todo(findings)
