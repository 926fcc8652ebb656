"""Makes written calls, and compares the answers with the written results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npucall.dtypes import AnyArray
from npucall.errors import NpucallError
from npucall.tensors import TensorSpec
from npucall_conformance.cases.arrangements import view
from npucall_conformance.cases.case import WrittenCall, dtype_of
from npucall_conformance.cases.made_call import MadeCall, attributes_of
from npucall_conformance.judging.profiles import CPU_STRICT
from npucall_conformance.judging.tolerance import judge
from npucall_conformance.judging.truth import Expected
from npucall_conformance.stating.arguments import Arguments

if TYPE_CHECKING:
    from npucall.declare.call import Argument
    from npucall_conformance.cases.case import Case
    from npucall_conformance.stating.statement import Statement
    from npucall_conformance.wire import WireAnswer

_COMPLEX = {"COMPLEX64": 2.0**-20, "COMPLEX128": 2.0**-46}
"""How far off a complex result may be, relative to its size."""
_OF_DEVICES = 2.0**-10


def call_of(statement: Statement, case: WrittenCall) -> MadeCall:
    """The call as it is sent."""
    specs = {name: TensorSpec(dtype_of(a), a.shape) for name, a in case.inputs.items()}
    arguments: dict[str, Argument] = {**specs, **attributes_of(statement, case.attributes)}
    order = [each.name for each in statement.parameters if each.name in arguments]
    storages = {name: case.inputs[name].tobytes() for name in order if name in case.inputs}
    named = {name: arguments[name] for name in order}
    return MadeCall(
        statement.operator, statement.variant, named, storages, Arguments({}, {}),
        {statement.outputs[0].name: case.result.shape},
        {statement.outputs[0].name: dtype_of(case.result)},
    )  # fmt: skip


def problems_of(case: Case, answer: WireAnswer | NpucallError, profile: str) -> list[str]:
    """What is wrong with the answer to a written call."""
    written = case.written
    assert written is not None  # noqa: S101  # of the block
    if isinstance(answer, NpucallError):
        return [f"expected an answer, found {answer.reason}: {answer}"]
    name, spec = next(iter(answer.outputs.items()))
    expected = written.result
    if (spec.dtype, spec.shape) != (dtype_of(expected), expected.shape):
        wanted = f"{dtype_of(expected)} {expected.shape}"
        return [f"{name}: expected {wanted}, found {spec.dtype} {spec.shape}"]
    found = view(spec, answer.storages[name])
    problem = _difference(found, expected, written.cost, profile)
    return [f"{name}: {problem}"] if problem else []


def _difference(found: AnyArray, expected: AnyArray, cost: float, profile: str) -> str:
    """What is wrong with an array; empty if nothing is."""
    kind, strict = dtype_of(expected).kind, profile == CPU_STRICT
    if kind == "float" and (cost or not strict):
        return judge(profile, found, _truth(expected, cost)).problem
    with np.errstate(all="ignore"):
        if kind == "complex":
            share = _COMPLEX[dtype_of(expected).name] if strict else _OF_DEVICES
            near = np.abs(found - expected) <= share * np.abs(expected)
        else:
            near = found == expected
        near |= (found != found) & (expected != expected)  # noqa: PLR0124  # NaN
    if near.all():
        return ""
    index = tuple(int(each) for each in np.argwhere(~near)[0])
    place = list(index)
    return (
        f"element {place} is {found[index]!r}, expected {expected[index]!r}, which is written out"
    )


def _truth(expected: AnyArray, cost: float) -> Expected:
    value = expected.astype(np.float64)
    dtype = dtype_of(expected)
    return Expected(value, np.abs(value), 1, dtype, stepwise=False, dtype=dtype, cost=cost or 1.0)
