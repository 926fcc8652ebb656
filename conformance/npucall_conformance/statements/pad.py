"""Edges of planes, and their gradients [src:pad]."""

from __future__ import annotations

import math
import re
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
)
from npucall.errors import AttributeValueError, FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import WITH_BFLOAT16, Takes, on
from npucall_conformance.stating.written import WrittenCall, of

SIDES = (3, 4, 3)
EDGES = (1, 2, 2, 0, 2, 1)
"""Of the usual planes: left and right first."""


_COPIES = "torch pads in circles by copies"


class _Row(NamedTuple):
    """An operator of the family."""

    name: str
    takes: Takes

    @property
    def axes(self) -> int:
        (count,) = re.findall(r"(\d)d", self.name)
        return int(count)

    @property
    def backward(self) -> bool:
        return "Backward" in self.name

    @property
    def x(self) -> str:
        return "grad_output" if self.backward else "self"

    @property
    def y(self) -> str:
        return "grad_input" if self.backward else "out"

    def place(self, at: int, size: int) -> int:
        """The cell that a cell before or behind the plane is."""
        if "Circular" in self.name:
            return (at + size) % size
        if "Replication" in self.name:
            return min(max(at, 0), size - 1)
        if at < 0:
            return -at
        return at if at < size else 2 * (size - 1) - at

    def lines(self, k: Arguments) -> list[list[int]]:
        """For each axis the cells of the padded one."""
        sizes = k["self"].shape[-self.axes :]
        found: list[list[int]] = []
        for number, size in enumerate(reversed(sizes)):
            before, behind = k["padding"][2 * number : 2 * number + 2]
            found.insert(0, [self.place(at, size) for at in range(-before, size + behind)])
        return found

    def shape(self, k: Arguments) -> Shape:
        return padded(k["self"].shape, k["padding"])

    def loops(self, k: Arguments) -> Any:
        lines = self.lines(k)
        planes = k[self.x].reshape(-1, *k[self.x].shape[-self.axes :])
        if not self.backward:
            cells = [list(product(*lines))] * len(planes)
            found = [
                [plane[cell] for cell in each] for plane, each in zip(planes, cells, strict=True)
            ]
            return np.reshape(found, self.shape(k))
        count = math.prod(k["self"].shape[-self.axes :])
        found = []
        for plane in planes:
            added: list[list[float]] = [[] for _ in range(count)]
            for at, cell in zip(
                product(*map(range, map(len, lines))), product(*lines), strict=True
            ):
                flat = int(np.ravel_multi_index(cell, k["self"].shape[-self.axes :]))
                added[flat].append(float(plane[at]))
            found.append([reals.total(each) for each in added])
        return np.reshape(found, k["self"].shape)

    def arrays(self, k: Arguments) -> Terms:
        value = k[self.x]
        if not self.backward:
            for axis, line in enumerate(self.lines(k), start=value.ndim - self.axes):
                value = np.take(value, line, axis)
            return Terms(value)
        size, summed = np.abs(value), 1
        for axis, line in enumerate(self.lines(k), start=value.ndim - self.axes):
            count = k["self"].shape[axis]
            value, size = (_added(each, axis, line, count) for each in (value, size))
            summed *= int(np.bincount(line).max())
        return Terms(value, size, summed=summed)

    def torch(self, k: Arguments, torch: Any) -> Any:
        if not k["self"].numel():
            return None
        if "Circular" not in self.name:
            function = getattr(torch.ops.aten, self.aten)
            tensors = (k[self.x], k["self"]) if self.backward else (k["self"],)
            return function(*tensors, list(k["padding"]))
        padded = torch.nn.functional.pad
        planes = k["self"].detach().requires_grad_()
        result = padded(planes, list(k["padding"]), mode="circular")
        if not self.backward:
            return result.detach()
        return torch.autograd.grad(result, planes, k["grad_output"])[0]

    @property
    def aten(self) -> str:
        kind = "reflection" if "Reflection" in self.name else "replication"
        return f"{kind}_pad{self.axes}d{'_backward' * self.backward}"


def _added(x: Any, axis: int, line: list[int], count: int) -> Any:
    rows = np.moveaxis(x, axis, 0)
    total = np.zeros((count, *rows.shape[1:]))
    np.add.at(total, line, rows)
    return np.moveaxis(total, 0, axis)


def padded(shape: Shape, padding: tuple[int, ...]) -> Shape:
    count = len(padding) // 2
    tail = [
        size + padding[2 * n] + padding[2 * n + 1]
        for n, size in zip(reversed(range(count)), shape[-count:], strict=True)
    ]
    return (*shape[:-count], *tail)


def edges_wrong(*found: tuple[int, ...], **more: Any) -> tuple[Invalid, ...]:
    """Values of padding that are refused."""
    kind = more.pop("kind", "edges")
    return tuple(
        Invalid(f"{kind}-{number}", {"padding": value}, ("padding",), AttributeValueError, **more)
        for number, value in enumerate(found)
    )


def _invalid(row: _Row) -> tuple[Invalid, ...]:
    sides, edges = SIDES[: row.axes], EDGES[: 2 * row.axes]
    tensors = tuple(dict.fromkeys((row.x, "self", row.y)))
    far = (sides[-1] + ("Circular" in row.name and row.axes < 3), *edges[1:])
    negative = "Circular" in row.name
    whole = padded((2, 2, *sides), edges)
    other = UINT16 if len(row.takes["Ascend910B"]) > 3 else DOUBLE
    rows = [
        *defects.nulls(*dict.fromkeys((row.x, "self")), "padding", row.y),
        *defects.dtypes(*tensors, found=other),
        *defects.dtypes(*(name for name in tensors if name != "self"), found=FLOAT16),
        *defects.formats(*tensors),
        *(
            Invalid(f"other-{name}", {name: {"format": Format.NCHW}}, (name,), FormatError)
            for name in tensors
            if name != "self"
        ),
    ]
    if row.backward:
        rows += defects.shapes("grad_input", (3, 2, *sides), (2, *sides))
        both = {name: {"shape": sides} for name in ("self", "grad_input")}
        rows.append(Invalid("rank-low", both, ("self",), ShapeError))
        both = {name: {"shape": (1, 2, 2, *sides)} for name in ("self", "grad_input")}
        rows.append(Invalid("rank-high", both, ("self",), ShapeError))
        rows += defects.shapes("grad_output", whole[1:])
    else:
        rows += defects.shapes("self", sides, (1, 2, 2, *sides))
    rows += edges_wrong((), edges[1:], (*edges, 1), kind="length")
    if "Replication" not in row.name:
        rows += edges_wrong(far, *([(-1, *edges[1:])] if negative else []), kind="long")
    if "Pad2dBackward" in row.name and "Circular" not in row.name:
        many = {name: {"dtype": BF16} for name in tensors}
        rows.append(
            Invalid("edges-bf16", {**many, "padding": (0, 0, -1, 2)}, ("padding",),
                    AttributeValueError, products=WITH_BFLOAT16)
        )  # fmt: skip
    if not negative:
        rows += edges_wrong((-sides[-1], -1, *edges[2:]), kind="short")
    rows += defects.shapes(row.x if row.backward else row.y, (3, *whole[1:]), (*whole[:-1], 1))
    empty: dict[str, Any] = {name: {"shape": (2, 0, *sides)} for name in tensors}
    empty[row.x if row.backward else row.y] = {"shape": (2, 0, *whole[2:])}
    rows.append(Invalid("no-channels", empty, ("self",), ShapeError))
    return tuple(rows)


def stated(name: str, takes: Takes) -> Statement:
    """The statement of a row."""
    row = _Row(name, takes)
    sides, edges = SIDES[: row.axes], EDGES[: 2 * row.axes]
    lead = "const aclTensor* gradOutput, " if row.backward else ""
    output = "gradInput" if row.backward else "out"
    tensors = ("grad_output", "self") if row.backward else ("self",)
    every = tuple(each for each in takes["Ascend910B"] if each not in (COMPLEX64, COMPLEX128, BOOL))
    rest = (7,) * (row.axes - 1)
    return Statement(
        f"aclnn{name}",
        prototype=f"{lead}const aclTensor* self, const aclIntArray* padding, aclTensor* {output}",
        takes=takes,
        legacy=(),
        attributes={"padding": (edges, (0, 1) * row.axes, (2, 2) * row.axes)},
        inputs=(
            *[In("grad_output", normal())][: row.backward],
            In("self", normal(), read=not row.backward),
        ),
        outputs=(Out(row.y, "self" if row.backward else row.shape, "self"),),
        shapes=(
            (lambda base, given: {"grad_output": padded(base, given["padding"]), "self": base})
            if row.backward
            else None
        ),
        loops=row.loops,
        arrays=row.arrays,
        faint=lambda k: () if k[tensors[0]].any() else (row.y,),  # few small integers
        dtypes=every,
        kernel=dtype_of("self"),
        npu=_COPIES if "Circular" in name else aten(row.aten, *tensors, "padding"),
        torch=row.torch,
        base_shapes=((2, 2, *sides), (3, *reversed(sides)), (1, 1, *(4 for _ in sides))),
        layout_shape=(2, 2, *sides),
        rank_shapes=((1, *sides), (1, 1, *sides)),
        empty_shapes=((0, 2, *sides),),
        sized=lambda count: (1, max(count // 5**row.axes, 1), *(5 for _ in sides)),
        fitted=lambda base: (*base[: -row.axes], *(max(n, 4) for n in base[-row.axes :])),
        large_shape=(3, 5, *rest, 8_003 // math.prod(rest)),
        large=(
            Setup("many-rows", (9, 120_000 // 9 // 4**row.axes, *(4 for _ in sides))),
            Setup("long-rows", (1, 2, *(4 for _ in sides[1:]), 600_011 // 4 ** (row.axes - 1))),
            Setup("one-row", (1, 1, *(4 for _ in sides[1:]), 200_011 // 4 ** (row.axes - 1))),
        ),
        chunked=(1, 30, *rest, 40_000 // math.prod(rest)),
        cost=32.0 if row.backward else 0.0,
        edges=(
            Setup("numbers", (1, *(3 for _ in sides)), values={
                row.x: np.resize([1.0, math.nan, 2.0, math.inf, -math.inf, -0.0, 3.0],
                                 padded((1, *(3 for _ in sides)), (1,) * 2 * row.axes)
                                 if row.backward else (1, *(3 for _ in sides)))},
                attributes={"padding": (1,) * 2 * row.axes}),
            *([] if "Circular" in name else [Setup(
                "cut", (1, *(6 for _ in sides)), attributes={"padding": (-1, 2) * row.axes},
                only=(FLOAT,))]),
        ),
        written=_written(row),
        invalid=_invalid(row),
    )  # fmt: skip


def _written(row: _Row) -> tuple[WrittenCall, ...]:
    """A row of complex numbers, with a cell behind it."""
    if COMPLEX64 not in row.takes["Ascend910B"]:
        return ()
    one = (1,) * row.axes
    found = []
    for dtype in (COMPLEX64, COMPLEX128):
        numbers = of(dtype, 1 + 2j, -3j, shape=(1, *one[1:], 2))
        behind = numbers[..., :1] if "Reflection" in row.name else numbers[..., 1:]
        more = np.concatenate([numbers, behind], -1)
        padding = (0, 1, *(0,) * 2 * (row.axes - 1))
        if not row.backward:
            call = WrittenCall(
                f"complex-{dtype.short}", {"self": numbers}, (more,), {"padding": padding}
            )
        else:
            place = 0 if "Reflection" in row.name else 1
            total = numbers.copy()
            total[..., place] += more[..., 2]
            given = {"grad_output": more, "self": numbers}
            call = WrittenCall(f"complex-{dtype.short}", given, (total,), {"padding": padding})
        found.append(call)
    return tuple(found)


OLD = ("Ascend910", "Ascend310P")
FRACTIONS = (DOUBLE, COMPLEX64, COMPLEX128)
INTEGERS = (INT8, INT16, INT32, INT64, UINT8)
HALVES = (FLOAT, FLOAT16)
ADDED = {**on(WITH_BFLOAT16, *FLOATS, *FRACTIONS), **on(OLD, *HALVES, *FRACTIONS)}
REFLECTED = {
    **on(WITH_BFLOAT16, *FLOATS, *FRACTIONS, *INTEGERS, BOOL),
    **on(OLD, *HALVES, DOUBLE, *INTEGERS, BOOL),
}
REFLECTED_3D = {soc: dtypes for soc, dtypes in REFLECTED.items() if soc != "Ascend310P"}
REPLICATED = {
    **on(WITH_BFLOAT16, *FLOATS, *FRACTIONS, *INTEGERS),
    **on(OLD, *HALVES, *FRACTIONS, *INTEGERS),
}
A2_AND_A3 = on(("Ascend910B", "Ascend910_93"), *FLOATS)

PADS = (
    stated("ReflectionPad1d", REFLECTED),
    stated("ReflectionPad2d", REFLECTED),
    stated("ReflectionPad3d", REFLECTED_3D),
    stated("ReplicationPad1d", REPLICATED),
    stated("ReplicationPad2d", REPLICATED),
    stated("ReplicationPad3d", REPLICATED),
    stated("CircularPad2d", A2_AND_A3),
    stated("CircularPad3d", A2_AND_A3),
    *(stated(f"{kind}Pad{axes}dBackward", ADDED)
      for kind in ("Reflection", "Replication") for axes in (1, 2, 3)),
    *(stated(f"CircularPad{axes}dBackward", on(WITH_BFLOAT16, *FLOATS)) for axes in (2, 3)),
)  # fmt: skip
