"""Descriptors that are kept for the same call: as many as may be, with the right addresses."""

import pytest

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Output
from npucall.declare.prepare import Prepared
from npucall.dtypes import FLOAT
from npucall.errors import DeviceError
from npucall.tensors import TensorSpec
from npucall_server.devices.cann.descriptors import KeptDescriptors

from .test_descriptors import FakeBase, prepared

HERE, THERE = {"out": 0x1000}, {"out": 0x2000}


class Kept(KeptDescriptors):
    """What is kept for two calls, and what was made and destroyed so far."""

    def __init__(self, limit: int = 2) -> None:
        self.base = FakeBase()
        super().__init__(self.base, limit)

    def use(self, call: Prepared, addresses: dict[str, int] = HERE) -> list[object]:
        with self.of(call, addresses) as arguments:
            return list(arguments)

    def fail(self, call: Prepared) -> None:
        with pytest.raises(KeyError), self.of(call, HERE):
            raise KeyError

    @property
    def counts(self) -> tuple[int, int]:
        """Made, destroyed."""
        return len(self.base.made), len(self.base.destroyed)


def call(*, reference: bool = True) -> Prepared:
    made = prepared(Output("out", ""), out=TensorSpec(FLOAT, (2,)))
    operator = Operator("aclnnX", "", (), {}, {}, (), None, None, "", None, reference=reference)
    object.__setattr__(operator, "parameters", made.operator.parameters)
    object.__setattr__(made, "operator", operator)
    return made


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_the_same_call_makes_them_once_and_equal_calls_are_two(kept: Kept) -> None:
    one = call()
    assert kept.use(one) == kept.use(one)
    assert kept.counts == (1, 0)
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
    for addresses in HERE, THERE, THERE:
        kept.use(one, addresses)
    assert kept.base.moved == [(1, 0x2000)]
    kept.use(one, HERE)
    assert kept.base.moved == [(1, 0x2000), (1, 0x1000)]
    assert kept.counts == (1, 0)


@pytest.mark.parametrize(("limit", "reference"), [(2, False), (0, True)])
def test_an_operator_without_reference_or_a_limit_of_0_gets_its_own_each_time(
    limit: int, reference: bool
) -> None:
    kept, one = Kept(limit), call(reference=reference)
    for made in (1, 2):
        kept.use(one)
        assert kept.counts == (made, made)
    kept.fail(one)
    assert kept.counts == (3, 3)


def test_a_call_that_fails_keeps_them(kept: Kept) -> None:
    one = call()
    kept.fail(one)
    kept.use(one)
    assert kept.counts == (1, 0)


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


def test_closing_destroys_all_once_though_one_cannot_be(kept: Kept) -> None:
    for _ in range(2):
        kept.use(call())
    kept.base.failing = {"aclDestroyTensor"}
    with pytest.raises(DeviceError):
        kept.close()
    kept.close()
    assert kept.counts == (2, 2)
