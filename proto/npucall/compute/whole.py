"""A call of one block: everything but the memory of its arrays is found before it runs.

The bits are those of a work that takes a block after the other. Small calls are computed here, for
which that would take several times as long as their formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from npucall.compute.helpers import Turn
from npucall.compute.layouts import Layout
from npucall.compute.operands import store
from npucall.compute.quiet import quietly
from npucall.compute.work import Work
from npucall.declare.prepare import Prepared
from npucall.dtypes import AnyArray
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
            (each.name, _view_of(each.layout), each.taken, each.is_plain and each.layout.dense)
            for each in work.operands
        ]
        self._outputs = [
            (name, layout, size, _is_plain(layout, size) and layout.dtype == work.kernel)
            for name, layout, size in zip(call.outputs, work.outputs, sizes, strict=True)
        ]

    def run(
        self, storages: Mapping[str, Buffer], turn: Turn, targets: Mapping[str, Buffer]
    ) -> list[Buffer]:
        """One storage for each output, in their order, in one turn; ``targets``: where some go."""
        with turn():
            return quietly(self._computed, storages, targets)

    def _computed(
        self, storages: Mapping[str, Buffer], targets: Mapping[str, Buffer]
    ) -> list[Buffer]:
        work, kernel, given = self._work, self._work.kernel, {}
        for name, view, taken, is_fit in self._inputs:
            array = view(storages[name])
            given[name] = array if is_fit and array.flags.aligned else taken(array)
        results = work.results(work.facts, given)
        answers: list[Buffer] = []
        for (name, layout, size, is_plain), result in zip(self._outputs, results, strict=True):
            target = targets.get(name) if targets else None
            if (
                target is None
                and is_plain
                and result.dtype == kernel
                and result.shape == layout.shape
            ):
                answers.append(bytearray(result.tobytes()))
                continue
            memory = fresh(size) if target is None else target
            store(_view_of(layout)(memory), result, kernel)
            answers.append(memory)
        return answers


def _view_of(layout: Layout) -> Callable[[Buffer], AnyArray]:
    """What makes the array of a layout in memory."""
    dtype, shape, strides, offset = layout
    make: Any = np.ndarray  # for type checkers a shape has so many parts
    return partial(make, shape, dtype, offset=offset, strides=strides)


def _is_plain(layout: Layout, size: int) -> bool:
    return layout.dense and not layout.offset and size < _SMALL
