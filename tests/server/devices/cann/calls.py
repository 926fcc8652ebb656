"""Calls for the CANN device with what they answer, and the situations in which they run."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from npucall.compute.evaluate import run as evaluate
from npucall.declare.call import Call, element
from npucall.declare.parameters import Scalar
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BY_NUMPY, DOUBLE, FLOAT, AnyArray
from npucall.tensors import TensorSpec


class Strided(NamedTuple):
    """A tensor whose elements lie in a storage as its spec says."""

    spec: TensorSpec
    storage: bytes


class Given(NamedTuple):
    """A tensor of which only the spec is sent: an output, or an input that nobody reads."""

    spec: TensorSpec


class Case(NamedTuple):
    """A call, its storages, and the storages that it has to answer."""

    call: Prepared
    storages: dict[str, Any]
    answers: list[bytes]


Ask: TypeAlias = Callable[[Any], Case]
"""Makes a case for a device, or for anything else that has a catalogue and a product."""


def like(array: AnyArray) -> Given:
    """An output of the same shape and dtype."""
    return Given(TensorSpec(BY_NUMPY[array.dtype], array.shape))


def declared(device: Any, name: str, **arguments: Any) -> Case:
    """A call of an operator that npucall declares; its formula says the answer."""
    call, storages = _prepared(device, name, arguments)
    return Case(call, storages, [bytes(answer) for answer in evaluate(call, storages)])


def installed(device: Any, name: str, *answers: AnyArray, **arguments: Any) -> Case:
    """A call of an operator that a header declares; ``answers`` are its outputs."""
    return Case(*_prepared(device, name, arguments), [answer.tobytes() for answer in answers])


def _prepared(device: Any, name: str, given: Mapping[str, Any]) -> tuple[Prepared, dict[str, Any]]:
    operator = device.catalogue.find(name)
    arguments = {key: _argument(value) for key, value in given.items()}
    storages = dict(pair for key, value in given.items() for pair in _storages(key, value))
    call = Call(operator, arguments, tuple(storages))
    return prepare(call, device.product, device.catalogue), storages


def _argument(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_argument(each) for each in value)
    if isinstance(value, np.ndarray):
        return like(value).spec
    return value.spec if isinstance(value, (Strided, Given)) else value


def _storages(name: str, value: Any) -> Iterator[tuple[str, bytes]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _storages(element(name, index), each)
    elif isinstance(value, np.ndarray):
        yield name, value.tobytes()
    elif isinstance(value, Strided):
        yield name, value.storage


def numbers(*shape: int, start: float = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Some float32, no two alike."""
    count = int(np.prod(shape))
    return np.arange(start, start + count, dtype=np.float32).reshape(shape)


def l1(device: Any, count: int = 6) -> Case:
    """Three inputs, one output; each needs a workspace."""
    tensors = {"grad_output": numbers(count), "self": numbers(count)}
    target = numbers(count)[::-1]
    return declared(device, "aclnnL1LossBackward", reduction=2, target=target, **tensors)


def l1_of(device: Any, array: AnyArray) -> Case:
    """The same with this array for each input."""
    tensors = dict.fromkeys(("grad_output", "self", "target"), array)
    return declared(device, "aclnnL1LossBackward", reduction=2, **tensors)


def longer(device: Any) -> Case:
    """Ten pieces of 64 bytes for each tensor."""
    return l1(device, 150)


def large(device: Any) -> Case:
    """More memory than the others need, on the device and for staging."""
    return l1(device, 150_000)


def unread(device: Any, *shape: int) -> Case:
    """An input whose values nobody reads, and which is not sent."""
    shape = shape or (2, 3)
    grad_output, target = numbers(*shape), numbers(*shape, start=9)
    tensors = {"grad_output": grad_output, "self": like(target), "target": target}
    return declared(device, "aclnnKlDivBackward", reduction=2, **tensors)


def rsub(device: Any) -> Case:
    """A scalar; the operator is known by its header alone."""
    self, other = numbers(2, 3), numbers(3)
    tensors = {"self": self, "other": other, "alpha": Scalar(DOUBLE, 2.0), "out": like(self)}
    return installed(device, "aclnnRsub", other - 2 * self, **tensors)


def exp2(device: Any, values: AnyArray, out: Any = None) -> Case:
    """One input, and an output of its shape."""
    given = {"self": values, "out": out or like(values)}
    with np.errstate(over="ignore"):
        return installed(device, "aclnnExp2", np.exp2(values), **given)


def cat(device: Any, *parts: AnyArray) -> Case:
    """A list of tensors."""
    tensors = list(parts) or [numbers(2, 3), numbers(1, 3)]
    whole = np.concatenate(tensors)
    return installed(device, "aclnnCat", whole, tensors=tensors, dim=0, out=like(whole))


def add_scalars(device: Any) -> Case:
    """Lists of inputs, scalars and outputs."""
    x, scalars = [numbers(2), numbers(3)], (Scalar(FLOAT, 1.0), Scalar(FLOAT, -2.0))
    answers = [x[0] + 1, x[1] - 2]
    given = {"x": x, "scalars": scalars, "out": [like(answer) for answer in answers]}
    return installed(device, "aclnnForeachAddScalarList", *answers, **given)


def reduce_nansum(device: Any) -> Case:
    """An array of integers, and a dtype."""
    self = numbers(2, 3)
    total = self.sum(axis=1)
    rest = {"dim": (1,), "keepDim": False, "dtype": FLOAT, "out": like(total)}
    return installed(device, "aclnnReduceNansum", total, self=self, **rest)


def resize(device: Any) -> Case:
    """An array of floats, and a text."""
    self = numbers(2, 2)
    larger = self.repeat(2, axis=1)
    rest = {"scales": (1.0, 2.0), "mode": "nearest", "out": like(larger)}
    return installed(device, "aclnnResize", larger, self=self, **rest)


def vendor_sums(device: Any) -> Case:
    """An array of bools; absent outputs."""
    self = numbers(2, 3)
    answer = self.sum(axis=0)
    rest = {"which": (True, False), "rowsOut": None, "columnsOut": like(answer)}
    return installed(device, "aclnnVendorSums", answer, self=self, **rest)


def in_place(device: Any) -> Case:
    """A tensor that is read and written, without workspace."""
    self = numbers(4, start=-2)
    return installed(device, "aclnnInplaceVendorRelu", np.maximum(self, 0), selfRef=self)


def without_elements(device: Any) -> Case:
    """Nothing to copy, no memory, nothing launched."""
    return l1_of(device, numbers(0, 3))


FOUR_PIECES = 256
"""A ``staging_limit`` by which calls are copied in pieces of 64 bytes."""
WAYS: dict[str, dict[str, Any]] = {
    "whole": {}, "in pieces": {"staging_limit": FOUR_PIECES}, "waiting": {"staging_limit": 0},
}  # fmt: skip
"""The ways in which tensors are copied, and the settings that lead to them."""


class Situation(NamedTuple):
    """What comes before a call, and the call."""

    then: Ask
    before: tuple[Ask, ...] = ()
    settings: Mapping[str, Any] = {}


SITUATIONS = {
    "the first call": Situation(l1),
    "a call like the last": Situation(l1, (l1,)),
    "a larger call": Situation(large, (l1,)),
    "copies in pieces": Situation(longer, (l1,), WAYS["in pieces"]),
    "copies that wait": Situation(l1, (), WAYS["waiting"]),
    "copies that wait, an input that nobody reads": Situation(unread, (), WAYS["waiting"]),
    "no memory is kept": Situation(l1, (), {"kept_device_memory": 0}),
    "descriptors of one call are kept": Situation(unread, (l1,), {"kept_calls": 1}),
    "no descriptors are kept": Situation(unread, (unread,), {"kept_calls": 0}),
    "a scalar": Situation(rsub),
    "a list of tensors": Situation(cat),
    "a list of scalars": Situation(add_scalars),
    "an array of integers": Situation(reduce_nansum),
    "an array of floats": Situation(resize),
    "an array of bools": Situation(vendor_sums),
    "in place, no workspace": Situation(in_place),
    "no elements": Situation(without_elements),
    "an input that nobody reads": Situation(unread, (l1,)),
}
"""Between them they reach every C function that a call can use, as ``test_faults`` says."""
ASKS: list[Ask] = list(dict.fromkeys(situation.then for situation in SITUATIONS.values()))
SMALL_ASKS = [ask for ask in ASKS if ask is not large]
