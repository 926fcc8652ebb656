"""What CANN's functions are told of each kind of argument."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Attribute, Input, Kind, Scalar
from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, INT64
from npucall.tensors import Format, TensorSpec
from npucall_server.devices.cann.descriptors import Descriptors

from .recorded import Base, prepared

SPEC = TensorSpec(FLOAT, (2, 3))
ADDRESS = 0x7000_0000_1000


def attribute(kind: Kind, value: Any) -> tuple[Base, Descriptors]:
    base = Base()
    call = prepared((Attribute("a", kind, ""),), {"a": value})
    return base, Descriptors(base, call, {})


def tensors(many: bool, value: Any, addresses: dict[str, int]) -> tuple[Base, Descriptors]:
    base = Base()
    call = prepared((Input("t", "", optional=True, many=many),), {"t": value})
    return base, Descriptors(base, call, addresses)


def test_a_tensor_is_told_with_all_that_its_spec_says() -> None:
    spec = TensorSpec(BF16, (2, 3), (4, 1), 5, (3, 7), Format.NCHW)
    base, descriptors = tensors(many=False, value=spec, addresses={"t": ADDRESS})
    assert descriptors.arguments == [1]
    assert base.made[1] == ("Tensor", [2, 3], 2, 27, [4, 1], 5, Format.NCHW, [3, 7], 2, ADDRESS)


def test_a_tensor_of_rank_0_has_no_extents() -> None:
    base, _ = tensors(many=False, value=TensorSpec(FLOAT, ()), addresses={"t": ADDRESS})
    assert base.made[1] == ("Tensor", [], 0, 0, [], 0, Format.ND, [], 0, ADDRESS)


def test_a_tensor_without_elements_has_no_address() -> None:
    base, _ = tensors(many=False, value=TensorSpec(FLOAT, (0, 3)), addresses={})
    assert base.made[1] == ("Tensor", [0, 3], 2, 0, [3, 1], 0, Format.ND, [0, 3], 2, None)


@pytest.mark.parametrize("many", [False, True])
def test_an_absent_tensor_is_a_null_pointer(many: bool) -> None:
    base, descriptors = tensors(many, value=None, addresses={})
    assert (descriptors.arguments, base.made) == ([None], {})


def test_a_list_takes_over_its_tensors() -> None:
    base, descriptors = tensors(
        many=True, value=(SPEC, SPEC), addresses={"t[0]": ADDRESS, "t[1]": ADDRESS + 512}
    )
    assert [base.made[handle][-1] for handle in (1, 2)] == [ADDRESS, ADDRESS + 512]
    assert (descriptors.arguments, base.made[3]) == ([3], ("TensorList", [1, 2], 2))
    descriptors.close()
    assert base.destroyed == [("TensorList", 3)]


def test_a_list_of_nothing_is_a_list() -> None:
    base, descriptors = tensors(many=True, value=(), addresses={})
    assert base.made == {1: ("TensorList", [], 0)}
    descriptors.close()
    assert base.destroyed == [("TensorList", 1)]


@pytest.mark.parametrize(
    ("kind", "value", "argument"),
    [
        (Kind.INT64, -(2**40), -(2**40)),
        (Kind.INT32, 5, 5),
        (Kind.INT, 5, 5),
        (Kind.INT8, -5, -5),
        (Kind.UINT64, 2**63, 2**63),
        (Kind.BOOL, True, True),
        (Kind.FLOAT, 0.5, 0.5),
        (Kind.DOUBLE, 0.1, 0.1),
        (Kind.DTYPE, BF16, 27),
        (Kind.STRING, "größe", "größe".encode()),
    ],
)
def test_a_plain_value_travels_as_it_is(kind: Kind, value: Any, argument: Any) -> None:
    base, descriptors = attribute(kind, value)
    assert (descriptors.arguments, base.made) == ([argument], {})


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.nullable])
def test_an_absent_value_is_a_null_pointer(kind: Kind) -> None:
    base, descriptors = attribute(kind, None)
    assert (descriptors.arguments, base.made) == ([None], {})


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (Kind.INT_ARRAY, (1, -(2**40)), ("IntArray", [1, -(2**40)], 2)),
        (Kind.FLOAT_ARRAY, (0.5, -2.0), ("FloatArray", [0.5, -2.0], 2)),
        (Kind.BOOL_ARRAY, (True, False, True), ("BoolArray", [True, False, True], 3)),
        (Kind.INT_ARRAY, (), ("IntArray", [], 0)),
    ],
)
def test_an_array_is_an_object(kind: Kind, value: Any, made: tuple[Any, ...]) -> None:
    base, descriptors = attribute(kind, value)
    assert (descriptors.arguments, base.made) == ([1], {1: made})
    descriptors.close()
    assert base.destroyed == [(made[0], 1)]


def test_arrays_have_elements_of_their_c_types() -> None:
    seen = []
    base = Base()
    for kind, value in {
        Kind.INT_ARRAY: (1,), Kind.FLOAT_ARRAY: (1.0,), Kind.BOOL_ARRAY: (True,),
    }.items():  # fmt: skip
        call = prepared((Attribute("a", kind, ""),), {"a": value})
        create = f"aclCreate{kind.value.removeprefix('const acl').removesuffix('*')}"
        setattr(base, create, lambda array, size: seen.append(type(array)._type_) or 1)
        Descriptors(base, call, {})
    assert seen == [ctypes.c_int64, ctypes.c_float, ctypes.c_bool]


@pytest.mark.parametrize(
    ("scalar", "data"),
    [
        (Scalar(DOUBLE, 0.1), np.float64(0.1).tobytes()),
        (Scalar(FLOAT, 0.1), np.float32(0.1).tobytes()),
        (Scalar(INT64, -3), np.int64(-3).tobytes()),
        (Scalar(BOOL, True), b"\x01"),
    ],
)
def test_a_scalar_is_told_by_its_bytes_and_dtype(scalar: Scalar, data: bytes) -> None:
    seen = []
    base = Base()
    base.aclCreateScalar = lambda address, dtype: (
        seen.append((ctypes.string_at(address, len(data)), dtype)) or 1
    )
    call = prepared((Attribute("a", Kind.SCALAR, ""),), {"a": scalar})
    Descriptors(base, call, {}).close()
    assert seen == [(data, scalar.dtype.acl)]
    assert base.destroyed == [("Scalar", 1)]


def test_a_list_takes_over_its_scalars() -> None:
    base, descriptors = attribute(Kind.SCALAR_LIST, (Scalar(FLOAT, 1.0), Scalar(FLOAT, 2.0)))
    assert base.made[3] == ("ScalarList", [1, 2], 2)
    descriptors.close()
    assert base.destroyed == [("ScalarList", 3)]
