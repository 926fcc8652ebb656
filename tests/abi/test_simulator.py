"""The simulator's C functions are declared as CANN's headers declare them."""

from __future__ import annotations

import pytest
from tests.more import every_third

from . import simulated
from .headers import Claim, Headers
from .ours import PHASE_TWO, signatures
from .proofs import claims

OWN = "npucall_sim_"


@pytest.fixture(scope="module")
def declarations(headers: Headers) -> dict[str, str]:
    return simulated.functions()


def refuted(headers: Headers, declarations: dict[str, str]) -> list[str]:
    types = {name: f"decltype(simulator::{name})" for name in declarations}
    return list(headers.refuted(claims(headers, types), simulated.namespace(declarations)))


def test_every_function_is_declared_as_the_headers_declare_it(
    headers: Headers, declarations: dict[str, str]
) -> None:
    assert refuted(headers, declarations) == []


def test_every_function_that_the_server_calls_is_there(declarations: dict[str, str]) -> None:
    assert set(signatures()) - {PHASE_TWO} <= set(declarations)


def test_the_headers_have_every_function_of_the_runtime(
    headers: Headers, declarations: dict[str, str]
) -> None:
    runtime = {name for name in declarations if name.startswith(("aclrt", "aclsys"))}
    assert runtime
    assert runtime <= headers.functions


def test_dtypes_have_the_codes_of_the_headers(
    headers: Headers, declarations: dict[str, str]
) -> None:
    names = simulated.dtypes()
    equal = [Claim(name, f"int(simulator::{name}) == int(::{name})") for name in names]
    assert len(names) > 20
    assert headers.refuted(equal, simulated.namespace(declarations)) == {}


MISTAKES = {
    "aclrtMalloc": ("size_t", "uint32_t"),
    "aclrtSetDevice": ("int32_t", "uint32_t"),
    "aclrtEventElapsedTime": ("float", "double"),
    "aclrtGetDeviceUtilizationRate": ("Utilization", "PackageVersion"),
    "aclsysGetCANNVersion": ("int name", "int64_t name"),
    "aclCreateTensor": ("aclDataType dtype,", ""),
    "aclDestroyScalar": ("aclScalar", "aclTensor"),
    "aclrtMemcpyAsync": ("int kind", "int *kind"),
}


@pytest.mark.parametrize("name", every_third(MISTAKES))
def test_a_wrong_declaration_is_found(
    headers: Headers, declarations: dict[str, str], name: str
) -> None:
    right, wrong = MISTAKES[name]
    assert right in declarations[name]
    changed = declarations | {name: declarations[name].replace(right, wrong, 1)}
    assert refuted(headers, changed) == [name]
