"""Statements of operators that write into their input, from those of the operators beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import dropwhile
from operator import ne
from typing import Any

from npucall.dtypes import DType
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.parts import Invalid, Out, Setup
from npucall_conformance.stating.statement import Statement

_SELF, _OUT, _TWIN = "self", "out", "self_ref"


def in_place(statement: Statement) -> Statement:
    """Of an elementwise operator of ``self`` and ``out`` that has no other tensors."""
    (given,), (result,) = statement.inputs, statement.outputs
    declared = [p for p in statement.parameters if p.name not in (_SELF, _OUT)]
    kernel = statement.kernel
    torch, cost = statement.torch, statement.cost
    holds = _holds(result)

    def fits(dtype: DType) -> bool:
        return holds(Setup(dtypes={_SELF: dtype}))

    rows = {row.row: _row(row, statement) for row in statement.invalid}
    behind = dropwhile(partial(ne, statement.empty_before), rows)
    setups: dict[str, Any] = {
        name: tuple(filter(None, map(_setup, filter(holds, getattr(statement, name)))))
        for name in ("mixed", "edges", "empty", "reductions", "halfway", "large", "broadcast")
    }
    return replace(
        statement,
        operator=statement.operator.replace("aclnn", "aclnnInplace"),
        takes={product: tuple(filter(fits, each)) for product, each in statement.takes.items()},
        inputs=(replace(given, name=_TWIN, updated=True),),
        outputs=(replace(result, name=_TWIN, shape=_TWIN, dtype=_TWIN),),
        prototype=", ".join(["aclTensor* selfRef", *(f"{p.c_type} {p.c_name}" for p in declared)]),
        loops=lambda k: {_TWIN: statement.loops(_plain(k))},
        arrays=lambda k: {_TWIN: _terms(statement.arrays(_plain(k)))},
        kernel=lambda dtypes: kernel(_with_both(dtypes)),
        cost=(lambda k: cost(_plain(k))) if callable(cost) else cost,
        faint=lambda k: tuple(_TWIN for _ in statement.faint(_plain(k))),
        torch=torch and (lambda k, module: torch(_plain(k), module)),
        npu="torch_npu calls it for torch's function with an underscore; the suite calls the other",
        space=(),
        **setups,
        written=(),
        contradictions=(),
        invalid=tuple(filter(None, rows.values())),
        empty_before=next(filter(rows.get, behind), ""),
    )


def _plain(k: Arguments) -> Arguments:
    """The same call of the other operator."""
    return replace(k, values=_with_both(k.values), dtypes=_with_both(k.dtypes))


def _with_both(found: Mapping[str, Any]) -> dict[str, Any]:
    return {**found, **dict.fromkeys((_SELF, _OUT), found.get(_TWIN))}


def _terms(answer: Any) -> Terms:
    found: Terms = answer if isinstance(answer, Terms) else next(iter(answer.values()))
    return found


def _holds(result: Out) -> Callable[[Setup], bool]:
    """Whether ``self`` can hold the result: not where that of integers is a float."""

    def holds(setup: Setup) -> bool:
        own = setup.dtypes.get(_SELF)
        return own is None or result.dtype_in({_OUT: own, **setup.dtypes}) is own

    return holds


def _setup(setup: Setup) -> Setup | None:
    """None of one that is about an output of its own."""
    if _OUT in {*setup.dtypes, *setup.shapes}:
        return None
    names = ("shapes", "values", "raw", "dtypes")
    changed: dict[str, Any] = {name: _renamed(getattr(setup, name)) for name in names}
    return replace(setup, **changed)


def _renamed(found: Mapping[str, Any]) -> dict[str, Any]:
    return {_TWIN if name == _SELF else name: each for name, each in found.items()}


def _row(row: Invalid, statement: Statement) -> Invalid | None:
    """None of a defect that is one beside an output of its own."""
    dtype = _not_held(row, statement)
    if dtype is not None:
        return replace(row, changes={_TWIN: {"dtype": dtype}}, blames=(_TWIN,))
    own = row.changes.get(_SELF)
    own = own if isinstance(own, Mapping) else {}
    taken = (statement.takes.get(each, ()) for each in row.products or statement.takes)
    fits = "format" in own and _OUT not in row.changes
    fits = fits or ("shape" in own and row.block != "rank")
    fits = fits or any(own.get("dtype") in dtypes for dtypes in taken)
    if fits or (_OUT in row.changes and _SELF not in row.changes) or row.blames == (_OUT,):
        return None
    changes = {name: each for name, each in row.changes.items() if name != _OUT}
    base = _setup(row.base)
    blames = tuple(dict.fromkeys(_TWIN if n in (_SELF, _OUT) else n for n in row.blames))
    if base is None:
        return None
    return replace(row, changes=_renamed(changes), blames=blames, base=base)


def _not_held(row: Invalid, statement: Statement) -> DType | None:
    """The dtype of an output that ``self`` cannot have either: results of it have another one."""
    changed = row.changes.get(_OUT)
    dtype = changed.get("dtype") if isinstance(changed, Mapping) and len(row.changes) == 1 else None
    if dtype is None or _holds(statement.outputs[0])(Setup(dtypes={_SELF: dtype})):
        return None
    return dtype
