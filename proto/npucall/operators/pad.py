"""Planes get edges made of their own cells; and the gradients of that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Operator,
    Output,
    Parameter,
    Sample,
    at_once,
    operator,
    rules,
)
from npucall.declare.draft import Draft
from npucall.declare.families import formula_of, snake
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOATS,
    HALF_AND_SINGLE,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    DType,
)
from npucall.errors import AttributeValueError
from npucall.operators._interpolation import Weighted
from npucall.operators._weighted_sums import summed
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950, Product
from npucall.tensors import Shape

TEXTS = {
    "Reflection": "Beyond an edge the cells before it come again, in the other direction, without "
    "the one at the edge: cell -1 is cell 1.",
    "Replication": "Beyond an edge the cell at the edge comes again.",
    "Circular": "Beyond an edge the cells from the other edge on come again.",
}
_LONGEST = 7
"""Of an edge of BF16, along two axes."""


class _Row(NamedTuple):
    """An operator of the family."""

    name: str
    products: Mapping[Product, tuple[DType, ...]]

    @property
    def axes(self) -> int:
        """How many axes get edges."""
        (count,) = re.findall(r"(\d)d", self.name)
        return int(count)

    @property
    def kind(self) -> str:
        """What edges are made of."""
        return next(kind for kind in TEXTS if kind in self.name)

    @property
    def backward(self) -> bool:
        """Whether it is a gradient."""
        return self.name.endswith("Backward")

    @property
    def flat(self) -> bool:
        """Whether there are at most two axes."""
        return "3d" not in self.name

    @property
    def short(self) -> bool:
        """Whether edges of BF16 have a limit."""
        return self.name.endswith("Pad2dBackward") and self.kind != "Circular"

    @property
    def names(self) -> tuple[str, str]:
        """What it reads, and what it gives."""
        return ("grad_output", "grad_input") if self.backward else ("self", "out")

    def places(self, size: int, edges: tuple[int, int]) -> AnyArray:
        """The cell that each cell of an axis with edges is."""
        places = np.arange(-edges[0], size + edges[1])
        if self.kind == "Circular":
            return places % max(size, 1)
        if self.kind == "Reflection":
            places = np.abs(places)
            places = np.minimum(places, 2 * size - 2 - places)
        return places  # beyond the ends is the cell at the end


def _edges(padding: tuple[int, ...]) -> list[tuple[int, int]]:
    """Before and behind each axis; ``padding`` begins with the last one."""
    pairs = zip(padding[::2], padding[1::2], strict=True)
    return [*pairs][::-1]


def _padded(shape: Shape, padding: tuple[int, ...]) -> Shape:
    """The shape of planes with edges."""
    edges = [(0, 0)] * (len(shape) - len(padding) // 2) + _edges(padding)
    return tuple(size + sum(pair) for size, pair in zip(shape, edges, strict=True))


def declared(name: str, products: Mapping[Product, tuple[DType, ...]]) -> Operator[..., Any]:
    """The operator of a row."""
    row = _Row(f"aclnn{name}", products)
    given, output = row.names
    planes = "the planes, (N, C, ...) or (C, ...)"
    more = "; ".join(("left, right", "top, bottom", "front, back")[: row.axes])
    parameters: tuple[Parameter, ...] = (
        *[Input(given, "gradient of the planes with edges")][: row.backward],
        Input("self", planes, read=not row.backward),
        Attribute("padding", Kind.INT_ARRAY, f"cells of each edge: {more}"),
        Output(output, *_made(row), format="self"),
    )

    def formula(facts: Facts, call: Mapping[str, Any]) -> AnyArray:
        sums = []
        sizes = facts.shapes["self"][-row.axes :]
        for size, edges in zip(sizes, _edges(call["padding"]), strict=True):
            found = Weighted.uniform(size, row.places(size, edges)[:, np.newaxis])
            sums.append(found.transposed(size) if row.backward else found)
        return summed(facts, call[given], sums, output)

    shape = (2, *(3,) * row.axes)
    shapes: dict[str, Shape] = {"self": shape}
    if row.backward:
        shapes[given] = _padded(shape, (1,) * 2 * row.axes)
    return operator(
        row.name,
        *parameters,
        area="images",
        torch="nn.functional.pad",
        products=products,
        checks=_checks(row),
        kernel_dtype=rules.dtype_of("self"),
        over=at_once(holds=lambda facts, _: 64 * sum(facts.shapes["padded"][-row.axes :])),
        sample=Sample(shapes, attributes={"padding": [1] * 2 * row.axes}),
        source=f"ops-math conversion: page {row.name}, its checks [src:pad]",
    )(formula_of(row.name, parameters, {}, formula, _text(row)))


def _made(row: _Row) -> tuple[str, str, str]:
    if row.backward:
        return "gradient of the planes", "self", "self"
    return "planes with edges", "padded", "self"


def _text(row: _Row) -> str:
    """The docstring of an operator."""
    if row.backward:
        forward = snake(row.name.removesuffix("Backward"))
        title = f"Gradient of ``{forward}``: each cell gets the sum over all that it came to be."
    else:
        title = f"Planes with edges along {row.axes} axes, made of their own cells."
        title = title.replace("1 axes", "an axis")
    notes = "Sums are taken in float32, of 64 terms or more in float64, and rounded once. "
    if row.short:
        notes += f"Edges of BF16 have at most {_LONGEST} cells, but for left and right alone. "
    text = f"{TEXTS[row.kind]} {notes if row.backward else 'Nothing is rounded.'}".strip()
    torch = f"As ``aten.{snake(row.name)}`` in torch."
    if row.kind == "Circular":
        torch = 'As ``pad`` with ``mode="circular"`` in torch.'
    return "\n\n".join([title, fill(text, 96), torch])


def _checks(row: _Row) -> tuple[rules.Rule, ...]:
    """Null, dtypes, formats, dimensions, edges, shapes, cells."""
    given, output = row.names
    tensors = dict.fromkeys((given, "self", output))
    same = [rules.same_dtype(*[name for name in tensors if name != "self"], as_="self")]
    first = row.axes + 1
    return (
        rules.present(*dict.fromkeys((given, "self")), "padding", output),
        rules.supported(*tensors),
        *same,
        rules.public_format(*tensors),
        *(rules.same_format(name, "self") for name in tensors if name != "self"),
        *([rules.same_shape(output, "self")] if row.backward else ()),
        rules.rank_is("self", first, first + 1),
        *([rules.same_rank(given, as_="self")] if row.backward else ()),
        rules.value_fits(
            f"{2 * row.axes} numbers", "padding", lambda value: len(value) == 2 * row.axes
        ),
        *_limits(row),
        rules.shape_of("self", into="padded", make=_whole),
        *([] if row.kind == "Circular" else [_LEAVES_CELLS]),
        rules.same_shape(given if row.backward else output, "padded", "that of self with edges"),
        rules.requires(
            "planes with cells",
            "self",
            holds=lambda draft: _has_cells(row, draft.shape("self")),
            found=lambda draft: f"shape {draft.shape('self')}",
        ),
        rules.succeed_if_empty("self"),
    )


_LEAVES_CELLS = rules.requires(
    "edges that leave cells",
    "padding",
    holds=lambda draft: min(draft.shape("padded")) >= 0,
    found=lambda draft: draft.attribute("padding"),
    error=AttributeValueError,
)
"""Circular edges are not negative."""


def _whole(draft: Draft) -> Shape:
    return _padded(draft.shape("self"), draft.attribute("padding"))


def _has_cells(row: _Row, shape: Shape) -> bool:
    """Whether no axis is empty but the first, if that may be."""
    images = len(shape) == row.axes + 2
    lenient = row.kind != "Replication" and row.flat
    return 0 not in shape[images or lenient :]


def _limits(row: _Row) -> tuple[rules.Rule, ...]:
    """How long edges may be."""

    def short(draft: Draft) -> bool:
        """As the device wants edges of BF16."""
        if draft.dtype("self") is not BF16:
            return True
        padding = draft.attribute("padding")
        return not any(padding[2:]) or all(0 <= edge <= _LONGEST for edge in padding)

    def shorter(draft: Draft) -> bool:
        sizes = draft.shape("self")[-row.axes :]
        edges = zip(sizes, _edges(draft.attribute("padding")), strict=True)
        if row.kind == "Circular" and min(draft.attribute("padding")) < 0:
            return False
        more = row.kind == "Circular" and row.flat
        return all(max(pair) < size + more for size, pair in edges)

    def fits(text: str, holds: Any) -> rules.Rule:
        return rules.requires(
            text,
            "padding",
            holds=holds,
            found=lambda draft: draft.attribute("padding"),
            error=AttributeValueError,
        )

    limits = []
    if row.kind != "Replication":
        limits.append(fits("edges shorter than their axes", shorter))
    if row.short:
        limits.append(fits(f"edges of 0 to {_LONGEST} cells, of BF16", short))
    return tuple(limits)


NEW, OLD = (A2, A3, ASCEND_950), (ASCEND_910, ASCEND_310P)
FRACTIONS = (DOUBLE, COMPLEX64, COMPLEX128)
ADDED = {
    **dict.fromkeys(NEW, (*FLOATS, *FRACTIONS)),
    **dict.fromkeys(OLD, (*HALF_AND_SINGLE, *FRACTIONS)),
}
INTEGERS = (INT8, INT16, INT32, INT64, UINT8)
REFLECTED = {
    **dict.fromkeys(NEW, (*FLOATS, *FRACTIONS, *INTEGERS, BOOL)),
    **dict.fromkeys(OLD, (*HALF_AND_SINGLE, DOUBLE, *INTEGERS, BOOL)),
}
REFLECTED_3D = {product: REFLECTED[product] for product in (*NEW, ASCEND_910)}
REPLICATED = {
    **dict.fromkeys(NEW, (*FLOATS, *FRACTIONS, *INTEGERS)),
    **dict.fromkeys(OLD, (*HALF_AND_SINGLE, *FRACTIONS, *INTEGERS)),
}

reflection_pad1d = declared("ReflectionPad1d", REFLECTED)
reflection_pad2d = declared("ReflectionPad2d", REFLECTED)
reflection_pad3d = declared("ReflectionPad3d", REFLECTED_3D)
replication_pad1d = declared("ReplicationPad1d", REPLICATED)
replication_pad2d = declared("ReplicationPad2d", REPLICATED)
replication_pad3d = declared("ReplicationPad3d", REPLICATED)
circular_pad2d = declared("CircularPad2d", dict.fromkeys((A2, A3), FLOATS))
circular_pad3d = declared("CircularPad3d", dict.fromkeys((A2, A3), FLOATS))
reflection_pad1d_backward = declared("ReflectionPad1dBackward", ADDED)
reflection_pad2d_backward = declared("ReflectionPad2dBackward", ADDED)
reflection_pad3d_backward = declared("ReflectionPad3dBackward", ADDED)
replication_pad1d_backward = declared("ReplicationPad1dBackward", ADDED)
replication_pad2d_backward = declared("ReplicationPad2dBackward", ADDED)
replication_pad3d_backward = declared("ReplicationPad3dBackward", ADDED)
circular_pad2d_backward = declared("CircularPad2dBackward", dict.fromkeys(NEW, FLOATS))
circular_pad3d_backward = declared("CircularPad3dBackward", dict.fromkeys(NEW, FLOATS))
