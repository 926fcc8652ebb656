"""Calls of every operator, drawn as its statement says, and ways to compute them here."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

import npucall_client
from npucall.compute.evaluate import evaluate
from npucall.declare.call import Call
from npucall.declare.declaration import Operator
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BY_NUMPY, FLOAT, DType
from npucall.operators import CATALOGUE
from npucall.products import A2, Product
from npucall.tensors import TensorSpec
from npucall_conformance.cases.arrangements import view
from npucall_conformance.cases.case import Case, Maker
from npucall_conformance.cases.made_call import call_of, in_lists
from npucall_conformance.stating.parts import Setup
from npucall_conformance.stating.statement import Statement

from .defects import Answer, changed, table_of

INF, NAN = np.inf, np.nan
NONE, MEAN, SUM, BATCHMEAN = range(4)
BF16 = ml_dtypes.bfloat16
FLOATS = (np.float32, np.float16, BF16)
LOCAL = npucall_client.connect("local:")
Arrays = dict[str, Any]


def drawn(case: Case) -> tuple[Arrays, Arrays]:
    """Inputs as arrays without gaps, and attributes as a call has them."""
    made = call_of(case, seed=1)
    given: Arrays = dict(made.arguments)
    tensors = {n: view(s, made.storages[n]) for n, s in given.items() if n in case.shapes}
    outputs = {output.name for output in case.statement.outputs}
    others = given.keys() - tensors.keys() - outputs
    return tensors, {name: given[name] for name in others}


def usual(statement: Statement, *dtypes: DType) -> Iterator[Case]:
    """Each of its usual shapes in each of the dtypes that it has; attributes are taken in turn."""
    make = Maker(statement, "usual")
    for dtype, base in product(dtypes, statement.base_shapes):
        if dtype in statement.dtypes:
            yield make.case(dtype, Setup(base=base))


def stretched(statement: Statement) -> Iterator[Case]:
    """Each way in which its inputs stretch each other, in FLOAT."""
    make = Maker(statement, "stretched")
    for setup in statement.broadcast:
        if not setup.products and (not setup.only or FLOAT in setup.only):
            yield make.case(FLOAT, setup)


def prepared(
    operator: Operator[..., Any], tensors: Arrays, attributes: Arrays, **outputs: TensorSpec
) -> Prepared:
    """The call on an Atlas A2, or on the first product that has the operator."""
    specs = in_lists({n: TensorSpec(BY_NUMPY[a.dtype], a.shape) for n, a in tensors.items()})
    call = Call(operator, {**specs, **attributes, **outputs}, tuple(tensors))
    return prepare(call, operator.product_near(A2), CATALOGUE)


def evaluated(call: Prepared, tensors: Arrays, block: int | None = None) -> Arrays:
    """The outputs, computed over memory that held something else."""
    outputs = {n: np.full(s.shape, 7, s.dtype.numpy) for n, s in call.outputs.items()}
    evaluate(call, tensors, outputs, block=block)
    return outputs


def bits(outputs: Arrays) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


def run(
    operator: Operator[..., Any], tensors: Arrays, *, out: Any = None, on: Any = LOCAL, **more: Any
) -> Any:
    """A client's answer; ``out`` is the memory of the first output."""
    if out is not None:
        on = on.options(outputs={operator.outputs[0].name: out})
    return on.run(operator, **tensors, **more)


def draw(operator: Operator[..., Any], kind: Any) -> Arrays:
    """Inputs of an ordinary call in a type of numbers."""
    case, *_ = usual(table_of(operator).statement, BY_NUMPY[np.dtype(kind)])
    return drawn(case)[0]


def refusal(operator: Operator[..., Any], changes: Arrays, on: Product = A2) -> Answer | None:
    """What a call with these changes is answered; they are as in an error table."""
    return table_of(operator).refusal(changed(**changes), on=on)


def results(answer: Any) -> list[Any]:
    """The outputs of a call, one or several; without those that it does not ask for."""
    every = answer if isinstance(answer, tuple | list) else [answer]
    lists = (each if isinstance(each, list) else [each] for each in every)
    return [each for members in lists for each in members if each is not None]


def wide(*arrays: Any) -> list[Any]:
    """The arrays in float64."""
    return [array.astype(np.float64) for array in arrays]


def numbers(*shapes: tuple[int, ...], dtype: Any = np.float64, largest: float = 4) -> list[Any]:
    """An array of each shape, of numbers up to ``largest`` that the dtype has exactly."""
    random = np.random.default_rng(1)
    return [np.asarray(random.uniform(-largest, largest, shape)).astype(dtype) for shape in shapes]


def title(value: Any) -> str:
    """How tests name an operator or a type of numbers."""
    return value.__name__ if isinstance(value, type) else str(value)
