"""Who destroys what: each object of a call once, however the call goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall.declare.parameters import Attribute, Input, Kind, Output, Scalar
from npucall.dtypes import FLOAT
from npucall.errors import DeviceError
from npucall.tensors import TensorSpec
from npucall_server.devices.cann.descriptors import Descriptors

from .recorded import Base, prepared

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from npucall.declare.prepare import Prepared
    from npucall_server.devices.cann.runtime import Libraries

SPEC = TensorSpec(FLOAT, (2, 3))
OBJECTS = 8
"""That ``everything`` makes, without the members of lists."""


def everything() -> Prepared:
    """A call with an object of each sort."""
    parameters = (
        Input("t", ""), Input("ts", "", many=True), Attribute("s", Kind.SCALAR, ""),
        Attribute("ss", Kind.SCALAR_LIST, ""), Attribute("i", Kind.INT_ARRAY, ""),
        Attribute("f", Kind.FLOAT_ARRAY, ""), Attribute("b", Kind.BOOL_ARRAY, ""),
        Attribute("n", Kind.INT64, ""), Output("out", ""),
    )  # fmt: skip
    one = Scalar(FLOAT, 1.0)
    return prepared(parameters, {
        "t": SPEC, "ts": (SPEC, SPEC), "s": one, "ss": (one, one), "i": (1,), "f": (1.0,),
        "b": (True,), "n": -1, "out": SPEC,
    })  # fmt: skip


def test_arguments_stand_in_c_order() -> None:
    base = Base()
    descriptors = Descriptors(base, everything(), {})
    kinds = [base.made[a][0] if a in base.made else a for a in descriptors.arguments]
    assert kinds[:4] == ["Tensor", "TensorList", "Scalar", "ScalarList"]
    assert kinds[4:7] == ["IntArray", "FloatArray", "BoolArray"]
    assert (descriptors.arguments[7], kinds[8]) == (-1, "Tensor")


def test_everything_is_destroyed_once_and_the_last_first() -> None:
    base = Base()
    descriptors = Descriptors(base, everything(), {})
    descriptors.close()
    descriptors.close()
    in_order = [(base.made[a][0], a) for a in descriptors.arguments if a != -1]
    assert base.destroyed[::-1] == in_order


def test_everything_is_destroyed_though_some_cannot_be() -> None:
    base = Base()
    descriptors = Descriptors(base, everything(), {})
    base.failing = {"aclDestroyScalar", "aclDestroyFloatArray"}
    with pytest.raises(DeviceError, match="aclDestroyFloatArray"):
        descriptors.close()
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


def test_a_block_that_fails_destroys_them_and_its_own_error_counts() -> None:
    base = Base()
    base.failing = {"aclDestroyTensor"}
    with (
        pytest.raises(KeyError, match="mine"),
        Descriptors(base, everything(), {}),
    ):
        raise KeyError("mine")
    assert len(base.destroyed) == OBJECTS
