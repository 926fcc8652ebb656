"""Statements of operators that write into their input, from those of the operators beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import dropwhile
from operator import ne
from typing import Any

import numpy as np

from npucall.errors import ArgumentMissingError, ShapeError
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw
from npucall_conformance.stating.in_place_rows import (
    OUT,
    SELF,
    TWIN,
    TwinRows,
    renamed,
    renamed_setup,
)
from npucall_conformance.stating.parts import In, Invalid, Setup
from npucall_conformance.stating.promotion import common_shape
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.written import WrittenCall

_SETUPS = ("mixed", "edges", "empty", "reductions", "halfway", "large", "broadcast")


def in_place(statement: Statement, *, shapes_first: bool = False, const: bool = False) -> Statement:
    """Of an operator of ``self``, other inputs and ``out``.

    ``shapes_first``: shapes are checked right behind null pointers. ``const``: the C prototype says
    so of the tensor, although it is written.
    """
    (result,), rules = statement.outputs, TwinRows(statement)
    declared = [p for p in statement.parameters if p.name not in (SELF, OUT)]
    kernel, shapes = statement.kernel, statement.shapes
    torch, cost = statement.torch, statement.cost
    rows = {row.row: rules.row(row) for row in statement.invalid}
    behind = dropwhile(partial(ne, statement.empty_before), rows)
    setups: dict[str, Any] = {
        name: tuple(map(renamed_setup, filter(_stays(rules), getattr(statement, name))))
        for name in _SETUPS
    }
    return replace(
        statement,
        operator=statement.operator.replace("aclnn", "aclnnInplace"),
        takes={
            product: tuple(filter(rules.holds_own, each))
            for product, each in statement.takes.items()
        },
        inputs=tuple(map(_input, statement.inputs)),
        outputs=(replace(result, name=TWIN, shape=TWIN, dtype=TWIN),),
        prototype=", ".join(
            ["const " * const + "aclTensor* selfRef", *(f"{p.c_type} {p.c_name}" for p in declared)]
        ),
        loops=lambda k: {TWIN: statement.loops(_plain(k))},
        arrays=lambda k: {TWIN: _terms(statement.arrays(_plain(k)))},
        kernel=lambda dtypes: kernel(_with_both(dtypes)),
        cost=(lambda k: cost(_plain(k))) if callable(cost) else cost,
        faint=lambda k: tuple(TWIN for _ in statement.faint(_plain(k))),
        torch=torch and (lambda k, module: torch(_plain(k), module)),
        npu="torch_npu calls it for torch's function with an underscore; the suite calls the other",
        shapes=shapes and (lambda base, attributes: renamed(shapes(base, attributes))),
        space=(),
        expands=(*(each for each in statement.space if each != SELF), *statement.expands),
        **setups,
        written=tuple(map(_written, filter(_is_kept, statement.written))),
        contradictions=(),
        invalid=_sorted(filter(None, rows.values()), shapes_first=shapes_first),
        empty_before=next(filter(rows.get, behind), ""),
    )


def _sorted(rows: Iterable[Invalid], *, shapes_first: bool) -> tuple[Invalid, ...]:
    """In the order of the checks."""

    def place(row: Invalid) -> int:
        return 0 if row.error is ArgumentMissingError else 1 if row.error is ShapeError else 2

    return tuple(sorted(rows, key=place) if shapes_first else rows)


def _input(given: In) -> In:
    """Of a twin; numbers of another input may follow from ``self``."""
    if given.name == SELF:
        return replace(given, name=TWIN, updated=True)
    return replace(given, domain=lambda draw: given.domain(_plain_draw(draw)))


def _plain_draw(draw: Draw) -> Draw:
    return replace(draw, earlier=_with_both(draw.earlier), shapes=_with_both(draw.shapes))


def _plain(k: Arguments) -> Arguments:
    """The same call of the other operator."""
    return replace(k, values=_with_both(k.values), dtypes=_with_both(k.dtypes))


def _with_both(found: Mapping[str, Any]) -> dict[str, Any]:
    return {**found, **dict.fromkeys((SELF, OUT), found.get(TWIN))}


def _terms(answer: Any) -> Terms:
    found: Terms = answer if isinstance(answer, Terms) else next(iter(answer.values()))
    return found


def _stays(rules: TwinRows) -> Callable[[Setup], bool]:
    """Whether a setup has no output of its own, and ``self`` can hold the result."""

    def fits(setup: Setup) -> bool:
        shapes = {**{n: np.shape(v) for n, v in setup.values.items()}, **setup.shapes}
        found = [shapes.get(name, setup.base) for name in (SELF, *rules.statement.space)]
        known = [each for each in found if each is not None]
        holds = not known or common_shape(*known) == known[0]
        return holds and OUT not in {*setup.dtypes, *setup.shapes} and rules.holds(setup)

    return fits


def _is_kept(call: WrittenCall) -> bool:
    """Whether ``self`` can hold the results."""
    own, (result,) = call.inputs[SELF], call.results
    return bool(own.dtype == result.dtype and own.shape == result.shape)


def _written(call: WrittenCall) -> WrittenCall:
    return replace(call, inputs=renamed(call.inputs))
