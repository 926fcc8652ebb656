"""The table of statuses has the names and numbers of CANN's headers, and all of them."""

from __future__ import annotations

from npucall_server.devices.cann.status_table import STATUSES, Fate

from .headers import Claim, Headers

# aclnn functions have statuses of their own, which stand in no header of the wheel.
NAMED = {row.symbol: code for code, row in STATUSES.items() if row.symbol.startswith("ACL_")}
OF_ACLNN = {code for code, row in STATUSES.items() if row.symbol.startswith("ACLNN_")}
# 107045 means other things to other releases of CANN, so that a name could mislead.
LEFT_OUT = {"ACL_ERROR_RT_STREAM_NOT_SUPPORT_OPERA"}


def equal(statuses: dict[str, int]) -> list[Claim]:
    return [Claim(name, f"{name} == {code}") for name, code in statuses.items()]


def test_every_status_has_the_number_of_the_headers(headers: Headers) -> None:
    assert headers.refuted(equal(NAMED)) == {}


def test_every_status_of_the_headers_is_in_the_table(headers: Headers) -> None:
    assert set(headers.statuses) - set(NAMED) == LEFT_OUT


def test_the_statuses_found_in_the_headers_are_those_that_they_declare(headers: Headers) -> None:
    assert len(headers.statuses) == 251
    assert headers.refuted(equal(headers.statuses)) == {}


def test_what_no_header_proves_are_the_statuses_of_aclnn_alone() -> None:
    assert {code // 1000 for code in OF_ACLNN} == {161, 361, 561}
    assert len(NAMED) + len(OF_ACLNN) == len(STATUSES)


def test_a_wrong_number_is_found(headers: Headers) -> None:
    wrong = {"ACL_ERROR_RT_AICORE_TIMEOUT": 507015, "ACL_ERROR_RT_AICORE_EXCEPTION": 507015}
    assert list(headers.refuted(equal(wrong))) == ["ACL_ERROR_RT_AICORE_TIMEOUT"]


def test_a_wrong_name_is_found(headers: Headers) -> None:
    wrong = {"ACL_ERROR_RT_NO_SUCH_STATUS": 507015}
    assert list(headers.refuted(equal(wrong))) == ["ACL_ERROR_RT_NO_SUCH_STATUS"]


def test_all_5070xx_are_broken_but_three() -> None:
    fates = {code: row.fate for code, row in STATUSES.items() if code // 100 == 5070}
    assert len(fates) == 58
    whole = {code for code, fate in fates.items() if fate is not Fate.BROKEN}
    assert whole == {507005, 507006, 507023}


def test_of_the_others_those_are_broken_that_stay_with_the_device() -> None:
    broken = {code for code, row in STATUSES.items() if row.fate is Fate.BROKEN}
    aborts, socket, collective = {107022, 107035}, {507901}, {507904, 507914, 507915, 507916}
    assert {code for code in broken if code // 100 != 5070} == aborts | socket | collective
