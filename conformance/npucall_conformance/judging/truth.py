"""The right answer to a call, by the arrays of its statement.

A statement also has loops, and maybe a call of torch [src:torch]. Tests compare these opinions for
every kind of case, so that a run needs only one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from npucall.dtypes import COMPLEX64, COMPLEX128, DOUBLE, FLOAT16, AnyArray, DType
from npucall.tensors import Shape
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.stating.arguments import FLOAT_INSIDE, Reals, Terms, wide
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.written import WrittenCall, dtype_of


@dataclass(frozen=True)
class Expected:
    """The right numbers of one output, and the facts by which an answer is judged."""

    value: Reals
    size: Reals
    summed: int
    kernel: DType
    stepwise: bool
    dtype: DType
    """The dtype of the output."""
    cost: float = FLOAT_INSIDE
    """The error that computing it in float32 may cause, in units of 2^-24 of the terms' size."""
    wide: bool = False
    """An input is DOUBLE, so that results must not be rounded to FLOAT first."""
    biased: bool = False
    """All errors may have the same sign: a mean's factor is in them, or every step rounds."""
    exact: AnyArray | None = None
    """The same numbers as integers or truths, of which ``value`` may hold only the first digits."""


def expected(
    statement: Statement, call: MadeCall, filled: float | None = None
) -> dict[str, Expected]:
    """The truth by output; ``filled``: the value that fills outputs, if nothing is computed."""
    given = call.given
    with np.errstate(all="ignore"):
        opinions = _terms(statement, call) if filled is None else _filled(call, filled)
    own = {each.name for each in statement.outputs if each.own}
    cost = 0.0 if call.exact else statement.cost_in(given)
    if given.kernel.kind == "complex":
        cost = max(cost, FLOAT_INSIDE)
    return {
        name: Expected(
            value=terms.value,
            size=terms.sizes,
            summed=1 if call.exact else terms.summed,
            kernel=call.dtypes[name] if name in own else given.kernel,
            stepwise=given.stepwise and not call.exact,
            dtype=call.dtypes[name],
            cost=FLOAT_INSIDE if terms.summed > 1 and not call.exact else cost,
            wide=DOUBLE in given.dtypes.values(),
            biased=given.kernel is FLOAT16 and (given.scaled or given.stepwise),
        )
        for name, terms in opinions.items()
    }


_COMPLEX = {COMPLEX64: 16.0, COMPLEX128: 128.0}
"""What computing a complex number may cost at least: 2^-20 and 2^-46 of its size."""


def written(call: MadeCall, known: WrittenCall) -> dict[str, Expected]:
    """The truth of a call whose results are written out."""
    found = {}
    for name, result in zip(call.shapes, known.results, strict=True):
        dtype, value = dtype_of(result), wide(result)
        found[name] = Expected(
            value, np.abs(value), 1, dtype, stepwise=False, dtype=dtype,
            cost=_COMPLEX.get(dtype, known.cost),
            exact=result if dtype.kind in ("int", "bool") else None,
        )  # fmt: skip
    return found


def _filled(call: MadeCall, number: float) -> dict[str, Terms]:
    return {name: Terms(np.full(shape, number)) for name, shape in call.shapes.items()}


def _terms(statement: Statement, call: MadeCall) -> dict[str, Terms]:
    if not any(prod(shape) for shape in call.shapes.values()):
        return _filled(call, 0.0)
    terms = {name: one for name, one in statement.terms(call.given).items() if name in call.shapes}
    for name, shape in call.shapes.items():
        value, sizes = (in_shape(shape, each) for each in (terms[name].value, terms[name].sizes))
        if value.shape != shape:
            raise ValueError(f"{name}: arrays answer shape {value.shape}, not {shape}")
        terms[name] = replace(terms[name], value=value, size=sizes)
    return terms


def in_shape(shape: Shape, value: Reals) -> Reals:
    """One element in the shape of an output of one element; larger arrays stay as they are."""
    return value.reshape(shape) if value.size == prod(shape) == 1 else value
