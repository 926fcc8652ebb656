"""A case in words, and the id that follows from them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from npucall_conformance.fuzz.layouts import Strided
from npucall_conformance.fuzz.numbers import Sprinkled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_conformance.cases.case import Case

_DIGITS = 10
"""So many digits in an id, so that two cases of a run hardly ever have the same id."""


def words(case: Case) -> str:
    """The whole case in words: tensors with dtype, shape, layout, marks; attributes; defects."""
    return "; ".join(_words(case))


def named(case: Case) -> str:
    """The id of a case: the same words have the same id."""
    digest = sha256(f"{case.data}; {words(case)}".encode()).hexdigest()[:_DIGITS]
    kinds = "+".join(dict.fromkeys(each.short for each in case.dtypes.values())) or case.dtype.short
    return f"{case.statement.title}/fuzz/{kinds}-{digest}"


def _words(case: Case) -> Iterator[str]:
    domains = {each.name: each.domain for each in case.statement.inputs}
    for name, shape in case.shapes.items():
        yield f"{name} {case.dtypes[name].short} {list(shape)}{_placed(case, name)}" + _marked(
            domains[name]
        )
        if name in case.setup.values:
            yield f"{name} of a setup {case.setup.note}"
    for name, dtype in case.outputs.items():
        extents = case.setup.shapes.get(name)
        said = [dtype.short if dtype else "", "" if extents is None else str(list(extents))]
        yield f"{name} given {' '.join(filter(None, said))}".rstrip() + _placed(case, name)
    yield from (f"{name}={value!r}" for name, value in case.attributes.items())
    if case.defects:
        yield f"defects {', '.join(row.row for row in case.defects)}"


def _placed(case: Case, name: str) -> str:
    layout: Any = case.layouts.get(name)
    if not isinstance(layout, Strided):
        return ""
    said = [f"{key} {value}" for key, value in vars(layout).items() if value and _any(value)]
    return f" ({', '.join(said)})"


def _any(value: Any) -> bool:
    return any(value) if isinstance(value, tuple) else bool(value)


def _marked(domain: Any) -> str:
    if not isinstance(domain, Sprinkled):
        return ""
    scaled = [f"numbers times 2^{domain.power}"] if domain.power else []
    marks = [f"{number!r} at {place}" for place, number in domain.marks]
    return f" with {', '.join([*scaled, *marks])}" if marks or scaled else ""
