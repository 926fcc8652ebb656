"""What the doctor says of device nodes, driver and custom packages."""

import grp
import os
from pathlib import Path

import pytest

from npucall_server.commands.doctor.finding import Verdict
from npucall_server.commands.doctor.host import check_custom_packages, check_driver, check_nodes
from npucall_server.settings.npu import AscendPaths

from .conftest import DRIVER, NODES, Host, faults, make_host, todo, warnings

LIBRARY = "op_api/lib/libcust_opapi.so"


def test_nodes_that_are_there_and_may_be_used_are_well(host: Host) -> None:
    (finding,) = check_nodes(host.root)
    assert (finding.verdict, finding.found) == (Verdict.OK, f"/dev has {', '.join(NODES)}")
    (host.root / "dev/davinci0").unlink()
    (host.root / "dev/davinci1").rename(host.root / "dev/davinci13")  # any number will do
    assert faults(check_nodes(host.root)) == []


def test_missing_nodes_are_named(host: Host) -> None:
    needed = ("davinci_manager", "devmm_svm", "hisi_hdc")
    for node in needed:
        (host.root / "dev" / node).unlink()
        assert faults(check_nodes(host.root)) == [f"/dev does not have {node}"]
        (host.root / "dev" / node).touch()
    findings = check_nodes(host.root / "nowhere")
    expected = f"/dev does not have davinci0 (or another number), {', '.join(needed)}"
    assert faults(findings) == [expected]
    assert "--device /dev/davinci_manager" in todo(findings)


def test_a_node_that_the_user_may_not_use_is_named_with_its_group(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = host.root / "dev/davinci1"
    node.chmod(0o660)
    findings = check_nodes(host.root, usable=lambda node: node.name != "davinci1")
    group = grp.getgrgid(node.stat().st_gid).gr_name
    (found,) = faults(findings)
    assert found.endswith(f"may not use /dev/davinci1 (group {group}, mode 0660)")
    assert "usermod -aG HwHiAiUser <user>" in todo(findings)
    # It has to be readable and writable.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK | os.W_OK)
    assert len(faults(check_nodes(host.root))) == 1


def test_a_driver_that_is_there_is_well(host: Host) -> None:
    said = [finding.found for finding in check_driver(host.root)]
    assert said == [f"/{DRIVER} has libascend_hal.so", "the driver's version is 25.5.0"]


def test_a_driver_that_is_missing_or_empty_is_a_fault(host: Host) -> None:
    findings = list(check_driver(host.root / "nowhere"))
    assert faults(findings) == [f"there is no driver in /{DRIVER}"]
    assert f"-v /{DRIVER}/lib64:/{DRIVER}/lib64:ro" in todo(findings)
    (host.root / DRIVER / "lib64/driver/libascend_hal.so").unlink()  # an empty mount
    assert faults(check_driver(host.root)) == [f"there is no libascend_hal.so in /{DRIVER}/lib64"]


def test_a_driver_whose_version_is_not_mounted_is_a_warning(host: Host) -> None:
    (host.root / DRIVER / "version.info").unlink()
    findings = list(check_driver(host.root))
    assert (len(faults(findings)), len(warnings(findings))) == (0, 1)


def test_a_driver_in_another_place_is_found_by_the_installer_s_file(host: Host) -> None:
    for folder in "opt", "etc":
        (host.root / folder).mkdir()
    (host.root / DRIVER).rename(host.root / "opt/driver")
    (host.root / "etc/ascend_install.info").write_text(
        "UserGroup=HwHiAiUser\nDriver_Install_Path_Param=/opt\n"
    )
    assert next(iter(check_driver(host.root))).found == "/opt/driver has libascend_hal.so"


def install(host: Host, *vendors: str, configured: str | None = None) -> None:
    for vendor in vendors:
        library = host.home / "opp/vendors" / vendor / LIBRARY
        library.parent.mkdir(parents=True)
        library.touch()
    if configured is not None:
        (host.home / "opp/vendors/config.ini").write_text(f"load_priority={configured}\n")


def test_a_custom_package_of_the_environment_is_well_if_its_library_is_there(host: Host) -> None:
    install(host, "vendor")
    (host.root / "empty").mkdir()
    there = host.home / "opp/vendors/vendor"
    (finding,) = check_custom_packages(AscendPaths(None, None, (there,)))
    assert finding.verdict is Verdict.OK
    for missing in "gone", f"empty/{LIBRARY}":
        package = host.root / Path(missing).parts[0]
        (said,) = warnings(check_custom_packages(AscendPaths(None, None, (package,))))
        lacking = f"names {package}, but there is no {host.root / missing}"
        assert said == f"ASCEND_CUSTOM_OPP_PATH {lacking}: CANN ignores the package"


VENDORS: list[tuple[tuple[str, ...], str | None, list[tuple[Verdict, str]]]] = [
    ((), None, [(Verdict.OK, "none is installed: operators are CANN's own")]),
    (("one",), "one,two", [(Verdict.OK, ""), (Verdict.WARNING, "/opp/vendors/two, but ")]),
    (("one", "two"), "one, two",
     [(Verdict.OK, ""), (Verdict.WARNING, "/opp/vendors/ two, but there is no "),
      (Verdict.WARNING, "/opp/vendors/two is installed, but ")]),
    (("one",), None, [(Verdict.WARNING, "write load_priority=one there")]),
]  # fmt: skip
"""Vendors that are installed, those that the configuration names, and what is said of them."""


def test_vendors_are_looked_for_where_the_configuration_names_them(tmp_path: Path) -> None:
    for number, (vendors, configured, expected) in enumerate(VENDORS):
        host = make_host(tmp_path / str(number))
        install(host, *vendors, configured=configured)
        findings = list(check_custom_packages(host.paths))
        assert [finding.verdict for finding in findings] == [verdict for verdict, _ in expected]
        for finding, (_, said) in zip(findings, expected, strict=True):
            assert said in f"{finding.found} {finding.todo}"
