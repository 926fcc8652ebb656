"""What CANN's functions are told of each kind of argument, and who destroys what."""

import ctypes
from typing import Any

import numpy as np
import pytest
from tests.simulator.control import Simulator

from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Attribute, Input, Kind, Output, Parameter, Scalar
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, INT64
from npucall.errors import DeviceError
from npucall.products import A2
from npucall.tensors import Format, TensorSpec
from npucall_server.devices.cann.descriptors import Descriptors
from npucall_server.devices.cann.runtime import Libraries

SPEC = TensorSpec(FLOAT, (2, 3))
ADDRESS = 0x7000_0000_1000
OBJECTS = 8
"""That ``everything`` makes, without the members of lists."""
PLAIN = {
    Kind.INT64: (-(2**40), -(2**40)),
    Kind.INT32: (5, 5),
    Kind.INT: (5, 5),
    Kind.INT8: (-5, -5),
    Kind.UINT64: (2**63, 2**63),
    Kind.BOOL: (True, True),
    Kind.FLOAT: (0.5, 0.5),
    Kind.DOUBLE: (0.1, 0.1),
    Kind.DTYPE: (BF16, 27),
    Kind.STRING: ("größe", "größe".encode()),
}
"""A value of each kind that travels by value, and C's argument for it."""
ARRAYS = [
    (Kind.INT_ARRAY, (1, -(2**40)), "IntArray", ctypes.c_int64),
    (Kind.FLOAT_ARRAY, (0.5, -2.0), "FloatArray", ctypes.c_float),
    (Kind.BOOL_ARRAY, (True, False, True), "BoolArray", ctypes.c_bool),
    (Kind.INT_ARRAY, (), "IntArray", ctypes.c_int64),
]
SCALARS = [
    (Scalar(DOUBLE, 0.1), np.float64(0.1).tobytes()),
    (Scalar(FLOAT, 0.1), np.float32(0.1).tobytes()),
    (Scalar(INT64, -3), np.int64(-3).tobytes()),
    (Scalar(BOOL, True), b"\x01"),
]


class FakeBase:
    """The functions of libnnopbase, which note what they are given."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, ...]] = {}
        self.destroyed: list[tuple[str, int]] = []
        self.moved: list[tuple[Any, ...]] = []
        self.failing: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int | None:
            if name.startswith("aclDestroy"):
                self.destroyed.append((name.removeprefix("aclDestroy"), arguments[0]))
            if name in self.failing:
                raise DeviceError(name)
            if name == "aclSetRawTensorAddr":
                self.moved.append(arguments)
            if name.startswith(("aclDestroy", "aclSet")):
                return None
            handle = len(self.made) + 1
            self.made[handle] = (name.removeprefix("aclCreate"), *map(_plain, arguments))
            return handle

        return call


def _plain(argument: Any) -> Any:
    """An array's values, which live no longer than the call."""
    return list(argument) if isinstance(argument, ctypes.Array) else argument


def prepared(*parameters: Parameter, **arguments: Any) -> Prepared:
    """A call of an operator with these parameters, whose tensors are all sent."""
    operator = prototype_only("aclnnX", parameters, "")
    stored = [
        place
        for p in parameters
        if isinstance(p, Input)
        for place in _places(p.name, arguments.get(p.name))
    ]
    return prepare(Call(operator, arguments, tuple(stored)), A2, Catalogue([operator]))


def _places(name: str, value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [f"{name}[{i}]" for i in range(len(value))]
    return [name] if isinstance(value, TensorSpec) else []


def attribute(kind: Kind, value: Any) -> tuple[FakeBase, Descriptors]:
    base = FakeBase()
    return base, Descriptors(base, prepared(Attribute("a", kind, ""), a=value), {})


def tensors(value: Any, *, many: bool = False, **at: int) -> tuple[FakeBase, Descriptors]:
    """A parameter of tensors; ``at``: the address of each, by name or by t and its number."""
    base = FakeBase()
    call = prepared(Input("t", "", optional=True, many=many), t=value)
    addresses = {name if name == "t" else f"t[{name[1:]}]": a for name, a in at.items()}
    return base, Descriptors(base, call, addresses)


def test_a_tensor_is_told_with_all_that_its_spec_says() -> None:
    spec = TensorSpec(BF16, (2, 3), (4, 1), 5, (3, 7), Format.NCHW)
    base, descriptors = tensors(spec, t=ADDRESS)
    assert descriptors.arguments == [1]
    assert base.made[1] == ("Tensor", [2, 3], 2, 27, [4, 1], 5, Format.NCHW, [3, 7], 2, ADDRESS)
    base, _ = tensors(TensorSpec(FLOAT, ()), t=ADDRESS)
    assert base.made[1] == ("Tensor", [], 0, 0, [], 0, Format.ND, [], 0, ADDRESS)
    base, _ = tensors(TensorSpec(FLOAT, (0, 3)))  # without elements it has no address
    assert base.made[1] == ("Tensor", [0, 3], 2, 0, [3, 1], 0, Format.ND, [0, 3], 2, None)


def test_what_is_absent_is_a_null_pointer() -> None:
    absent = [tensors(None, many=many) for many in (False, True)]
    absent += [attribute(kind, None) for kind in Kind if kind.nullable]
    assert [(d.arguments, base.made) for base, d in absent] == [([None], {})] * len(absent)


def test_a_list_takes_over_its_tensors() -> None:
    base, descriptors = tensors((SPEC, SPEC), many=True, t0=ADDRESS, t1=ADDRESS + 512)
    assert [base.made[handle][-1] for handle in (1, 2)] == [ADDRESS, ADDRESS + 512]
    assert (descriptors.arguments, base.made[3]) == ([3], ("TensorList", [1, 2], 2))
    descriptors.close()
    assert base.destroyed == [("TensorList", 3)]
    base, descriptors = tensors((), many=True)  # of nothing it is a list too
    assert base.made == {1: ("TensorList", [], 0)}
    descriptors.close()
    assert base.destroyed == [("TensorList", 1)]


def test_a_plain_value_travels_as_it_is() -> None:
    found = {kind: attribute(kind, value) for kind, (value, _) in PLAIN.items()}
    assert {kind: d.arguments for kind, (_, d) in found.items()} == {
        kind: [argument] for kind, (_, argument) in PLAIN.items()
    }
    assert not any(base.made for base, _ in found.values())


@pytest.mark.parametrize(("kind", "value", "name", "c_type"), ARRAYS)
def test_an_array_is_an_object_with_elements_of_its_c_type(
    kind: Kind, value: tuple[Any, ...], name: str, c_type: Any
) -> None:
    base, descriptors = attribute(kind, value)
    made = {1: (name, list(value), len(value))}
    assert (descriptors.arguments, base.made) == ([1], made)
    descriptors.close()
    assert base.destroyed == [(name, 1)]
    seen: list[Any] = []
    setattr(base, f"aclCreate{name}", lambda array, size: seen.append(type(array)._type_) or 1)
    Descriptors(base, prepared(Attribute("a", kind, ""), a=value), {})
    assert seen == [c_type]


def test_a_scalar_is_told_by_its_bytes_and_dtype() -> None:
    for scalar, data in SCALARS:
        base, seen = FakeBase(), list[tuple[bytes, int]]()
        base.aclCreateScalar = lambda at, dtype, whole=data, s=seen: (
            s.append((ctypes.string_at(at, len(whole)), dtype)) or 1
        )
        Descriptors(base, prepared(Attribute("a", Kind.SCALAR, ""), a=scalar), {}).close()
        assert seen == [(data, scalar.dtype.acl)]
        assert base.destroyed == [("Scalar", 1)]


def everything() -> Prepared:
    """A call with an object of each sort."""
    kinds = {"s": Kind.SCALAR, "ss": Kind.SCALAR_LIST, "i": Kind.INT_ARRAY, "f": Kind.FLOAT_ARRAY,
             "b": Kind.BOOL_ARRAY, "n": Kind.INT64}  # fmt: skip
    attributes = (Attribute(name, kind, "") for name, kind in kinds.items())
    one = Scalar(FLOAT, 1.0)
    return prepared(
        Input("t", ""), Input("ts", "", many=True), *attributes, Output("out", ""),
        t=SPEC, ts=(SPEC, SPEC), s=one, ss=(one, one), i=(1,), f=(1.0,), b=(True,), n=-1, out=SPEC,
    )  # fmt: skip


def test_arguments_stand_in_c_order_and_the_last_is_destroyed_first_and_once() -> None:
    base = FakeBase()
    descriptors = Descriptors(base, everything(), {})
    kinds = [base.made[a][0] if a in base.made else a for a in descriptors.arguments]
    assert kinds == [
        "Tensor", "TensorList", "Scalar", "ScalarList", "IntArray", "FloatArray", "BoolArray", -1,
        "Tensor",
    ]  # fmt: skip
    for _ in range(2):
        descriptors.close()
    in_order = [(base.made[a][0], a) for a in descriptors.arguments if a != -1]
    assert base.destroyed[::-1] == in_order


def test_everything_is_destroyed_though_some_cannot_be() -> None:
    base = FakeBase()
    descriptors = Descriptors(base, everything(), {})
    base.failing = {"aclDestroyScalar", "aclDestroyFloatArray"}
    with pytest.raises(DeviceError, match="aclDestroyFloatArray"):
        descriptors.close()
    assert len(base.destroyed) == OBJECTS


def test_a_block_that_fails_destroys_them_and_its_own_error_counts() -> None:
    base = FakeBase()
    base.failing = {"aclDestroyTensor"}
    with pytest.raises(KeyError, match="mine"), Descriptors(base, everything(), {}):
        raise KeyError("mine")
    assert len(base.destroyed) == OBJECTS


def test_what_was_made_is_destroyed_where_the_rest_cannot_be(
    libraries: Libraries, simulator: Simulator
) -> None:
    call = everything()
    with Descriptors(libraries.base, call, {}):
        made = simulator.counters()["calls"]
    for function in (name for name in made if name.startswith("aclCreate")):
        for nth in range(1, made[function] + 1):
            simulator.fail(function, nth, status=200000)
            with pytest.raises(DeviceError, match=function):
                Descriptors(libraries.base, call, {})
            assert simulator.live_objects() == {}
    assert simulator.violations() == []
