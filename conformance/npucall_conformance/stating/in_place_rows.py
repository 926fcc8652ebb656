"""What an operator that writes into its input refuses, and which dtypes it has room for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from npucall.declare.parameters import Scalar
from npucall.dtypes import DType
from npucall.errors import DTypeError
from npucall.tensors import Format
from npucall_conformance.stating.arguments import OF_PLAIN
from npucall_conformance.stating.parts import Invalid, Setup
from npucall_conformance.stating.promotion import common_shape, is_room
from npucall_conformance.stating.statement import Statement

SELF, OUT, TWIN = "self", "out", "self_ref"
_BOTH = {SELF, OUT}


def renamed(found: Mapping[str, Any]) -> dict[str, Any]:
    """With the twin's name."""
    return {TWIN if name == SELF else name: each for name, each in found.items()}


def renamed_setup(setup: Setup) -> Setup:
    """A setup of the twin."""
    names = ("shapes", "values", "raw", "dtypes")
    changed: dict[str, Any] = {name: renamed(getattr(setup, name)) for name in names}
    return replace(setup, **changed)


class TwinRows:
    """The error table of a twin, from that of the other operator."""

    _nulls = ({SELF: None}, {OUT: None})

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        (self._result,) = statement.outputs

    def holds(self, setup: Setup) -> bool:
        """Whether ``self`` can hold the result: not where that of integers is a float."""
        own = setup.dtypes.get(SELF, self.statement.dtypes[0])
        return self._has_room(own, setup.dtypes, setup.attributes)

    def holds_own(self, own: DType) -> bool:
        """Whether it can if all inputs have its dtype, and numbers have no fraction."""
        every = {each.name: own for each in self.statement.inputs}
        return self._has_room(own, every, dict.fromkeys(self.statement.attributes, 1))

    def _has_room(
        self, own: DType, dtypes: Mapping[str, DType], numbers: Mapping[str, Any]
    ) -> bool:
        usual = {each.name: self.statement.dtypes[0] for each in self.statement.inputs}
        first = {name: each[0] for name, each in self.statement.attributes.items()}
        given = {name: _dtype_of(each) for name, each in {**first, **numbers}.items()}
        scalars = {name: dtype for name, dtype in given.items() if dtype is not None}
        found = self._result.dtype_in({**usual, **scalars, **dtypes, SELF: own, OUT: own})
        return is_room(found, own)

    def row(self, row: Invalid) -> Invalid | None:
        """None of a defect that is one beside an output of its own."""
        if OUT in {*row.base.dtypes, *row.base.shapes}:
            return None
        if row.changes in self._nulls:
            first = next(each for each in self.statement.invalid if each.changes in self._nulls)
            return replace(row, changes={TWIN: None}, blames=(TWIN,)) if row is first else None
        changes = {name: each for name, each in row.changes.items() if name != OUT}
        blames = tuple(dict.fromkeys(TWIN if name in _BOTH else name for name in row.blames))
        plain = replace(row, changes=renamed(changes), blames=blames, base=renamed_setup(row.base))
        if {*row.blames} - _BOTH:
            return plain
        if OUT not in row.blames and self._is_wrong_alone(row):
            return plain
        return self._beside_others(row, plain)

    def _is_wrong_alone(self, row: Invalid) -> bool:
        """Whether ``self`` is, not only compared with ``out``."""
        own = row.changes.get(SELF, {})
        if OUT in row.changes:
            return SELF in row.changes
        if not isinstance(own, Mapping) or row.block == "rank":
            return True
        if "format" in own:
            return Format(own["format"]).private
        return "dtype" in own and not self._takes(row, own["dtype"])

    def _takes(self, row: Invalid, dtype: DType) -> bool:
        takes = self.statement.takes
        return any(dtype in takes.get(product, ()) for product in row.products or takes)

    def _beside_others(self, row: Invalid, plain: Invalid) -> Invalid | None:
        """What is wrong with ``out`` may be so of ``self``: it cannot hold what others make."""
        changed = {name: each for name, each in row.changes.items() if isinstance(each, Mapping)}
        target = {**changed.get(OUT, {}), **changed.get(SELF, {})}
        if "shape" in target:
            return self._of_shape(row, plain, target["shape"])
        own = target.get("dtype", self.statement.dtypes[0])
        dtypes = {name: each["dtype"] for name, each in changed.items() if "dtype" in each}
        if row.error is not DTypeError or not self._takes(row, own):
            return None
        numbers = {name: each for name, each in row.changes.items() if isinstance(each, Scalar)}
        if self._has_room(own, {**row.base.dtypes, **dtypes}, {**row.base.attributes, **numbers}):
            return None
        changes = {**plain.changes, TWIN: {"dtype": own}} if target else plain.changes
        return replace(plain, changes=changes, blames=(TWIN,))

    def _of_shape(self, row: Invalid, plain: Invalid, shape: tuple[int, ...]) -> Invalid | None:
        space = [name for name in self.statement.space if name != SELF]
        common = common_shape(shape, self.statement.layout_shape)
        if not space or row.block == "rank" or common == shape:
            return None
        blames = (TWIN,) if common else (TWIN, *space)
        return replace(plain, changes={**plain.changes, TWIN: {"shape": shape}}, blames=blames)


def _dtype_of(number: Any) -> DType | None:
    """That of an attribute if it is an aclScalar or an aclDataType, or may be one."""
    if isinstance(number, Scalar):
        return number.dtype
    return number if isinstance(number, DType) else OF_PLAIN.get(type(number))
