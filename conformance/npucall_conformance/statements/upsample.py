"""Upsampling, and its gradients [src:upsample]."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from npucall.dtypes import BF16, COMPLEX64, DOUBLE, FLOAT, FLOAT16, FLOATS, UINT8, DType
from npucall.errors import AttributeValueError
from npucall.tensors import Format, Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import WITH_BFLOAT16, Takes, on

NAN, INF = reals.NAN, reals.INFINITY
SIDES = (3, 4, 3)


class Line(NamedTuple):
    """Of each new cell of an axis the cells before, with weights; -1 where there are fewer."""

    cells: Any
    weights: Any

    @classmethod
    def of(cls, cells: Iterable[Any], weights: Iterable[Any]) -> Line:
        """Of the first cell of each, the second, and so on."""
        return cls(np.stack([*cells], 1).astype(np.int64), np.stack([*weights], 1))

    def lists(self) -> list[list[tuple[int, float]]]:
        pairs = zip(self.cells.tolist(), self.weights.tolist(), strict=True)
        return [[(i, w) for i, w in zip(*each, strict=True) if i >= 0] for each in pairs]

    def pairs(self) -> tuple[Any, Any, Any]:
        """New cells, those before, weights."""
        there = self.cells >= 0
        return np.nonzero(there)[0], self.cells[there], self.weights[there]


class _Axis(NamedTuple):
    """An extent, the new one, the scale, and whether corners are aligned."""

    size: int
    cells: int
    scale: float
    align: bool


Cells = Callable[[_Axis], Line]


def nearest(axis: _Axis) -> Line:
    return _under(axis.size, axis.cells, axis.scale, 0.0)


def of_nearest(axis: _Axis) -> Line:
    """What gradients take for it."""
    size, cells, *_ = axis
    if cells in (size, 2 * size):
        return Line.of([np.arange(cells) * size // cells], [np.ones(cells)])
    return nearest(axis)


def exact(axis: _Axis) -> Line:
    return _under(axis.size, axis.cells, axis.scale, 0.5)


def _under(size: int, cells: int, scale: float, half: float) -> Line:
    o = np.arange(cells) + half
    with np.errstate(all="ignore"):  # of a tiny scale, all but the first are beyond all cells
        factor = np.float32(1 / scale) if scale > 0 else np.float32(size) / np.float32(cells)
        places = np.fmin(o.astype(np.float32) * factor, np.float32(size))
    if factor > 2**40:
        places[1:] = size
    places[o == 0] = 0
    return Line.of([np.minimum(np.floor(places).astype(np.int64), size - 1)], [np.ones(cells)])


def step(axis: _Axis) -> float:
    """How far apart new cells lie."""
    size, cells, scale, align = axis
    if align:
        return (size - 1) / max(cells - 1, 1) if cells > 1 else 0.0
    return min(1 / scale, 2.0**40) if scale > 0 else size / cells


def linear(axis: _Axis) -> Line:
    size, cells, _, align = axis
    o, wide = np.arange(cells), step(axis)
    place = o * wide if align else np.maximum(wide * (o + 0.5) - 0.5, 0.0)
    place = o * 1.0 if size == cells else place
    low = np.minimum(np.floor(place), size - 1)
    high, rest = np.minimum(low + (size != cells), size - 1), np.minimum(place - low, 1.0)
    return Line.of([low, high], [1 - rest, rest])


def bend(a: float, away: Any) -> Any:
    """The cubic of a distance."""
    near = (a + 2) * away**3 - (a + 3) * away**2 + 1
    far = a * away**3 - 5 * a * away**2 + 8 * a * away - 4 * a
    return np.where(away <= 1, near, np.where(away < 2, far, 0.0))


def cubic(axis: _Axis) -> Line:
    size, cells, _, align = axis
    o, wide, taps = np.arange(cells), step(axis), (-1, 0, 1, 2)
    place = o * wide if align else wide * (o + 0.5) - 0.5
    low = np.minimum(np.floor(place), size - 1)
    rest = np.minimum(place - low, 1.0)
    weights = [bend(-0.75, np.abs(rest - k)) for k in taps]
    return Line.of([np.clip(low + k, 0, size - 1) for k in taps], weights)


def smooth(width: int, curve: Callable[[Any], Any]) -> Cells:
    """All cells under a curve."""

    def cells_under(axis: _Axis) -> Line:
        size, cells, *_ = axis
        middle = step(axis) * (np.arange(cells) + 0.5)
        reach = max(step(axis), 1.0)
        low, high = (
            np.clip(middle + side * width * reach + 0.5, 0, size).astype(np.int64)
            for side in (-1, 1)
        )
        found = low[:, np.newaxis] + np.arange(max((high - low).max(), 1))
        there = found < high[:, np.newaxis]
        weights = curve(np.abs(found + 0.5 - middle[:, np.newaxis]) / reach) * there
        total = weights.sum(1, keepdims=True)
        return Line(np.where(there, found, -1), weights / np.where(total == 0, 1.0, total))

    return cells_under


triangle = smooth(1, lambda away: np.maximum(1 - away, 0.0))
wave = smooth(2, lambda away: bend(-0.5, away))


class _Row(NamedTuple):
    """An operator of the family, and in which of its checks it is unlike the others."""

    name: str
    cells: Cells
    takes: Takes
    given: str = "self"
    output: str = "out"
    scaled: bool = True
    dtypes_after: int = 0
    signed: bool = True
    most: float = 0.0
    everywhere: bool = True
    constant: int = 0
    by_extents: bool = False
    free: int = 2

    @property
    def axes(self) -> int:
        (count,) = re.findall(r"(\d)d", self.name)
        return int(count)

    @property
    def images(self) -> int:
        return 2 if self.axes < len(SIDES) else 1  # few cells, so that quick runs have all

    @property
    def backward(self) -> bool:
        return "Backward" in self.name or "Grad" in self.name

    @property
    def aligns(self) -> bool:
        return self.cells not in (nearest, of_nearest, exact)

    @property
    def scales(self) -> tuple[str, ...]:
        if not self.scaled:
            return ()
        if self.axes == 1:
            return ("scale",) if self.name == "Linear1d" else ("scales",)
        return ("scales_d", "scales_h", "scales_w")[-self.axes :]

    @property
    def x(self) -> str:
        return self.given.replace("O", "_o")

    @property
    def y(self) -> str:
        return self.output.replace("I", "_i")

    def along(self, k: Arguments) -> list[_Axis]:
        """The axes."""
        sizes = (k["input_size"] if self.backward else k[self.x].shape)[2:]
        scales = [0.0 if self.by_extents else k[name] for name in self.scales] or [0.0] * self.axes
        align = self.aligns and k["align_corners"]
        given = zip(sizes, k["output_size"], scales, strict=True)
        return [_Axis(*each, align) for each in given]

    def shape(self, k: Arguments) -> Shape:
        return (
            tuple(k["input_size"]) if self.backward else (*k[self.x].shape[:2], *k["output_size"])
        )

    def loops(self, k: Arguments) -> Any:
        lines, shape = [self.cells(each).lists() for each in self.along(k)], self.shape(k)
        terms: dict[tuple[int, ...], list[tuple[float, tuple[int, ...]]]] = {}
        for new in product(*map(range, map(len, lines))):
            for cells in product(*(line[o] for line, o in zip(lines, new, strict=True))):
                old, weights = zip(*cells, strict=True)
                source, target = (new, old) if self.backward else (old, new)
                terms.setdefault(target, []).append((math.prod(weights), source))
        found = np.zeros(shape)
        for place in product(*map(range, shape[:2])):
            plane = k[self.x][place].tolist()
            for target, each in terms.items():
                found[(*place, *target)] = reals.total([w * _at(plane, s) for w, s in each])
        return found

    def arrays(self, k: Arguments) -> Terms:
        value, size, summed = k[self.x], np.abs(k[self.x]), 1
        for axis, along in enumerate(self.along(k), start=2):
            new, old, weights = _pairs(self.cells, along)
            source, target = (new, old) if self.backward else (old, new)
            count = self.shape(k)[axis]
            value = _added(value, axis, (source, target, weights), count)
            size = _added(size, axis, (source, target, np.abs(weights)), count)
            summed *= int(np.bincount(target).max())
        return Terms(value, size, summed=summed)

    def torch(self, k: Arguments, torch: Any) -> Any:
        if not k[self.x].numel():
            return None
        sizes = [k[name] for name in ("output_size", "input_size")[: 1 + self.backward]]
        if self.aligns:
            sizes.append(k["align_corners"])
        scales = [0.0 if self.by_extents else k[name] for name in self.scales]
        if "AA" in self.name and any(scales):  # torch leaves axes of one extent as they are
            return None
        if "AA" in self.name and sizes[0][1] == 1 and not self.backward:
            return None  # torch gives every cell of a single column the first one's number
        return getattr(torch.ops.aten, self.aten)(k[self.x], *sizes, *scales)

    @property
    def aten(self) -> str:
        (kind,) = re.findall(r"^(\D+)\d", self.name)
        kind = kind.replace("Exact", "_exact").lower()
        private = "_" if re.search("Exact|AA", self.name) else ""
        ends = "_aa" * ("AA" in self.name) + "_backward" * self.backward
        return f"{private}upsample_{kind}{self.axes}d{ends}"


def _at(plane: Any, place: tuple[int, ...]) -> float:
    for index in place:
        plane = plane[index]
    return float(plane)


def _added(x: Any, axis: int, pairs: tuple[Any, Any, Any], count: int) -> Any:
    """Sums along an axis: what has a weight goes from its source to its target."""
    source, target, weights = pairs
    rows, order = np.moveaxis(x, axis, 0), np.argsort(target, kind="stable")
    total = np.zeros((count, *rows.shape[1:]))
    present, starts = np.unique(target[order], return_index=True)
    terms = rows[source[order]] * weights[order].reshape(-1, *(1,) * (x.ndim - 1))
    total[present] = np.add.reduceat(terms, starts, 0)
    return np.moveaxis(total, 0, axis)


@lru_cache(64)
def _pairs(cells: Cells, axis: _Axis) -> tuple[Any, Any, Any]:
    """Each new cell with each that it is of, and how much of it; many cases have the same axes."""
    return cells(axis).pairs()


def several(kind: str, name: str, *found: Any, **more: Any) -> tuple[Invalid, ...]:
    """Values of an attribute that are refused."""
    blames = more.pop("blames", (name,))
    return tuple(
        Invalid(f"{kind}-{name}-{number}", {name: value}, blames, AttributeValueError, **more)
        for number, value in enumerate(found)
    )


def _invalid(row: _Row) -> tuple[Invalid, ...]:
    n, sides = row.images, SIDES[: row.axes]
    sizes = ("output_size", "input_size")[: 1 + row.backward]
    other = COMPLEX64 if any(DOUBLE in each for each in row.takes.values()) else DOUBLE
    dtypes = (*defects.dtypes(row.x, found=other), *defects.dtypes(row.y, found=BF16))
    dimensions = (
        *defects.shapes(row.x, sides, (1, 2, 2, *sides)),
        *several("length", "output_size", (), (*sides, 2)),
        *(
            several("length", "input_size", (n, 2, *sides[1:]), (1, 2, 2, *sides))
            if row.backward
            else ()
        ),
    )
    if row.backward:
        none = several(
            "none",
            "input_size", *((n, 2, *sides[:a], 0, *sides[a + 1 :]) for a in range(row.axes)),
            *([(n, 0, *sides), (0, 2, *sides)] if not row.free else ()),
        )  # fmt: skip
    else:
        none = defects.shapes(
            row.x, *((n, 2, *sides[:a], 0, *sides[a + 1 :]) for a in range(row.axes)),
            *([(n, 0, *sides)] if row.free < 2 else ()),
            *([(0, 2, *sides)] if row.free < 1 else ()),
        )  # fmt: skip
    nothing = several("none", "output_size", (0, *sides[1:]), (*sides[1:], -2))
    return (
        *defects.nulls(row.x, *sizes, row.y),
        *(() if row.dtypes_after else dtypes),
        *dimensions,
        *(dtypes if row.dtypes_after == 1 else ()),
        *defects.formats(row.x, row.y, found=Format.NHWC),
        *(several("negative", name, -0.5)[0] for name in row.scales if not row.signed),
        *none,
        *nothing,
        *(defects.shapes(row.x, (n, 3, *_new(sides)), (n, 2, *sides)) if row.backward else ()),
        *defects.shapes(row.y, (3, 2, *sides), (n, 2, *(2 for _ in sides))),
        *(dtypes if row.dtypes_after == 2 else ()),
        *(
            several(
                "large",
                row.scales[0],
                row.most + 1.0,
                blames=(*row.scales, *sizes),
                whoever=True,
                products=() if row.everywhere else ("Ascend910B", "Ascend910_93"),
            )
            if row.most
            else ()
        ),
    )


def _new(sides: Shape) -> Shape:
    return tuple(3 * side // 2 + 1 for side in sides)


def _large(row: _Row, images: int, channels: int, count: int = 120_000) -> Shape:
    """Planes of that many cells."""
    rest = (7,) * (row.axes - 1)
    return (images, channels, *rest, count // (images * channels * math.prod(rest)) + 2)


def _sums(row: _Row) -> Iterator[Setup]:
    """Sums of hundreds of equal numbers, which nothing limits, show the dtype in which they are."""
    if row.backward and row.axes > 1 and not row.most:
        few = (4,) * (row.axes - 1)
        equal = {row.x: np.full((1, 2, 2001, *few), 0.7)}
        sizes = {"output_size": (2001, *few)}
        yield Setup("equal", (1, 2, 2, *few), values=equal, attributes=sizes, only=(FLOAT,))


def stated(*parts: Any, **more: Any) -> Statement:
    """The statement of a row."""
    row = _Row(*parts, **more)
    sizes = {
        "output_size": (
            lambda base: _new(base[2:]),
            lambda base: (*base[2:-1], 2 * base[-1]),
            lambda base: tuple(max(side - 1, 1) for side in base[2:]),
        )
    }
    listed = "const aclIntArray* outputSize" + ", const aclIntArray* inputSize" * row.backward
    names = [re.sub(r"_(\w)", lambda m: m[1].upper(), name) for name in row.scales]
    if row.aligns:
        listed += ", const bool alignCorners" if row.constant else ", bool alignCorners"
    listed += "".join(f", {'const ' * (row.constant > 1)}double {name}" for name in names)
    sides = SIDES[: row.axes]
    dtypes: tuple[DType, ...] = row.takes["Ascend910B"]
    first = min(row.takes.values(), key=len)[0]  # which all products take
    return Statement(
        f"aclnnUpsample{row.name}",
        prototype=f"const aclTensor* {row.given}, {listed}, aclTensor* {row.output}",
        takes=row.takes,
        legacy=(),
        formats_by_rank=True,
        defaults=dict.fromkeys(row.scales, 0.0) | ({"align_corners": False} if row.aligns else {}),
        defaulted=Setup(attributes={"output_size": sizes["output_size"][0]}),
        attributes={
            **sizes,
            **({"input_size": (lambda base: base,)} if row.backward else {}),
            **({"align_corners": (False, True)} if row.aligns else {}),
            **{name: ((0.0, 1.75) if name == row.scales[-1] else (0.0,)) for name in row.scales},
        },
        inputs=(In(row.x, normal()),),
        outputs=(Out(row.y, row.shape, row.x),),
        shapes=(
            (lambda base, given: {row.x: (*base[:2], *given["output_size"])})
            if row.backward
            else None
        ),
        loops=row.loops,
        arrays=row.arrays,
        dtypes=tuple(sorted(dtypes, key=lambda each: each is not first)),
        kernel=dtype_of(row.x),
        npu=aten(
            row.aten, row.x, *sizes, *["input_size"][: row.backward],
            *["align_corners"][: row.aligns], *row.scales,
        ),
        torch=row.torch,
        base_shapes=((row.images, 2, *sides), (1, 1, *sides[1:], 2), (3, 1, *reversed(sides))),
        layout_shape=(row.images, 2, *sides),
        rank_shapes=((1, 1, *(1 for _ in sides)),),
        empty_shapes=((0, 2, *sides),) if row.free else (),
        sized=lambda count: (1, max(count // 5 ** row.axes, 1), *(5 for _ in sides)),
        fitted=lambda base: tuple(max(each, 1) for each in base),
        large_shape=_large(row, 3, 5),
        large=(
            Setup("many-rows", _large(row, 9, 401)),
            Setup("long-rows", (1, 2, *(2 for _ in sides[1:]), 600_011 // 2**row.axes)),
            Setup("one-row", (1, 1, *(2 for _ in sides[1:]), 200_011 // 2 ** (row.axes - 1))),
        ),
        chunked=_large(row, 1, 30, 1_300_000),
        cost=32.0 if row.backward or row.aligns else 0.0,
        edges=(
            Setup("numbers", (1, 2, *(2 for _ in sides)), values={
                row.x: np.resize([1.0, NAN, INF, -INF, -0.0, 2.0, 1.0, 1.0],
                                 (1, 2, *((4 if row.backward else 2) for _ in sides)))},
                attributes={"output_size": (4,) * row.axes}),
            *_sums(row),
        ),
        invalid=_invalid(row),
    )  # fmt: skip


HALVES = (FLOAT, FLOAT16)
WITH_DOUBLE = (*FLOATS, DOUBLE)
OLD = ("Ascend910", "Ascend310P")
COPIED = {
    **on(WITH_BFLOAT16, *WITH_DOUBLE, UINT8),
    **on(OLD, *HALVES, DOUBLE, UINT8),
}
COPIED_3D = {
    **on(WITH_BFLOAT16, *WITH_DOUBLE),
    "Ascend950": (*WITH_DOUBLE, UINT8),
    "Ascend910": (*HALVES, DOUBLE),
    "Ascend310P": HALVES,
}
EXACT = {**on(WITH_BFLOAT16, *FLOATS), "Ascend310P": HALVES}
ADDED = on(WITH_BFLOAT16, *FLOATS)
ADDED_1D = {**on(WITH_BFLOAT16, *WITH_DOUBLE), **on(OLD, FLOAT16)}
ADDED_2D = {**ADDED, **on(OLD, FLOAT16)}
ADDED_3D = {**on(WITH_BFLOAT16, *WITH_DOUBLE), "Ascend910": (*HALVES, DOUBLE)}

NEW_HALVES = {**ADDED, **on(OLD, *HALVES)}
NEW_910 = {**ADDED, "Ascend910": HALVES}
CUBIC = {**NEW_HALVES, "Ascend310B": HALVES}
TRILINEAR_BACK = {
    **on(("Ascend910B", "Ascend910_93"), *WITH_DOUBLE),
    "Ascend910": (*HALVES, DOUBLE),
    "Ascend310P": HALVES,
}
TRILINEAR = {**TRILINEAR_BACK, "Ascend950": FLOATS}
V1 = {**NEW_HALVES, **on(("Ascend910B", "Ascend910_93"), *HALVES)}
SMOOTH: dict[str, Any] = {"most": 50, "signed": False}

UPSAMPLE = (
    stated("Nearest1d", nearest, COPIED, scaled=False, free=1),
    stated("Nearest2d", nearest, COPIED, scaled=False, free=1),
    stated("Nearest3d", nearest, COPIED_3D, free=1),
    stated("NearestExact1d", exact, EXACT, free=0),
    stated("NearestExact2d", exact, EXACT),
    stated("NearestExact3d", exact, EXACT, free=1),
    stated("Nearest1dBackward", of_nearest, ADDED_1D, "gradOut", dtypes_after=1),
    stated("Nearest2dBackward", of_nearest, ADDED_2D, "gradOut", "gradInput"),
    stated("Nearest3dBackward", of_nearest, ADDED_3D, "gradOut", "gradInput"),
    stated("NearestExact1dBackward", exact, ADDED, "gradOutput", signed=False, most=50,
           free=0),
    stated("NearestExact2dBackward", exact, ADDED, "gradOutput", signed=False, most=50),
    stated("NearestExact3dBackward", exact, ADDED, "gradOut", "gradInput", most=50),
    stated("Linear1d", linear, NEW_910, dtypes_after=2, free=1, constant=2),
    stated("Bilinear2d", linear, NEW_HALVES, signed=False, constant=2),
    stated("Bicubic2d", cubic, CUBIC, free=1, constant=2),
    stated("Trilinear3d", linear, TRILINEAR, free=1),
    stated("Bilinear2dAA", triangle, ADDED, "input", **SMOOTH, everywhere=False, free=0),
    stated("Bicubic2dAA", wave, ADDED, "x", most=50, everywhere=False, free=1, constant=2),
    stated("Linear1dBackward", linear, NEW_910, "gradOut", dtypes_after=1, most=500,
           everywhere=False),
    stated("Bilinear2dBackward", linear, V1, "gradOut", dtypes_after=2, by_extents=True),
    stated("Bilinear2dBackwardV2", linear, NEW_HALVES, "gradOut", dtypes_after=2),
    stated("Bicubic2dBackward", cubic, NEW_910, "gradOut", "gradInput", dtypes_after=2,
           constant=1),
    stated("Trilinear3dBackward", linear, TRILINEAR_BACK, "gradOut", "gradInput"),
    stated("Bilinear2dAABackward", triangle, ADDED, "gradOutput", **SMOOTH, free=0),
    stated("Bicubic2dAAGrad", wave, ADDED, "gradOutput", **SMOOTH, free=0),
)  # fmt: skip
