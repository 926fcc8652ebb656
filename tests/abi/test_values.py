"""Numbers, structures and statuses that the server knows are those of CANN's headers."""

import ctypes
from typing import Any

import pytest

from npucall.dtypes import DTYPES
from npucall.statuses import STATUSES, Fate
from npucall.tensors import Format
from npucall_server.devices.cann import functions
from npucall_server.devices.cann.functions import CannPackageVersion, UtilizationInfo

from .headers import Claim, Headers
from .ours import STRUCTURES, type_of

# aclnn functions have statuses of their own, which stand in no header of the wheel.
NAMED = {row.symbol: code for code, row in STATUSES.items() if row.symbol.startswith("ACL_")}
OF_ACLNN = {code for code, row in STATUSES.items() if row.symbol.startswith("ACLNN_")}
# 107045 means other things to other releases of CANN, so that a name could mislead.
LEFT_OUT = {"ACL_ERROR_RT_STREAM_NOT_SUPPORT_OPERA"}


def equal(values: dict[str, int]) -> list[Claim]:
    return [Claim(name, f"{name} == {value}") for name, value in values.items()]


def layout(structure: Any, theirs: str) -> list[Claim]:
    """Its size, and where each field stands and of which type it is."""
    found = [Claim(theirs, f"sizeof({theirs}) == {ctypes.sizeof(structure)}")]
    for name, kind in structure._fields_:
        place = getattr(structure, name).offset
        ours = type_of(kind)
        found.append(Claim(f"{name} offset", f"offsetof({theirs}, {name}) == {place}"))
        found.append(Claim(f"{name} type", f"alike<decltype({theirs}::{name}), {ours}>()"))
    return found


def test_constants_and_structures_are_those_of_the_headers(headers: Headers) -> None:
    constants = {
        name: value
        for name, value in vars(functions).items()
        if name.startswith("ACL_") and isinstance(value, int)
    }
    assert constants
    codes = {f"ACL_{dtype.name}": dtype.acl for dtype in DTYPES}
    codes |= {f"ACL_FORMAT_{format_.name}": int(format_) for format_ in Format}
    # The only one that CANN names otherwise.
    codes["ACL_FRACTAL_Z_3D"] = codes.pop("ACL_FORMAT_FRACTAL_Z_3D")
    layouts = [claim for each in STRUCTURES.items() for claim in layout(*each)]
    assert headers.refuted([*equal(constants | codes), *layouts]) == {}


def test_every_status_of_the_headers_is_in_the_table_with_its_number(headers: Headers) -> None:
    assert headers.refuted(equal(NAMED)) == {}
    assert set(headers.statuses) - set(NAMED) == LEFT_OUT
    assert len(headers.statuses) == 251
    assert headers.refuted(equal(headers.statuses)) == {}
    # What no header proves are the statuses of aclnn alone.
    assert {code // 1000 for code in OF_ACLNN} == {161, 361, 561}
    assert len(NAMED) + len(OF_ACLNN) == len(STATUSES)


def test_a_wrong_value_or_name_is_found(headers: Headers) -> None:
    wrong = {"ACL_HOST": 0, "ACL_NO_SUCH_NAME": 0, "ACL_ERROR_RT_AICORE_TIMEOUT": 507015}
    right = {"ACL_FLOAT": 0, "ACL_ERROR_RT_AICORE_EXCEPTION": 507015}
    assert headers.refuted(equal(wrong | right)).keys() == wrong.keys()


class Short(ctypes.Structure):
    _fields_ = UtilizationInfo._fields_[:4]


class Swapped(ctypes.Structure):
    _fields_ = (
        UtilizationInfo._fields_[1],
        UtilizationInfo._fields_[0],
        *UtilizationInfo._fields_[2:],
    )


class Unsigned(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint8 * 128), *CannPackageVersion._fields_[1:])


@pytest.mark.parametrize(
    ("structure", "theirs", "found"),
    [(Short, "aclrtUtilizationInfo", ["aclrtUtilizationInfo"]),
     (Swapped, "aclrtUtilizationInfo", ["vectorUtilization offset", "cubeUtilization offset"]),
     (Unsigned, "aclCANNPackageVersion", ["version type"])],
)  # fmt: skip
def test_a_field_too_few_in_another_order_or_of_another_type_is_found(
    headers: Headers, structure: Any, theirs: str, found: list[str]
) -> None:
    assert list(headers.refuted(layout(structure, theirs))) == found


def test_those_statuses_are_broken_that_stay_with_the_device() -> None:
    broken = {code for code, row in STATUSES.items() if row.fate is Fate.BROKEN}
    of_5070 = {code for code in STATUSES if code // 100 == 5070}
    assert len(of_5070) == 58
    assert of_5070 - broken == {507005, 507006, 507023}
    aborts, socket, collective = {107022, 107035}, {507901}, {507904, 507914, 507915, 507916}
    assert broken - of_5070 == aborts | socket | collective
