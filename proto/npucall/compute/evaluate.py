"""A prepared call and its arrays become outputs, block by block.

The same code computes in the server's CPU device and in the client's ``local:``. Results have the
same bits for any number of threads and any path of the arrays. An element's result does not depend
on the edges of blocks (except the sign and payload of NaN, which NumPy leaves open). The edges of
sums depend only on shapes, and sums are taken in the order of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from npucall.compute import blocks
from npucall.compute.helpers import UNLIMITED, Helpers, SharedBlocks, Sharing, Turn
from npucall.compute.layouts import Layout
from npucall.compute.operands import Index, InputReader, Operand
from npucall.compute.quiet import quietly
from npucall.compute.recipes import BLOCKS_A_TURN, OutputStorage, Recipe, recipe_of
from npucall.compute.work import Work, complete
from npucall.declare.attributes import attribute_value
from npucall.declare.call import Call, tensors_of
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.declaration import Operator, P, R
from npucall.declare.parameters import Input, Output
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BY_NUMPY, DOUBLE, FLOAT, AnyArray
from npucall.errors import NpucallError
from npucall.memory import fresh_array
from npucall.operators import CATALOGUE
from npucall.products import DEFAULT_SOC, product_of
from npucall.tensors import Buffer, TensorSpec

_KEPT = 16 << 20
"""Bytes that the temporary arrays of a block surely have room in."""
NO_TARGETS: Mapping[str, Buffer] = MappingProxyType({})
"""Every output gets memory of its own."""


def run(
    call: Prepared,
    storages: Mapping[str, Buffer],
    turn: Turn = UNLIMITED,
    targets: Mapping[str, Buffer] = NO_TARGETS,
    helpers: Helpers | None = None,
) -> list[Buffer]:
    """Computes a call from its storages; answers one storage for each output, in their order.

    ``targets`` are writable storages for outputs, which share no memory with inputs; after an error
    their content is undefined. If the call sent a storage for an output, it is copied (received
    bytes are read-only) and written through its view, so its gaps stay as they were. ``helpers``
    compute blocks at the same time, as long as ``turn`` has spare turns.
    """
    recipe = recipe_of(call)
    if recipe.work is None:
        return _filled(call, recipe.answers, storages, targets, turn)
    if recipe.whole is not None:
        answers = recipe.whole.run(storages, turn, targets)
    else:
        answers = _computed(recipe, recipe.work, storages, targets, turn, helpers)
    return answers


def _filled(
    call: Prepared,
    outputs: Sequence[OutputStorage],
    storages: Mapping[str, Buffer],
    targets: Mapping[str, Buffer],
    turn: Turn,
) -> list[Buffer]:
    """The outputs of a call that the rules ended."""
    answers = _memories(outputs, storages, targets)
    with turn():
        for answer, storage in zip(outputs, answers, strict=True):
            if answer.name in call.asked:
                _fill(answer.layout.over(storage), call.fills.get(answer.name, 0), turn)
    return answers


def _computed(  # noqa: PLR0913  # all that a run has
    recipe: Recipe,
    work: Work,
    storages: Mapping[str, Buffer],
    targets: Mapping[str, Buffer],
    turn: Turn,
    helpers: Helpers | None,
) -> list[Buffer]:
    """The outputs of a call that is computed block by block."""
    answers = _memories(recipe.answers, storages, targets)
    inputs = [operand.layout.over(storages[operand.name]) for operand in work.operands]
    asked = [a for a, e in zip(answers, recipe.answers, strict=True) if e.name in work.call.asked]
    outputs = [layout.over(memory) for layout, memory in zip(work.outputs, asked, strict=True)]
    compute_blocks(work, inputs, outputs, recipe.cuts, turn, helpers)
    return answers


def _memories(
    outputs: Sequence[OutputStorage],
    storages: Mapping[str, Buffer],
    targets: Mapping[str, Buffer],
) -> list[Buffer]:
    return [each.storage(storages.get(each.name), targets.get(each.name)) for each in outputs]


def check_values(
    call: Prepared, storages: Mapping[str, Buffer], pause: Callable[[], None] = UNLIMITED.pause
) -> None:
    """Refuses input values that the formula would refuse, and computes nothing.

    For a device, before it starts a kernel that it cannot stop: a label that is not a class makes
    the kernel access memory outside its tensors, and then the device is lost for everybody. It
    checks a block at a time, with ``pause`` before each. ``storages`` are those of
    ``call.checked_inputs``; it ignores others. Raises ArgumentError, and what ``pause`` raises.
    """
    values = call.operator.values
    if values is None or not call.checked_inputs:
        return
    read, every = call.checked_inputs, call.inputs.items()
    inputs = call.in_lists(
        {n: _checked(n, Layout.of_spec(spec), storages if n in read else {}) for n, spec in every}
    )
    try:
        values.check(replace(call.facts, pause=pause), inputs, call.attributes)
    except NpucallError as error:
        complete(error, call)
        raise


def _checked(name: str, layout: Layout, storages: Mapping[str, Buffer]) -> InputReader:
    """An input for a check of values; only its shape if there is no storage."""
    if name in storages:
        return InputReader(Operand(name, layout, ()), layout.over(storages[name]))
    shape = np.broadcast_to(np.zeros((), layout.dtype), layout.shape)
    return InputReader(Operand(name, layout, ()), shape)


def evaluate(
    call: Prepared,
    inputs: Mapping[str, AnyArray],
    outputs: Mapping[str, AnyArray],
    *,
    block: int | None = None,
    exact: bool = False,
) -> None:
    """Computes a call into ``outputs``, arrays of the shapes and dtypes that it resolved to.

    Inputs are rounded to the kernel dtype, widened to float32 and broadcast; results are rounded
    to the kernel dtype *before* they are summed, then to the output's dtype, to nearest even. Sums
    accumulate in float64. ``exact`` computes and rounds in float64 throughout.
    """
    if call.done:
        for name in call.asked:
            outputs[name][...] = call.fills.get(name, 0)
        return
    outputs = {name: outputs[name] for name in call.outputs if name in call.asked}
    work = blocks.work_of(call, _layouts(inputs), _layouts(outputs), exact=exact)
    read = [o.layout.seen(inputs[o.name]) for o in work.operands]
    written = [
        layout.seen(array) for layout, array in zip(work.outputs, outputs.values(), strict=True)
    ]
    compute_blocks(work, read, written, work.cuts(block))


def compute(operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs one operator on NumPy arrays in this process, by the rules of the default product.

    Of an operator that it does not have, by those of the first that has it. Only here float64
    arrays are accepted: they pass the rules as FLOAT, and everything is computed in float64, so
    that a test can get exact numbers.
    """
    given = operator.bind(args, kwargs)
    tensors = {
        name: np.asarray(tensor)
        for p in operator.given
        for name, tensor in tensors_of(p.name, _members(p, given.get(p.name)))
    }
    exact = any(array.dtype == np.float64 for array in tensors.values())
    specs = {
        p.name: tuple(_spec(np.asarray(each)) for each in given[p.name])
        if p.many
        else _spec(tensors[p.name])
        for p in operator.given
        if given.get(p.name) is not None
    }
    values = {
        p.name: attribute_value(p.name, p, given[p.name])
        for p in operator.attributes
        if given.get(p.name) is not None
    }
    call = Call(operator, {**specs, **values}, tuple(tensors))
    prepared = prepare(call, operator.product_near(product_of(DEFAULT_SOC)), CATALOGUE)
    outputs = {
        name: fresh_array(
            spec.shape, np.float64 if exact and spec.dtype.kind == "float" else spec.dtype.numpy
        )
        for name, spec in prepared.outputs.items()
    }
    evaluate(prepared, tensors, outputs, exact=exact)
    results: Any = tuple(
        [outputs.get(name) for name in prepared.lists[each.name]]
        if each.name in prepared.lists
        else outputs.get(each.name)
        for each in operator.outputs
    )
    answer: R = results if len(results) > 1 else results[0]
    return answer


def _members(parameter: Input | Output, given: Any) -> Any:
    """What is given for a tensor; the members of a list as ``tensors_of`` takes them."""
    return tuple(given) if parameter.many and given is not None else given


def _spec(array: AnyArray) -> TensorSpec:
    dtype = BY_NUMPY[array.dtype]
    return TensorSpec(FLOAT if dtype is DOUBLE else dtype, array.shape)


def _fill(array: AnyArray, number: float, turn: Turn) -> None:
    for index in cut(array.shape, BLOCK):
        turn.pause()
        array[... if index == () else index] = number


def compute_blocks(  # noqa: PLR0913  # all that a run has
    work: Work,
    inputs: Sequence[AnyArray],
    outputs: Sequence[AnyArray],
    indices: Sequence[Index],
    turn: Turn = UNLIMITED,
    helpers: Helpers | None = None,
) -> None:
    """Computes blocks of arrays in the layouts of a work, a few of them a turn."""
    _keep_memory_of_blocks()
    if len(indices) == 1:
        with turn():
            quietly(_compute_one, work, inputs, outputs, indices[0], Sharing(turn, helpers), turn)
        return
    targets = work.begin(outputs)
    for compute_block in work.passes(inputs, targets, Sharing(turn)):
        _compute_each(work, compute_block, targets, indices, turn, helpers)
    if targets is not outputs:
        with turn():
            quietly(work.finish, targets, outputs, turn.pause)


def _compute_one(  # noqa: PLR0913  # all that a run has
    work: Work,
    inputs: Sequence[AnyArray],
    outputs: Sequence[AnyArray],
    index: Index,
    sharing: Sharing,
    turn: Turn,
) -> None:
    """A work of one block."""
    targets = work.begin(outputs)
    for compute_block in work.passes(inputs, targets, sharing):
        part = compute_block(index)
        if part is not None:
            work.add(targets, part, index)
    if targets is not outputs:
        work.finish(targets, outputs, turn.pause)


def _compute_each(  # noqa: PLR0913  # all that a pass has
    work: Work,
    compute_block: Callable[[Index], AnyArray | None],
    targets: Sequence[AnyArray],
    indices: Sequence[Index],
    turn: Turn,
    helpers: Helpers | None,
) -> None:
    starts = range(0, len(indices), BLOCKS_A_TURN)

    def compute(start: int) -> list[AnyArray | None]:
        end = min(start + BLOCKS_A_TURN, len(indices))
        return [quietly(compute_block, indices[n]) for n in range(start, end)]

    def add(start: int, parts: Sequence[AnyArray | None]) -> None:
        for number, part in enumerate(parts, start):
            if part is not None:
                work.add(targets, part, indices[number])

    if helpers is not None and len(starts) > 1:
        SharedBlocks(starts, compute, add).run(turn, helpers)
    else:
        for start in starts:
            with turn():
                add(start, compute(start))


@cache
def _keep_memory_of_blocks() -> None:
    """Makes glibc keep the memory that formulas free with each block and need for the next.

    Until something large is freed, it returns more than 256 KiB to the kernel at once, and every
    page of that is a fault when it comes back (mallopt(3): M_TRIM_THRESHOLD, and how it adjusts).
    """
    large = np.empty(_KEPT, np.uint8)
    del large


def _layouts(arrays: Mapping[str, AnyArray]) -> dict[str, Layout]:
    return {name: Layout.of_array(array) for name, array in arrays.items()}
