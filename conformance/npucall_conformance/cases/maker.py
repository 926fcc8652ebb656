"""Makes a whole case with its id from a setup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from npucall.dtypes import DType
from npucall.tensors import Shape
from npucall_conformance.cases.case import Case, label
from npucall_conformance.stating.parts import Attributes, In, Invalid, Setup
from npucall_conformance.stating.statement import Statement


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
        return bool(self.made >> (index % 3) & 1)


def _own(dtypes: tuple[DType, ...], turn: int, dtype: DType) -> DType:
    return dtypes[turn % len(dtypes)] if dtypes else dtype


def _extents(values: Any) -> Shape:
    if isinstance(values, list | tuple):
        return (len(values), *(_extents(values[0]) if values else ()))
    return tuple(getattr(values, "shape", ()))
