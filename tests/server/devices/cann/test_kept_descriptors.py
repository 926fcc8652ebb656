"""Descriptors that are kept for the same call: as many as may be, with the right addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Output
from npucall.dtypes import FLOAT
from npucall.errors import DeviceError
from npucall.tensors import TensorSpec
from npucall_server.devices.cann.descriptors import KeptDescriptors

from .recorded import Base, prepared

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared

HERE, THERE = {"out": 0x1000}, {"out": 0x2000}


class Kept(KeptDescriptors):
    """What is kept for two calls, and what was made and destroyed so far."""

    def __init__(self, limit: int = 2) -> None:
        self.base = Base()
        super().__init__(self.base, limit)

    def use(self, call: Prepared, addresses: dict[str, int] = HERE) -> list[object]:
        with self.of(call, addresses) as arguments:
            return list(arguments)

    @property
    def counts(self) -> tuple[int, int]:
        """Made, destroyed."""
        return len(self.base.made), len(self.base.destroyed)


def call(*, reference: bool = True) -> Prepared:
    made = prepared((Output("out", ""),), {"out": TensorSpec(FLOAT, (2,))})
    operator = Operator("aclnnX", "", (), {}, {}, (), None, None, "", None, reference=reference)
    object.__setattr__(operator, "parameters", made.operator.parameters)
    object.__setattr__(made, "operator", operator)
    return made


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_the_same_call_makes_them_once(kept: Kept) -> None:
    one = call()
    assert kept.use(one) == kept.use(one)
    assert kept.counts == (1, 0)


def test_equal_calls_are_two(kept: Kept) -> None:
    kept.use(call())
    kept.use(call())
    assert kept.counts == (2, 0)


def test_the_call_used_longest_ago_goes_first(kept: Kept) -> None:
    one, two, three = call(), call(), call()
    for each in (one, two, one, three):
        kept.use(each)
    assert kept.base.destroyed == [("Tensor", 2)]
    kept.use(one)
    assert kept.counts == (3, 1)


def test_moved_memory_is_told_to_those_that_are_there(kept: Kept) -> None:
    one = call()
    kept.use(one, HERE)
    kept.use(one, THERE)
    kept.use(one, THERE)
    assert kept.base.moved == [(1, 0x2000)]
    kept.use(one, HERE)
    assert kept.base.moved == [(1, 0x2000), (1, 0x1000)]
    assert kept.counts == (1, 0)


def test_an_operator_without_reference_gets_its_own_each_time(kept: Kept) -> None:
    one = call(reference=False)
    kept.use(one)
    kept.use(one)
    assert kept.counts == (2, 2)


def test_where_none_may_be_kept_each_call_gets_its_own() -> None:
    kept, one = Kept(limit=0), call()
    for made in (1, 2):
        kept.use(one)
        assert kept.counts == (made, made)
    with pytest.raises(KeyError), kept.of(one, HERE):
        raise KeyError
    assert kept.counts == (3, 3)


def test_a_call_that_fails_keeps_them(kept: Kept) -> None:
    one = call()
    with pytest.raises(KeyError), kept.of(one, HERE):
        raise KeyError
    kept.use(one)
    assert kept.counts == (1, 0)


def test_a_call_that_fails_without_reference_destroys_them(kept: Kept) -> None:
    with pytest.raises(KeyError), kept.of(call(reference=False), HERE):
        raise KeyError
    assert kept.counts == (1, 1)


def test_what_cannot_be_made_is_not_kept(kept: Kept) -> None:
    one = call()
    kept.base.failing = {"aclCreateTensor"}
    with pytest.raises(DeviceError):
        kept.use(one)
    kept.base.failing = set()
    kept.use(one)
    assert kept.counts == (1, 0)


def test_those_that_cannot_be_moved_are_destroyed(kept: Kept) -> None:
    one = call()
    kept.use(one, HERE)
    kept.base.failing = {"aclSetRawTensorAddr"}
    with pytest.raises(DeviceError):
        kept.use(one, THERE)
    assert kept.counts == (1, 1)
    kept.base.failing = set()
    kept.use(one, THERE)
    assert [made[-1] for made in kept.base.made.values()] == [0x1000, 0x2000]
    assert kept.counts == (2, 1)


def test_closing_destroys_all_though_one_cannot_be(kept: Kept) -> None:
    for _ in range(2):
        kept.use(call())
    kept.base.failing = {"aclDestroyTensor"}
    with pytest.raises(DeviceError):
        kept.close()
    assert kept.counts == (2, 2)
    kept.close()
    assert kept.counts == (2, 2)
