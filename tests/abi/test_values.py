"""The numbers and structures that the server hands to CANN are those of its headers."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from npucall.dtypes import DTYPES
from npucall.tensors import Format
from npucall_server.devices.cann import functions
from npucall_server.devices.cann.functions import CannPackageVersion, UtilizationInfo

from .headers import Claim, Headers
from .ours import STRUCTURES, type_of

# Constants that CANN names otherwise.
CONSTANTS = {
    name: value
    for name, value in vars(functions).items()
    if name.startswith("ACL_") and isinstance(value, int)
}


def equal(values: dict[str, int]) -> list[Claim]:
    return [Claim(name, f"{name} == {value}") for name, value in values.items()]


def layout(structure: Any) -> list[Claim]:
    """Its size, and where each field stands and of which type it is."""
    theirs = STRUCTURES[structure]
    found = [Claim(theirs, f"sizeof({theirs}) == {ctypes.sizeof(structure)}")]
    for name, kind in structure._fields_:
        place = getattr(structure, name).offset
        ours = type_of(kind)
        found.append(Claim(f"{name} offset", f"offsetof({theirs}, {name}) == {place}"))
        found.append(Claim(f"{name} type", f"alike<decltype({theirs}::{name}), {ours}>()"))
    return found


def test_constants_have_the_values_of_the_headers(headers: Headers) -> None:
    assert CONSTANTS
    assert headers.refuted(equal(CONSTANTS)) == {}


def test_dtypes_have_the_codes_of_the_headers(headers: Headers) -> None:
    codes = {f"ACL_{dtype.name}": dtype.acl for dtype in DTYPES}
    assert headers.refuted(equal(codes)) == {}


def test_formats_have_the_codes_of_the_headers(headers: Headers) -> None:
    codes = {f"ACL_FORMAT_{format_.name}": int(format_) for format_ in Format}
    # The only one that CANN names otherwise.
    codes["ACL_FRACTAL_Z_3D"] = codes.pop("ACL_FORMAT_FRACTAL_Z_3D")
    assert headers.refuted(equal(codes)) == {}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_structures_have_the_layout_of_the_headers(headers: Headers, structure: Any) -> None:
    assert headers.refuted(layout(structure)) == {}


def test_a_wrong_value_is_found(headers: Headers) -> None:
    assert list(headers.refuted(equal({"ACL_HOST": 0, "ACL_FLOAT": 0}))) == ["ACL_HOST"]


def test_a_name_that_c_does_not_have_is_found(headers: Headers) -> None:
    assert list(headers.refuted(equal({"ACL_NO_SUCH_NAME": 0}))) == ["ACL_NO_SUCH_NAME"]


def test_a_field_too_few_is_found(headers: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(ctypes.Structure):
        _fields_ = UtilizationInfo._fields_[:4]

    monkeypatch.setitem(STRUCTURES, Short, "aclrtUtilizationInfo")
    assert list(headers.refuted(layout(Short))) == ["aclrtUtilizationInfo"]


def test_fields_in_another_order_are_found(
    headers: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *others = UtilizationInfo._fields_

    class Swapped(ctypes.Structure):
        _fields_ = (second, first, *others)

    monkeypatch.setitem(STRUCTURES, Swapped, "aclrtUtilizationInfo")
    expected = ["vectorUtilization offset", "cubeUtilization offset"]
    assert list(headers.refuted(layout(Swapped))) == expected


def test_a_field_of_another_type_is_found(
    headers: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unsigned(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint8 * 128), *CannPackageVersion._fields_[1:])

    monkeypatch.setitem(STRUCTURES, Unsigned, "aclCANNPackageVersion")
    assert list(headers.refuted(layout(Unsigned))) == ["version type"]
