"""What all work that is cut into blocks has in common.

Everything that follows from the call is found when its ``Work`` is made, once for all runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from npucall.compute.helpers import Sharing
from npucall.compute.layouts import Layout
from npucall.compute.operands import Index, Operand, store, within
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.facts import Facts
from npucall.declare.prepare import Prepared
from npucall.dtypes import AnyArray
from npucall.errors import NpucallError
from npucall.tensors import Shape

_FEW = 1 << 8
"""Blocks that are kept cut."""


def complete(error: NpucallError, call: Prepared) -> None:
    """Completes an error about values, which rules do not see."""
    error.details.setdefault("operator", call.operator.name)
    error.details.setdefault("phase", "run")


class Work(ABC):
    """The work for a call, independent of where the memory of its tensors is.

    Blocks may be computed in any order and at the same time. Its operator has a formula; only
    devices of their own run those that have none.
    """

    block = BLOCK
    """Most elements of a block: a few arrays of float32 of this length stay near the core."""
    space: Shape
    """What is cut. Arrays with extent 1 where it has more belong to several blocks."""
    one_step = False
    """Whether a block is a call of the formula, whose results are written to the outputs as they
    are."""
    flat = False
    """Whether a range of the elements of dense inputs, and numbers, give that range of a dense
    output: then any range can be computed by itself."""

    def __init__(
        self,
        call: Prepared,
        inputs: Mapping[str, Layout],
        outputs: Mapping[str, Layout],
        *,
        exact: bool,
    ) -> None:
        self.call = call
        self.kernel = np.dtype(np.float64) if exact else call.kernel_dtype.numpy  # type: ignore[union-attr]
        facts = replace(call.facts, dtype=self.kernel) if exact else call.facts
        unread = [p.name for p in call.operator.inputs if p.name in call.inputs and not p.read]
        self.inputs = {name: inputs[name] for name in call.read}
        self.outputs = list(outputs.values())
        self._names = list(outputs)
        self._arrange()
        first = {} if exact else {name: (dtype.numpy,) for name, dtype in call.through.items()}
        then = (self.kernel, facts.dtype)
        self.operands = [
            Operand(name, self.inputs[name], () if p.as_is else (*first.get(p.name, ()), *then))
            for name, p in call.read.items()
        ]
        nothing = np.zeros((1,) * len(self.space), facts.dtype)
        formula: Any = call.operator.formula
        self.facts = facts
        self._formula = partial(
            formula,
            **dict.fromkeys(unread, nothing),
            **call.absent,
            **call.attributes,
        )

    @abstractmethod
    def _arrange(self) -> None:
        """Finds the space, and the layouts in which its blocks are cut from inputs and outputs."""

    def cuts(self, limit: int | None = None) -> Sequence[Index]:
        """The blocks, of about ``limit`` elements; of as many as there should be if left out."""
        limit = limit or self.block
        if 0 < prod(self.space) <= limit:
            return _ALL
        blocks = cut(self.space, limit)
        return list(blocks) if len(blocks) <= _FEW else blocks

    def begin(self, outputs: Sequence[AnyArray]) -> Sequence[AnyArray]:
        """Where the blocks of one run go: into the outputs, or into sums of their own."""
        return outputs

    def passes(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray], sharing: Sharing
    ) -> Iterator[Callable[[Index], AnyArray | None]]:
        """What computes a block; where there are several, each computes all of them in its turn.

        It writes into the targets, or answers what has to be added to them. ``sharing`` is for what
        computes for long.
        """
        del sharing
        yield self.on(inputs, targets)

    def on(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray]
    ) -> Callable[[Index], AnyArray | None]:
        """What computes a block of a work that has one pass."""
        return partial(self._compute, inputs, targets, self.facts)

    def add(  # noqa: B027  # most have nothing to add
        self, targets: Sequence[AnyArray], part: AnyArray, index: Index
    ) -> None:
        """Adds what a block answered; called in the order of the blocks, once at a time."""

    def finish(  # noqa: B027  # most have nothing left
        self,
        targets: Sequence[AnyArray],
        outputs: Sequence[AnyArray],
        pause: Callable[[], None],
    ) -> None:
        """Makes the outputs of targets that are not the outputs, when all blocks are done."""

    def _compute(
        self,
        inputs: Sequence[AnyArray],
        targets: Sequence[AnyArray],
        facts: Facts,
        index: Index,
    ) -> AnyArray | None:
        results = self.results(facts, self._blocks(inputs, index))
        for target, result in zip(targets, results, strict=True):
            place = target if index is ... else target[within(target.shape, index)]
            store(place, result, self.kernel)
        return None

    def _blocks(self, inputs: Sequence[AnyArray], index: Index) -> dict[str, AnyArray]:
        """A block of each input, as the formula takes it."""
        return {
            operand.name: operand.block(array, index)
            for operand, array in zip(self.operands, inputs, strict=True)
        }

    def results(self, facts: Facts, given: Mapping[str, Any]) -> Sequence[AnyArray]:
        """The formula's results."""
        try:
            answer: Any = self._formula(facts, **given)
        except NpucallError as error:
            complete(error, self.call)
            raise
        return answer if isinstance(answer, tuple) else (answer,)


_ALL = (...,)
