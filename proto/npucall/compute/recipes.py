"""What follows from a call before any memory exists: found once, and used by each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from npucall.compute import blocks
from npucall.compute.layouts import Layout
from npucall.compute.operands import Index
from npucall.compute.whole import WholeCall
from npucall.compute.work import Work
from npucall.declare.prepare import Prepared, once_a_call
from npucall.memory import fresh, is_poisoned, spoilt
from npucall.tensors import Buffer

BLOCKS_A_TURN = 3
"""Between turns threads meet, and other calls get their turns; this is rare enough to cost
little."""


class OutputStorage(NamedTuple):
    """An output of a call that comes with storages."""

    name: str
    size: int
    layout: Layout
    covered: bool
    """Whether the call writes every byte of the storage."""

    def storage(self, sent: Buffer | None, target: Buffer | None) -> Buffer:
        """The memory that it is computed into, of anything but for gaps that were sent."""
        storage = fresh(self.size) if target is None else target
        if target is not None and sent is None and is_poisoned():
            spoilt(target)
        if not self.covered and self.size:
            place = np.frombuffer(storage, np.uint8)
            place[...] = 0 if sent is None else np.frombuffer(sent, np.uint8)
        return storage


class Recipe(NamedTuple):
    """What follows from a call, before there is any storage."""

    answers: Sequence[OutputStorage]
    work: Work | None = None
    """None where nothing is computed."""
    cuts: Sequence[Index] = ()
    whole: WholeCall | None = None
    """What computes it if it is one block."""


@once_a_call
def recipe_of(call: Prepared) -> Recipe:
    """What follows from a call, found once."""
    outputs = {name: Layout.of_spec(spec) for name, spec in call.outputs.items()}
    answers = [
        OutputStorage(
            name, spec.storage_bytes, outputs[name], spec.row_major and name in call.asked
        )
        for name, spec in call.outputs.items()
    ]
    if call.done:
        return Recipe(answers)
    inputs = {name: Layout.of_spec(spec) for name, spec in call.inputs.items()}
    inputs |= {name: outputs[name] for name in call.read.keys() & outputs.keys()}
    asked = {name: layout for name, layout in outputs.items() if name in call.asked}
    work = blocks.work_of(call, inputs, asked, exact=False)
    cuts = work.cuts()
    shapes = [layout.shape for layout in (*work.inputs.values(), *work.outputs)]
    covered = all(answer.covered for answer in answers)
    is_whole = work.one_step and covered and cuts == (...,) and not any(0 in s for s in shapes)
    return Recipe(answers, work, cuts, WholeCall(call, work) if is_whole else None)


def is_small(call: Prepared) -> bool:
    """Whether one turn is enough for a call, so that no other thread can help."""
    return len(recipe_of(call).cuts) <= BLOCKS_A_TURN
