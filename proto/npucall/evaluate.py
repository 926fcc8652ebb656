"""A prepared call and its arrays become outputs, block by block.

The same code computes in the server's CPU device and in the client's ``local:``. Results have the
same bits for any number of threads and any path that the arrays took, since the edges of blocks
depend on shapes alone and sums are taken in the order of blocks.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from npucall import blocks
from npucall.dtypes import BY_NUMPY, DOUBLE, FLOAT
from npucall.operators import CATALOGUE
from npucall.operators.attributes import attribute_value
from npucall.operators.prepare import Prepared, prepare
from npucall.operators.spec import Call
from npucall.products import DEFAULT_SOC, product_of
from npucall.tensors import TensorSpec, view

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from npucall.dtypes import AnyArray
    from npucall.operators.spec import Operator, P, R
    from npucall.tensors import Buffer

Turn: TypeAlias = "Callable[[], AbstractContextManager[object]]"
"""Waits for the right to compute one block, and holds it."""

BLOCK = 1 << 16
"""Elements of a block: a few arrays of float32 of this length stay in a core's cache."""


def run(call: Prepared, storages: Mapping[str, Buffer], turn: Turn = nullcontext) -> list[Buffer]:
    """Computes a call from its storages; answers one storage for each output, in their order.

    A storage that the call sent for an output is copied (received bytes cannot be written) and
    written through its view, so that its gaps come back as they were.
    """
    inputs = {n: view(spec, storages[n]) for n, spec in call.inputs.items() if n in storages}
    answers: list[Buffer] = []
    targets: dict[str, AnyArray] = {}
    for name, spec in call.outputs.items():
        sent = storages.get(name)
        answer = bytearray(spec.storage_bytes) if sent is None else bytearray(sent)
        answers.append(answer)
        targets[name] = view(spec, answer)
    evaluate(call, inputs, targets, turn)
    return answers


def evaluate(  # noqa: PLR0913  # two of them are for tests
    call: Prepared,
    inputs: Mapping[str, AnyArray],
    outputs: Mapping[str, AnyArray],
    turn: Turn = nullcontext,
    *,
    block: int = BLOCK,
    exact: bool = False,
) -> None:
    """Computes a call into ``outputs``, arrays of the shapes and dtypes that it resolved to.

    Inputs are rounded to the kernel dtype, widened to float32 and broadcast; results are rounded
    to the kernel dtype *before* they are summed, then to the output's dtype, to nearest even. Sums
    accumulate in float64. ``exact`` computes and rounds in float64 throughout.
    """
    if call.done:
        for array in outputs.values():
            array[...] = 0
        return
    work = blocks.work_of(call, inputs, outputs, exact=exact)
    for index in work.cuts(block):
        with turn(), np.errstate(all="ignore"):
            work.compute(index)
    with np.errstate(all="ignore"):
        work.finish()


def compute(operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs one operator on NumPy arrays in this process, by the rules of the default product.

    Here, and only here, float64 arrays are accepted: they pass the rules as FLOAT, and everything
    is computed in float64, so that a test can ask for exact numbers.
    """
    given = operator.bind(args, kwargs)
    names = [p.name for p in operator.inputs if given.get(p.name) is not None]
    tensors = {name: np.asarray(given[name]) for name in names}
    exact = any(array.dtype == np.float64 for array in tensors.values())
    specs = {name: _spec(name, array) for name, array in tensors.items()}
    values = {
        p.name: attribute_value(p.name, p, given[p.name])
        for p in operator.attributes
        if given.get(p.name) is not None
    }
    call = Call(operator, {**specs, **values}, tuple(tensors))
    prepared = prepare(call, product_of(DEFAULT_SOC), CATALOGUE)
    outputs = {
        name: np.empty(spec.shape, np.float64 if exact else spec.dtype.numpy)
        for name, spec in prepared.outputs.items()
    }
    evaluate(prepared, tensors, outputs, exact=exact)
    results: Any = tuple(outputs.values())
    answer: R = results if len(results) > 1 else results[0]
    return answer


def _spec(name: str, array: AnyArray) -> TensorSpec:
    dtype = BY_NUMPY[array.dtype]
    return TensorSpec(FLOAT if dtype is DOUBLE else dtype, array.shape, name=name)
