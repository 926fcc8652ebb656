"""Python for aarch64 calls every C function, and it finds what ctypes handed over.

An emulator runs Debian's Python with its libffi. The functions are recorders of the same types.
"""

from __future__ import annotations

from ctypes import c_double, c_float, c_int8, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

import pytest

from .aarch64 import Signature
from .emulated import PACKAGES, python, recorded_otherwise, recorders
from .need import need
from .subjects import all_of_them, cpp_types, declarations

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def interpreter() -> list[str]:
    need(PACKAGES)
    return python()


@pytest.fixture(scope="module")
def library(interpreter: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorders") / "librecorders.so"
    recorders(cpp_types().values(), declarations(), path)
    return path


def test_every_function_records_what_ctypes_hands_over(
    interpreter: list[str], library: Path
) -> None:
    assert list(all_of_them()) == list(cpp_types())
    assert recorded_otherwise(interpreter, library, all_of_them()) == {}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("aclrtMalloc", {1: c_int32}),
        ("aclrtSetDevice", {0: c_float}),
        ("aclnnSmoothL1LossBackwardGetWorkspaceSize", {4: c_double}),
        ("aclnnKlDivBackwardGetWorkspaceSize", {3: c_int8}),
        ("aclnnInplaceNormalGetWorkspaceSize", {1: c_int64}),
        ("aclCreateTensor", {8: None}),
        ("aclGetRecentErrMsg", {0: c_void_p}),
    ],
)
def test_a_wrong_declaration_is_found(
    interpreter: list[str], library: Path, name: str, changed: dict[int, Any]
) -> None:
    declared = all_of_them()
    parameters = dict(enumerate(declared[name].parameters)) | changed
    wrong = tuple(kind for kind in parameters.values() if kind is not None)
    declared[name] = Signature(declared[name].result, wrong)
    assert list(recorded_otherwise(interpreter, library, declared)) == [name]
