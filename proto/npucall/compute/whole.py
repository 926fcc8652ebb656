"""A call of one block: everything but the memory of its arrays is found before it runs.

The bits are those of a work that takes a block after the other. Small calls are computed here, for
which that would take several times as long as their formula.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npucall.compute.helpers import Turn
from npucall.compute.operands import store
from npucall.compute.work import Work
from npucall.declare.prepare import Prepared
from npucall.memory import fresh
from npucall.tensors import Buffer

_SMALL = 1 << 14
"""Bytes of an output that are copied once more sooner than an array is made for them."""


class WholeCall:
    """Computes a call whose work has one step for each block, and one block."""

    __slots__ = ("_inputs", "_outputs", "_work")

    def __init__(self, call: Prepared, work: Work) -> None:
        self._work = work
        sizes = [spec.storage_bytes for spec in call.outputs.values()]
        self._inputs = [
            (each.name, *each.layout, each.taken, each.is_plain and each.layout.dense)
            for each in work.operands
        ]
        self._outputs = [
            (layout, size, layout.dense and not layout.offset and size < _SMALL)
            for layout, size in zip(work.outputs, sizes, strict=True)
        ]

    def run(self, storages: Mapping[str, Buffer], turn: Turn) -> list[Buffer]:
        """One storage for each output, in their order, in one turn."""
        work, kernel, given = self._work, self._work.kernel, {}
        with turn(), np.errstate(all="ignore"):
            for name, dtype, shape, strides, offset, taken, is_fit in self._inputs:
                array = np.ndarray(shape, dtype, storages[name], offset, strides)
                given[name] = array if is_fit and array.flags.aligned else taken(array)
            results = work.results(work.facts, given)
            answers: list[Buffer] = []
            for (layout, size, is_plain), result in zip(self._outputs, results, strict=True):
                dtype, shape, strides, offset = layout
                if is_plain and result.dtype == dtype == kernel and result.shape == shape:
                    answers.append(bytearray(result.tobytes()))
                    continue
                memory = fresh(size)
                store(np.ndarray(shape, dtype, memory, offset, strides), result, kernel)
                answers.append(memory)
        return answers
