"""A case: it describes one call, and its id finds the call again; ``Maker`` makes cases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import DType
from npucall.tensors import Shape
from npucall_conformance.cases.arrangements import Arrangement
from npucall_conformance.stating.parts import Attributes, Contradiction, In, Invalid, Setup
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.written import WrittenCall

FUZZ = "fuzz"
"""The block of drawn calls. Any text of an id finds a call again, whether a run has it or not."""

_REDUCTIONS = ("none", "mean", "sum", "batchmean")
_LISTED = 4
"""For a longer list, an id has this many of its numbers, and says how many more there are."""


class Marks(NamedTuple):
    """Special elements of a tensor; all others are multiplied."""

    numbers: tuple[tuple[int, float], ...] = ()
    """Positions among the elements, which wrap around at the end, and the values there."""
    power: int = 0
    """All others are multiplied by 2 to that power."""
    alike: bool = False
    """All rows are like the first, so that the errors of a sum of them have the same sign."""

    def put(self, drawn: Any) -> Any:
        """The numbers that were drawn, with the special ones among them."""
        found = np.array(drawn, np.float64) * 2.0**self.power
        if self.alike and found.ndim and found.size:
            found[...] = found[(0,) * (found.ndim - 1)]
        flat = found.reshape(-1)
        for place, number in self.numbers if flat.size else ():
            flat[place % flat.size] = number
        return flat.reshape(found.shape)


@dataclass(frozen=True, eq=False)
class Case:
    """One call without its data, which are made from the seed and the id."""

    id: str
    """``aclnnKlDivBackward/grid/f32-mean-4x6-0007``."""
    statement: Statement
    block: str
    dtype: DType
    """Reports count the case under this dtype; tensors may have others."""
    dtypes: Mapping[str, DType]
    """Dtypes of the inputs that are given."""
    shapes: Mapping[str, Shape]
    """Shapes of the inputs that are given, in the operator's order."""
    attributes: Mapping[str, Any]
    outputs: Mapping[str, DType | None] = field(default_factory=dict)
    """Outputs that are given, with their dtypes; None: the dtype that the output has by default."""
    layouts: Mapping[str, Arrangement] = field(default_factory=dict)
    setup: Setup = field(default_factory=Setup)
    defects: tuple[Invalid, ...] = ()
    """The defects of the call; the first must be found."""
    contradiction: Contradiction | None = None
    unsent: tuple[str, ...] = ()
    """Outputs with gaps whose storage is not sent, so that only their elements come back."""
    products: tuple[str, ...] = ()
    """Short SoC names that it is for; empty: all."""
    unnamed: bool = False
    """The call names no variant: it is for servers whose default is the statement's."""
    telling: bool = False
    """It can find more errors than its neighbours, so that quick runs begin with it."""
    written: WrittenCall | None = None
    """The call and its results, if they are written out."""
    marks: Mapping[str, Marks] = field(default_factory=dict)
    """Special numbers among those that are drawn for an input."""
    data: str = ""
    """Cases with the same text here have the same numbers in tensors of the same shape; empty: no
    other case has the same numbers."""


def label(dtype: str, attributes: Mapping[str, Any], shape: Shape | None, note: str) -> str:
    """The readable part of an id."""
    parts = [dtype, *(_named(name, value) for name, value in attributes.items())]
    if shape is not None:
        parts.append("x".join(map(str, shape)) or "scalar")
    return "-".join(filter(None, [*parts, note]))


def _named(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else ""
    if name == "reduction" and isinstance(value, int) and 0 <= value < len(_REDUCTIONS):
        return _REDUCTIONS[value]
    if value is None:
        return f"no_{name}"
    if isinstance(value, Scalar):
        return f"{name}{_clean(value.value)}{value.dtype.short}"
    if isinstance(value, list | tuple) and len(value) > _LISTED:
        return f"{name}{_clean(list(value[:_LISTED]))}_and{len(value) - _LISTED}"
    return _clean(value) if isinstance(value, str) else f"{name}{_clean(value)}"


def _clean(value: Any) -> str:
    return _cleaned(str(value))


@lru_cache(1024)
def _cleaned(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z.]+", "_", text.replace("-", "m")).strip("_")


@dataclass
class Maker:
    """Makes the cases of one block, numbering them."""

    statement: Statement
    block: str
    made: int = 0
    turn: int = 0

    def case(
        self,
        dtype: DType,
        setup: Setup = Setup(),  # noqa: B008  # frozen
        attributes: Attributes | None = None,
        *,
        note: str = "",
        outputs: bool = False,
        **more: Any,
    ) -> Case:
        """A case: ``attributes`` None takes the next combination; ``more`` are fields of it."""
        statement = self.statement
        chosen = {**(self._next() if attributes is None else attributes), **setup.attributes}
        base = statement.layout_shape if setup.base is None else setup.base
        settled = {
            name: value(base) if callable(value) else value
            for name, value in chosen.items()
            if name not in setup.left_out
        }
        shapes = self._shapes(setup, base, {**statement.defaults, **settled})
        dtypes = {
            each.name: setup.dtypes.get(each.name) or _own(each.dtypes, self.made, dtype)
            for each in statement.inputs
            if each.name in shapes
        }
        given: dict[str, DType | None] = {
            name: setup.dtypes.get(name)
            for name in self.outputs
            if outputs or name in setup.dtypes or name in setup.shapes
        }
        some = dtypes.values() if setup.dtypes else [dtype]
        kinds = list(dict.fromkeys(each.short for each in some))
        kinds += [each.short for each in given.values() if each is not None]
        self.made += 1
        text = label("+".join(kinds), settled, base, note or setup.note)
        case_id = f"{statement.title}/{self.block}/{text}-{self.made:04}"
        fields = {"products": setup.products, "telling": setup.telling, **more}
        return Case(
            case_id, statement, self.block, dtype, dtypes, shapes, settled, given,
            setup=setup, **fields,
        )  # fmt: skip

    def wrong(self, note: str, *defects: Invalid, outputs: bool = True, **more: Any) -> Case:
        """The valid call with these defects; optional inputs, and maybe all outputs, are given."""
        bases = [each.base for each in defects if each.base != Setup()]
        setup = bases[-1] if bases else Setup()
        setup = replace(setup, absent=setup.absent or ("",))
        more.setdefault("products", tuple({p: None for d in defects for p in d.products}))
        dtype, attributes = self.statement.dtypes[0], self.first(setup)
        return self.case(
            dtype, setup, attributes, note=note, outputs=outputs, defects=defects, **more
        )

    def refused(self) -> Iterator[Case]:
        """The rows of the error table that belong to this block."""
        return (
            self.wrong(row.row, row) for row in self.statement.invalid if row.block == self.block
        )

    def sampled(self, setups: Iterable[Setup], dtypes: tuple[DType, ...]) -> Iterator[Case]:
        """Every setup with every dtype; attributes are taken in turn."""
        for setup, dtype in product(setups, dtypes):
            if not setup.only or dtype in setup.only:
                yield self.case(dtype, setup)

    @property
    def inputs(self) -> list[str]:
        """The names of all inputs."""
        return [each.name for each in self.statement.inputs]

    @property
    def outputs(self) -> list[str]:
        """The names of all outputs."""
        return [each.name for each in self.statement.outputs]

    @property
    def names(self) -> list[str]:
        """The names of all tensors."""
        return [*self.inputs, *self.outputs]

    @cached_property
    def combinations(self) -> list[dict[str, Any]]:
        """Every combination of the statement's attributes."""
        return self.others({})

    def others(self, said: Attributes) -> list[dict[str, Any]]:
        """Every combination of the attributes that a setup does not give."""
        grid = {n: v for n, v in self.statement.attributes.items() if n not in said}
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

    def first(self, setup: Setup) -> dict[str, Any]:
        """The first combination, with the attributes that a setup gives."""
        return {**self.combinations[0], **setup.attributes}

    def _next(self) -> dict[str, Any]:
        """The next of the statement's combinations of attributes.

        Each round begins one further, so that no dtype always gets the same combinations.
        """
        every = self.combinations
        rounds, place = divmod(self.turn, len(every))
        self.turn += 1
        return every[(place + rounds) % len(every)]

    def _shapes(self, setup: Setup, base: Shape, attributes: Attributes) -> dict[str, Shape]:
        shapes = self.statement.input_shapes(base, attributes)
        given = {name: setup.shapes[name] for name in shapes.keys() & setup.shapes.keys()}
        known = shapes | given | {name: _extents(value) for name, value in setup.values.items()}
        return {
            each.name: known[each.name]
            for index, each in enumerate(self.statement.inputs)
            if not (each.optional and self._left_out(each, index, setup))
        }

    def _left_out(self, each: In, index: int, setup: Setup) -> bool:
        if each.beside:
            index = self.inputs.index(each.beside)
            each = self.statement.inputs[index]
        name = each.name
        said = name in setup.shapes or name in setup.values or name in setup.dtypes
        if each.refused:
            return not said
        if setup.absent or said:
            return name in setup.absent
        if each.instead:
            place = self.inputs.index(each.instead)
            return not self._left_out(self.statement.inputs[place], place, setup)
        return bool(self.made >> (index % 3) & 1)


def _own(dtypes: tuple[DType, ...], turn: int, dtype: DType) -> DType:
    return dtypes[turn % len(dtypes)] if dtypes else dtype


def _extents(values: Any) -> Shape:
    if isinstance(values, list | tuple):
        return (len(values), *(_extents(values[0]) if values else ()))
    return tuple(getattr(values, "shape", ()))
