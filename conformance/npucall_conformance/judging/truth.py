"""The right answer to a call: by the statement's loops, its arrays, and maybe torch [src:torch].

Up to ``LOOPED`` elements the scalar loops give the truth, for more elements the arrays do. If these
opinions differ, ``TruthError`` is raised: the statement is wrong, whatever the server answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import COMPLEX64, COMPLEX128, DOUBLE, FLOAT16, AnyArray, DType
from npucall.tensors import Shape
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.stating.arguments import FLOAT_INSIDE, Arguments, Reals, Terms, wide
from npucall_conformance.stating.promotion import common_shape
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.written import WrittenCall, dtype_of

LOOPED = 4096
"""Up to so many elements, scalar loops compute every element."""
_TENSORS = (np.ndarray, np.floating)
"""The types of tensors: NumPy's arithmetic turns arrays without dimensions into numbers."""
_AGREE = 2.0**-36
"""How far float64 opinions may differ, relative to the size of the terms."""


class TruthError(Exception):
    """Two statements of the same operator differ."""


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
    statement: Statement,
    call: MadeCall,
    *,
    filled: float | None = None,
    loops: bool = True,
    torch: bool = False,
) -> dict[str, Expected]:
    """The truth by output; ``filled``: the value that fills outputs, if nothing is computed.

    ``loops`` and ``torch``: whether to compute by them too.

    Raises TruthError.
    """
    given = call.given
    with np.errstate(all="ignore"):
        if filled is None:
            opinions = _opinions(statement, call, loops=loops, torch=torch)
        else:
            opinions = _filled(call, filled)
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


def _opinions(
    statement: Statement, call: MadeCall, *, loops: bool, torch: bool
) -> dict[str, Terms]:
    if not any(prod(shape) for shape in call.shapes.values()):
        return _filled(call, 0.0)
    terms = {name: one for name, one in statement.terms(call.given).items() if name in call.shapes}
    for name, shape in call.shapes.items():
        value, sizes = (_in_shape(shape, each) for each in (terms[name].value, terms[name].sizes))
        terms[name] = replace(terms[name], value=value, size=sizes)
        if value.shape != shape:
            raise TruthError(f"{name}: arrays answer shape {value.shape}, not {shape}")
    if loops and _elements(call) <= LOOPED:
        looped = _by_output(statement, call, statement.loops(call.given))
        for name, value in looped.items():
            _compare(name, "loops", value, "arrays", terms[name])
            terms[name] = replace(terms[name], value=value, size=terms[name].sizes)
    if torch and statement.torch is not None and find_spec("torch"):
        for name, value in _torch(statement, call.given).items():
            if name in call.shapes:
                _compare(name, "torch", value, "the statement", terms[name])
    return terms


def _elements(call: MadeCall) -> int:
    """How many elements loops compute: those of the largest tensor, or of the broadcast shape."""
    inputs: list[Shape] = [v.shape for v in call.given.values.values() if isinstance(v, np.ndarray)]
    return max(map(prod, [*inputs, *call.shapes.values(), common_shape(*inputs) or ()]))


def _in_shape(shape: Shape, value: Reals) -> Reals:
    """One element in the shape of an output of one element; larger arrays stay as they are."""
    return value.reshape(shape) if value.size == prod(shape) == 1 else value


def _by_output(statement: Statement, call: MadeCall, answer: Any) -> dict[str, Reals]:
    named: Mapping[str, Any] = (
        answer if isinstance(answer, dict) else {statement.outputs[0].name: answer}
    )
    return {
        name: _in_shape(call.shapes[name], wide(value))
        for name, value in named.items()
        if name in call.shapes
    }


def _torch(statement: Statement, given: Arguments) -> dict[str, Reals]:
    import torch  # noqa: PLC0415  # takes seconds, and is optional

    if statement.torch is None:
        return {}
    values = {
        name: torch.from_numpy(np.array(value)) if isinstance(value, _TENSORS) else value
        for name, value in given.values.items()
    }
    answer = statement.torch(replace(given, values=values), torch)
    if answer is None:
        return {}
    named = answer if isinstance(answer, dict) else {statement.outputs[0].name: answer}
    return {name: tensor.detach().numpy() for name, tensor in named.items()}


def _compare(name: str, first: str, one: Reals, second: str, terms: Terms) -> None:
    other = terms.value
    if one.shape != other.shape:
        raise TruthError(f"{name}: {first} answer shape {one.shape}, {second} {other.shape}")
    near = np.abs(one - other) <= _AGREE * np.fmax(terms.sizes, np.abs(other)) + 2.0**-1000
    wrong = ~(near | (one == other) | (np.isnan(one) & np.isnan(other)))
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise TruthError(
            f"{name}{list(index)}: {first} answer {one[index].item()!r}, "
            f"{second} {other[index].item()!r}"
        )
