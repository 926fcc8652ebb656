"""Second opinions on the truth: the loops of a statement, torch; and whether zeros would pass."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from npucall_conformance.cases.case import Case
from npucall_conformance.cases.made_call import MadeCall, call_of
from npucall_conformance.judging.profiles import coarser, standard
from npucall_conformance.judging.truth import Expected, expected, in_shape
from npucall_conformance.stating.arguments import Arguments, wide
from npucall_conformance.stating.promotion import common_shape
from npucall_conformance.stating.statement import Statement

LOOPED = 4096
"""Loops, which take longer than arrays, are asked up to so many elements."""
AGREE = 2.0**-36
"""How far float64 opinions may differ, relative to the size of the terms."""
MANY = 16
"""With so many elements in each input, it is no chance if all results are small."""


def contradictions(case: Case, seed: int) -> list[str]:
    """Where the loops of a case's statement say something else than its arrays."""
    call = call_of(case, seed)
    if case.setup.filled is not None or not any(map(prod, call.shapes.values())):
        return []
    if elements(call) > LOOPED:
        return []
    with np.errstate(all="ignore"):
        return differing(case.statement, call, case.statement.loops(call.given))


def of_torch(statement: Statement, call: MadeCall) -> list[str]:
    """Where torch says something else than a statement's arrays."""
    import torch

    if statement.torch is None:
        return []
    values = {
        name: torch.from_numpy(np.array(value)) if isinstance(value, TENSORS) else value
        for name, value in call.given.values.items()
    }
    answer = statement.torch(replace(call.given, values=values), torch)
    if answer is None:
        return []
    named = answer if isinstance(answer, dict) else {statement.outputs[0].name: answer}
    return differing(statement, call, {n: each.detach().numpy() for n, each in named.items()})


TENSORS = (np.ndarray, np.floating)
"""NumPy's arithmetic turns arrays without dimensions into numbers."""


def elements(call: MadeCall) -> int:
    """How many elements loops compute: those of the largest tensor, or of the broadcast shape."""
    inputs: list[Any] = [v.shape for v in call.given.values.values() if isinstance(v, np.ndarray)]
    return max(map(prod, [*inputs, *call.shapes.values(), common_shape(*inputs) or ()]))


def differing(statement: Statement, call: MadeCall, answer: Any) -> list[str]:
    """The outputs of another opinion that are not those of the statement's arrays."""
    named = answer if isinstance(answer, dict) else {statement.outputs[0].name: answer}
    truth = expected(statement, call)
    return [
        f"{name}: {value}, and by arrays {truth[name].value}"
        for name, value in named.items()
        if name in truth and not agrees(in_shape(call.shapes[name], wide(value)), truth[name])
    ]


def agrees(one: Any, truth: Expected) -> bool:
    other = truth.value
    if one.shape != other.shape:
        return False
    with np.errstate(all="ignore"):
        most = AGREE * np.fmax(truth.size, np.abs(other)) + 2.0**-1000
        near = np.abs(one - other) <= most
    return bool((near | (one == other) | (np.isnan(one) & np.isnan(other))).all())


def faint(case: Case, given: Arguments, truth: dict[str, Expected]) -> list[str]:
    """The outputs of a call of drawn numbers for which zeros would pass on a device."""
    few = min(map(prod, case.shapes.values())) < MANY
    if case.setup.values or case.setup.filled is not None or few:
        return []
    zero = case.statement.faint(given)
    return [name for name, one in truth.items() if name not in zero and is_faint(one)]


def is_faint(truth: Expected) -> bool:
    """Whether zeros would pass, since the tolerance is as large as the output."""
    value = truth.value
    if not value.size:
        return False
    if truth.dtype.kind != "float":
        return not value.any()
    with np.errstate(all="ignore"):
        relative, absolute, _ = standard(coarser(truth))
        seen = np.abs(value) > absolute + relative * np.maximum(np.abs(value), truth.size)
        return not (seen | ~np.isfinite(value)).any()
