"""Situations in which a C function can fail: settings, calls that ran before, the call that runs.

Between them they reach every C function that a call can use; ``test_faults_of_runs`` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import DOUBLE, FLOAT

from .asked import Asked, Given, declared, installed, like, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npucall_server.devices.cann.device import CannDevice

    Ask = Callable[[CannDevice], Asked]


def numbers(*shape: int, start: float = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Some float32, no two alike."""
    count = int(np.prod(shape))
    return np.arange(start, start + count, dtype=np.float32).reshape(shape)


def l1(device: CannDevice, count: int = 6) -> Asked:
    """Three inputs, one output; each needs a workspace."""
    tensors = {
        "grad_output": numbers(count),
        "self": numbers(count),
        "target": numbers(count)[::-1],
    }
    return declared(device, "aclnnL1LossBackward", reduction=2, **tensors)


def longer(device: CannDevice) -> Asked:
    """Ten pieces of 64 bytes for each tensor."""
    return l1(device, 150)


def large(device: CannDevice) -> Asked:
    """More memory than the others need, on the device and for staging."""
    return l1(device, 150_000)


def unread(device: CannDevice) -> Asked:
    """An input whose values nobody reads, and which is not sent."""
    grad_output, target = numbers(2, 3), numbers(2, 3, start=9)
    self = like(target)
    tensors = {"grad_output": grad_output, "self": self, "target": target}
    return declared(device, "aclnnKlDivBackward", reduction=2, **tensors)


def rsub(device: CannDevice) -> Asked:
    """A scalar; the operator is known by its header alone."""
    self, other = numbers(2, 3), numbers(3)
    tensors = {"self": self, "other": other, "alpha": Scalar(DOUBLE, 2.0), "out": like(self)}
    return installed(device, "aclnnRsub", other - 2 * self, **tensors)


def cat(device: CannDevice) -> Asked:
    """A list of tensors."""
    parts = [numbers(2, 3), numbers(1, 3)]
    whole = np.concatenate(parts)
    return installed(device, "aclnnCat", whole, tensors=parts, dim=0, out=like(whole))


def add_scalars(device: CannDevice) -> Asked:
    """Lists of inputs, scalars and outputs."""
    x, scalars = [numbers(2), numbers(3)], (Scalar(FLOAT, 1.0), Scalar(FLOAT, -2.0))
    answers = [x[0] + 1, x[1] - 2]
    outputs = [like(answer) for answer in answers]
    return installed(
        device, "aclnnForeachAddScalarList", *answers, x=x, scalars=scalars, out=outputs
    )


def reduce_nansum(device: CannDevice) -> Asked:
    """An array of integers, and a dtype."""
    self = numbers(2, 3)
    total = self.sum(axis=1)
    rest = {"dim": (1,), "keepDim": False, "dtype": FLOAT, "out": like(total)}
    return installed(device, "aclnnReduceNansum", total, self=self, **rest)


def resize(device: CannDevice) -> Asked:
    """An array of floats, and a text."""
    self = numbers(2, 2)
    larger = self.repeat(2, axis=1)
    rest = {"scales": (1.0, 2.0), "mode": "nearest", "out": like(larger)}
    return installed(device, "aclnnResize", larger, self=self, **rest)


def layer_norm(device: CannDevice) -> Asked:
    """An array of bools; absent inputs and outputs."""
    gradient, one = numbers(2, 3), np.ones((2, 1), np.float32)
    answer = gradient.sum(0)
    rest = {"normalizedShape": (3,), "outputMask": (False, False, True), "mean": one, "rstd": one}
    return installed(
        device, "aclnnLayerNormBackward", answer, gradOut=gradient, input=gradient, **rest,
        gradInputOut=None, gradWeightOut=None, gradBiasOut=like(answer),
    )  # fmt: skip


def in_place(device: CannDevice) -> Asked:
    """A tensor that is read and written, without workspace."""
    self = numbers(4, start=-2)
    return installed(device, "aclnnInplaceRelu", np.maximum(self, 0), selfRef=self)


def without_elements(device: CannDevice) -> Asked:
    """Nothing to copy, no memory, nothing launched."""
    empty = Given(spec_of(numbers(0, 3)))
    tensors = dict.fromkeys(("grad_output", "self", "target"), empty.spec)
    return declared(device, "aclnnL1LossBackward", **{n: numbers(0, 3) for n in tensors})


FOUR_PIECES = 256
"""A ``staging_limit`` by which calls are copied in pieces of 64 bytes."""


class Situation(NamedTuple):
    """What comes before a call, and the call."""

    then: Ask
    before: tuple[Ask, ...] = ()
    settings: Mapping[str, object] = {}


SITUATIONS = {
    "the first call": Situation(l1),
    "a call like the last": Situation(l1, (l1,)),
    "a larger call": Situation(large, (l1,)),
    "copies in pieces": Situation(longer, (l1,), {"staging_limit": FOUR_PIECES}),
    "copies that wait": Situation(l1, (), {"staging_limit": 0}),
    "copies that wait, an input that nobody reads": Situation(unread, (), {"staging_limit": 0}),
    "no memory is kept": Situation(l1, (), {"kept_device_memory": 0}),
    "descriptors of one call are kept": Situation(unread, (l1,), {"kept_calls": 1}),
    "no descriptors are kept": Situation(unread, (unread,), {"kept_calls": 0}),
    "a scalar": Situation(rsub),
    "a list of tensors": Situation(cat),
    "a list of scalars": Situation(add_scalars),
    "an array of integers": Situation(reduce_nansum),
    "an array of floats": Situation(resize),
    "an array of bools": Situation(layer_norm),
    "in place, no workspace": Situation(in_place),
    "no elements": Situation(without_elements),
    "an input that nobody reads": Situation(unread, (l1,)),
}
