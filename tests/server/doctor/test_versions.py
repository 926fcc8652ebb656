"""What the doctor says of the versions of toolkit, runtime and driver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npucall_server.devices.base import DeviceFacts
from npucall_server.doctor.finding import Verdict
from npucall_server.doctor.versions import check_versions

from .hosts import todo, warnings

FITTING = DeviceFacts(cann_version="8.5.0", driver_version="25.5.1", runtime_version="1.15.0")


def test_versions_that_fit_are_well() -> None:
    assert [finding.found for finding in check_versions(FITTING)] == [
        "CANN 8.5.0, runtime interface 1.15.0",
        "driver 25.5.1",
    ]


@pytest.mark.parametrize(
    ("cann", "driver", "expected"),
    [
        ("8.5.0", "24.1.rc3", Verdict.WARNING),
        ("8.5.0", "25.0.rc1", Verdict.OK),
        ("9.0.0", "24.1.0", Verdict.WARNING),
        ("8.2.RC1", "23.0.6", Verdict.WARNING),
        ("8.2.RC1", "24.1.rc2", Verdict.OK),
        ("8.1.RC1", "23.0.6", Verdict.OK),  # no table is known
        ("", "23.0.6", Verdict.OK),
    ],
)
def test_a_driver_older_than_the_vendor_s_tables_name_is_a_warning(
    cann: str, driver: str, expected: Verdict
) -> None:
    facts = replace(FITTING, cann_version=cann, driver_version=driver)
    assert check_versions(facts)[1].verdict is expected


def test_a_warning_of_an_old_driver_says_what_comes_of_it() -> None:
    (found,) = warnings(check_versions(replace(FITTING, driver_version="24.1.0")))
    assert found == (
        "CANN 8.5.0 needs driver 25.0 or newer, and this one is 24.1.0: functions that it does "
        "not know answer 207000"
    )


def test_a_driver_that_does_not_tell_its_version_is_a_warning() -> None:
    findings = check_versions(replace(FITTING, driver_version=""))
    assert warnings(findings) == ["the driver does not report its version"]
    assert "version.info" in todo(findings)


def test_a_runtime_older_than_cann_8_1_is_a_warning() -> None:
    facts = replace(FITTING, cann_version="8.0.0", runtime_version="1.12.0")
    (found,) = warnings(check_versions(facts))
    assert found == (
        "CANN 8.0.0, runtime interface 1.12.0: older than every version that npucall supports"
    )


def test_a_runtime_that_does_not_tell_its_version_is_a_warning() -> None:
    assert warnings(check_versions(replace(FITTING, runtime_version=""))) == [
        "CANN 8.5.0; the runtime does not report its version"
    ]
