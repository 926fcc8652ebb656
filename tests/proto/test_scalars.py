"""Attributes of a declared operator: what its formula gets, and what may be absent."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.rows import each

from npucall.declare import rules
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import operator
from npucall.declare.over import elementwise
from npucall.declare.parameters import Attribute, Input, Kind, Output, Scalar
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, INT8, INT64, UINT8
from npucall.errors import ArgumentMissingError, AttributeValueError
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode

KINDS = {
    "count": Kind.INT64,
    "flag": Kind.BOOL,
    "single": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "text": Kind.STRING,
    "scalar": Kind.SCALAR,
    "array": Kind.INT_ARRAY,
}
POINTERS = ("text", "scalar", "array")
PLAIN: dict[str, Any] = {
    "count": 3,
    "flag": True,
    "single": 0.1,
    "double": 0.1,
    "text": "mean",
    "scalar": Scalar(DOUBLE, 0.1),
    "array": (4, -1),
}
X = TensorSpec(FLOAT, (2,))


@operator(
    "aclnnSomeKinds",
    Input("x", "something to copy"),
    *(Attribute(name, kind, "one of each kind") for name, kind in KINDS.items()),
    Output("out", "the copy", shape="x", dtype="x"),
    products={A2: (FLOAT,)},
    checks=(rules.present("x", *POINTERS, "out"),),
    kernel_dtype=rules.dtype_of("x"),
    over=elementwise("x"),
    source="this test",
)
def some_kinds(
    whole: Any, x: Any, count: int, flag: bool, single: float, double: float, text: str,
    scalar: float, array: tuple[int, ...],
) -> Any:  # fmt: skip
    return x


CATALOGUE = Catalogue([some_kinds])


def prepared(without: str = "", **changes: Any) -> Prepared:
    """The call with every attribute, as a server prepares it from bytes."""
    given = {"x": X, **PLAIN, **changes}
    given.pop(without, None)
    return PreparedCalls(CATALOGUE, A2, "").of(encode(some_kinds.name, "", given, ("x",)))


def test_the_formula_gets_a_scalar_and_a_c_float_as_float32_and_a_double_as_it_is() -> None:
    found = prepared().attributes
    assert found == {**PLAIN, "scalar": 0.10000000149011612, "single": 0.10000000149011612}
    far = prepared(scalar=Scalar(DOUBLE, -1e300), single=1e300).attributes
    assert (far["scalar"], far["single"]) == (-math.inf, math.inf)


@each("dtype", [DOUBLE, FLOAT, BF16, UINT8, BOOL, INT64, INT8])
def test_a_scalar_of_any_real_dtype_is_a_float_to_the_formula(dtype: Any) -> None:
    found = prepared(scalar=Scalar(dtype, 1)).attributes["scalar"]
    assert (found, type(found)) == (1.0, float)


@each("name", KINDS)
@each("mentioned", [True, False])
def test_an_absent_pointer_is_161001_and_another_value_cannot_be_absent(
    name: str, mentioned: bool
) -> None:
    if name in POINTERS:
        error, why, status = ArgumentMissingError, f".*a null {name}", 161001
    else:
        error, why, status = AttributeValueError, "expected a value", None
    with pytest.raises(error, match=f"{name}: {why}") as caught:
        prepared(**{name: None}) if mentioned else prepared(without=name)
    assert (caught.value.aclnn_status, caught.value.parameters) == (status, (name,))


def test_an_absent_value_is_found_before_a_null_pointer() -> None:
    with pytest.raises(AttributeValueError) as caught:
        prepared(x=None, count=None)
    assert caught.value.reason == "ATTRIBUTE_INVALID"


def test_a_complex_scalar_is_no_null_pointer() -> None:
    scalar = Scalar(COMPLEX64, 1 + 1j)  # type: ignore[arg-type]
    arguments = {"x": X, **PLAIN, "scalar": scalar, "array": None}
    with pytest.raises(ArgumentMissingError) as caught:
        prepare(Call(some_kinds, arguments, ("x",)), A2, CATALOGUE)
    assert caught.value.parameter == "array"  # which is looked at behind scalar
