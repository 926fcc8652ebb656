"""The functions that the server calls are declared in ctypes as CANN's headers declare them."""

from __future__ import annotations

import json
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_int64, c_uint32, c_void_p

import pytest
from tests.more import every_third

from npucall_server.devices.cann.functions import AscendCL, UtilizationInfo
from npucall_server.devices.cann.library import Function, HandleFunction, StatusFunction

from .headers import Headers
from .ours import PHASE_TWO, signature_of, signatures
from .proofs import NONE, TABLE, claims, proofs


def test_every_function_is_declared_as_the_headers_declare_it(headers: Headers) -> None:
    assert headers.refuted(claims(headers, signatures())) == {}


def test_the_headers_declare_every_function_of_the_runtime(headers: Headers) -> None:
    assert set(AscendCL.declared()) <= headers.functions


def test_the_table_of_proofs_is_what_was_proved(headers: Headers) -> None:
    assert json.loads(TABLE.read_text()) == proofs(headers), "make abi"


def test_the_table_of_proofs_names_every_function() -> None:
    assert list(json.loads(TABLE.read_text())["functions"]) == list(signatures()), "make abi"


def test_two_functions_are_proved_by_hardware_alone() -> None:
    table = json.loads(TABLE.read_text())["functions"]
    unproved = {name for name, proof in table.items() if proof == NONE}
    assert unproved == {"aclDestroyAclOpExecutor", "aclSetRawTensorAddr"}


MISTAKES = {
    "a narrower integer": ("aclrtMalloc", StatusFunction(POINTER(c_void_p), c_int32, c_int32)),
    "another sign": ("aclrtSetDevice", StatusFunction(c_uint32)),
    "an integer in place of an enum's": (
        "aclrtSetSysParamOpt",
        StatusFunction(c_int64, c_int64),
    ),
    "a pointer to a narrower integer": ("aclrtGetDeviceCount", StatusFunction(POINTER(c_bool))),
    "a pointer to another enum's integer": ("aclrtGetRunMode", StatusFunction(POINTER(c_int64))),
    "a handle in place of a pointer to one": (
        "aclrtCreateStreamWithConfig",
        StatusFunction(c_void_p, c_uint32, c_uint32),
    ),
    "a pointer to a handle in place of it": (
        "aclrtDestroyStream",
        StatusFunction(POINTER(c_void_p)),
    ),
    "a handle in place of a pointer to numbers": (
        "aclrtEventElapsedTime",
        StatusFunction(c_void_p, c_void_p, c_void_p),
    ),
    "a handle in place of a text": ("aclInit", StatusFunction(c_void_p)),
    "a text in place of a handle": ("aclrtFree", StatusFunction(c_char_p)),
    "a number in place of a handle": ("aclrtFree", StatusFunction(c_int64)),
    "another structure": (
        "aclsysGetCANNVersion",
        StatusFunction(c_int32, POINTER(UtilizationInfo)),
    ),
    "a parameter too few": ("aclrtSynchronizeStreamWithTimeout", StatusFunction(c_void_p)),
    "a parameter too many": ("aclFinalize", StatusFunction(c_void_p)),
    "parameters in another order": (
        "aclrtSynchronizeStreamWithTimeout",
        StatusFunction(c_int32, c_void_p),
    ),
    "another result": ("aclGetRecentErrMsg", Function(result=c_int32)),
    "no result": ("aclGetRecentErrMsg", Function()),
    "a status in place of an object": ("aclCreateScalar", StatusFunction(c_void_p, c_int32)),
    "floats in place of integers": ("aclCreateIntArray", HandleFunction(POINTER(c_float), c_int64)),
    "a handle in place of a list of them": (
        "aclCreateTensorList",
        HandleFunction(c_void_p, c_int64),
    ),
}


@pytest.mark.parametrize("mistake", every_third(MISTAKES))
def test_a_wrong_declaration_is_found(headers: Headers, mistake: str) -> None:
    name, wrong = MISTAKES[mistake]
    wrong.__set_name__(AscendCL, name)
    assert list(headers.refuted(claims(headers, {name: signature_of(wrong)}))) == [name]


def test_a_wrong_second_phase_is_found(headers: Headers) -> None:
    wrong = {PHASE_TWO: "int32_t(Opaque *, uint32_t, Opaque *, Opaque *)"}
    assert list(headers.refuted(claims(headers, wrong))) == [PHASE_TWO]


def test_a_function_that_cann_does_not_have_has_no_proof(headers: Headers) -> None:
    assert headers.type_of("aclrtNoSuchFunction") is None
