"""Small calls that differ only in their bytes, computed as one, to save Python's overhead.

Elementwise calls on dense tensors, as ``pieces`` takes them: what one element becomes does not
depend on its neighbours, so results have the bits that ``evaluate.run`` gives each call alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npucall.compute import evaluate, pieces
from npucall.compute.operands import Operand
from npucall.compute.recipes import recipe_of
from npucall.declare.prepare import Prepared, once_a_call
from npucall.dtypes import AnyArray
from npucall.memory import fresh
from npucall.tensors import Buffer


@once_a_call
def most(call: Prepared) -> int:
    """How many such calls can be computed as one: as many as fit into a block; else 1."""
    if call.done or call.checked_inputs or not pieces.takes_pieces(call):
        return 1
    work = recipe_of(call).work
    assert work is not None  # noqa: S101  # takes_pieces
    return max(1, work.block // work.space[0])


def run(call: Prepared, storages: Sequence[Mapping[str, Buffer]]) -> list[list[Buffer]]:
    """Computes the call with each of these storages, at most ``most`` of them.

    Returns a storage for each output of each call. All are parts of one block of memory.
    """
    work = recipe_of(call).work
    assert work is not None  # noqa: S101  # there are most
    (elements,) = work.space
    count = len(storages)
    inputs = [_joined(operand, storages, elements) for operand in work.operands]
    sizes = [spec.storage_bytes for spec in call.outputs.values()]
    memories = [memoryview(fresh(count * size)) for size in sizes]
    outputs = [
        layout._replace(shape=(count * elements,)).over(memory)
        for layout, memory in zip(work.outputs, memories, strict=True)
    ]
    evaluate.compute_blocks(work, inputs, outputs, (...,))
    return [
        [memory[n * size : (n + 1) * size] for memory, size in zip(memories, sizes, strict=True)]
        for n in range(count)
    ]


def _joined(operand: Operand, storages: Sequence[Mapping[str, Buffer]], elements: int) -> AnyArray:
    """An input of all calls, one after the other; single numbers once for each element."""
    memory = b"".join([each[operand.name] for each in storages])
    array = np.frombuffer(memory, operand.layout.dtype)
    return np.repeat(array, elements) if operand.layout.shape == (1,) else array
