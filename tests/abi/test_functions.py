"""The C functions that the server calls, and the simulator's, are declared as CANN's headers do."""

import json
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_int64, c_uint32, c_void_p

import pytest

from npucall_server.devices.cann.functions import AscendCL, UtilizationInfo
from npucall_server.devices.cann.library import HandleFunction, StatusFunction, ValueFunction

from . import simulated
from .headers import Claim, Headers
from .ours import PHASE_TWO, signature_of, signatures
from .proofs import NONE, TABLE, claims, proofs


def test_the_table_of_proofs_is_what_was_proved(headers: Headers) -> None:
    assert json.loads(TABLE.read_text()) == proofs(headers), "make abi"
    assert set(AscendCL.declared()) <= headers.functions
    assert headers.type_of("aclrtNoSuchFunction") is None


def test_the_table_names_every_function_of_which_two_are_proved_by_hardware_alone() -> None:
    table = json.loads(TABLE.read_text())["functions"]
    assert list(table) == list(signatures()), "make abi"
    unproved = {name for name, proof in table.items() if proof == NONE}
    assert unproved == {"aclDestroyAclOpExecutor", "aclSetRawTensorAddr"}


MISTAKES: dict[str, tuple[str, ValueFunction]] = {
    "a narrower integer": ("aclrtMalloc", StatusFunction(POINTER(c_void_p), c_int32, c_int32)),
    "another sign": ("aclrtSetDevice", StatusFunction(c_uint32)),
    "an integer in place of an enum's": ("aclrtSetSysParamOpt", StatusFunction(c_int64, c_int64)),
    "a pointer to a narrower integer": ("aclrtGetDeviceCount", StatusFunction(POINTER(c_bool))),
    "a pointer to another enum's integer": ("aclrtGetRunMode", StatusFunction(POINTER(c_int64))),
    "a handle in place of a pointer to one":
        ("aclrtCreateStreamWithConfig", StatusFunction(c_void_p, c_uint32, c_uint32)),
    "a pointer to a handle in place of it":
        ("aclrtDestroyStream", StatusFunction(POINTER(c_void_p))),
    "a handle in place of a pointer to numbers":
        ("aclrtEventElapsedTime", StatusFunction(c_void_p, c_void_p, c_void_p)),
    "a handle in place of a text": ("aclInit", StatusFunction(c_void_p)),
    "a text in place of a handle": ("aclrtFree", StatusFunction(c_char_p)),
    "a number in place of a handle": ("aclrtFree", StatusFunction(c_int64)),
    "another structure":
        ("aclsysGetCANNVersion", StatusFunction(c_int32, POINTER(UtilizationInfo))),
    "a parameter too few": ("aclrtSynchronizeStreamWithTimeout", StatusFunction(c_void_p)),
    "a parameter too many": ("aclFinalize", StatusFunction(c_void_p)),
    "parameters in another order":
        ("aclrtSynchronizeStreamWithTimeout", StatusFunction(c_int32, c_void_p)),
    "another result": ("aclGetRecentErrMsg", ValueFunction(result=c_int32)),
    "no result": ("aclGetRecentErrMsg", ValueFunction()),
    "a status in place of an object": ("aclCreateScalar", StatusFunction(c_void_p, c_int32)),
    "floats in place of integers": ("aclCreateIntArray", HandleFunction(POINTER(c_float), c_int64)),
    "a handle in place of a list of them":
        ("aclCreateTensorList", HandleFunction(c_void_p, c_int64)),
}  # fmt: skip


def test_every_wrong_declaration_is_found(headers: Headers) -> None:
    second = {PHASE_TWO: "int32_t(Opaque *, uint32_t, Opaque *, Opaque *)"}
    wrong = [claim._replace(name="phase two") for claim in claims(headers, second)]
    for mistake, (name, function) in MISTAKES.items():
        function.__set_name__(AscendCL, name)
        (claim,) = claims(headers, {name: signature_of(function)})
        wrong.append(claim._replace(name=mistake))
    assert list(headers.refuted(wrong)) == [claim.name for claim in wrong]


@pytest.fixture(scope="module")
def declarations(headers: Headers) -> dict[str, str]:
    return simulated.functions()


def test_the_simulator_declares_functions_and_dtypes_as_the_headers_do(
    headers: Headers, declarations: dict[str, str]
) -> None:
    types = {name: f"decltype(simulator::{name})" for name in declarations}
    dtypes = simulated.dtypes()
    equal = [Claim(name, f"int(simulator::{name}) == int(::{name})") for name in dtypes]
    assert len(dtypes) > 20
    all_of_them = [*claims(headers, types), *equal]
    assert headers.refuted(all_of_them, simulated.namespace(declarations)) == {}


def test_it_has_every_function_that_the_server_calls_and_none_that_cann_lacks(
    headers: Headers, declarations: dict[str, str]
) -> None:
    assert set(signatures()) - {PHASE_TWO} <= set(declarations)
    runtime = {name for name in declarations if name.startswith(("aclrt", "aclsys"))}
    assert runtime
    assert runtime <= headers.functions


CHANGES = {
    "aclrtMalloc": ("size_t", "uint32_t"),
    "aclrtSetDevice": ("int32_t", "uint32_t"),
    "aclrtEventElapsedTime": ("float", "double"),
    "aclrtGetDeviceUtilizationRate": ("Utilization", "PackageVersion"),
    "aclsysGetCANNVersion": ("int name", "int64_t name"),
    "aclCreateTensor": ("aclDataType dtype,", ""),
    "aclDestroyScalar": ("aclScalar", "aclTensor"),
    "aclrtMemcpyAsync": ("int kind", "int *kind"),
}


def test_every_wrong_declaration_of_the_simulator_is_found(
    headers: Headers, declarations: dict[str, str]
) -> None:
    changed = dict(declarations)
    for name, (right, wrong) in CHANGES.items():
        assert right in declarations[name]
        changed[name] = declarations[name].replace(right, wrong, 1)
    types = {name: f"decltype(simulator::{name})" for name in changed}
    found = headers.refuted(claims(headers, types), simulated.namespace(changed))
    assert found.keys() == CHANGES.keys()
