"""Planes sampled at the places of a grid, and the gradients of that [src:grid-sampler]."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, FLOATS, INT32, DType
from npucall.errors import AttributeValueError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.npu import aten, within
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16, Statement
from npucall_conformance.stating.tables import WITH_BFLOAT16, Takes, on

NAN = reals.NAN
MODES = ("interpolation_mode", "padding_mode", "align_corners")
GRADIENTS = ("input_grad", "grid_grad")
BILINEAR, NEAREST, BICUBIC = range(3)
BOTH = (True, True)
SIDES, CELLS = (3, 4, 2), (3, 2, 2)
A = -0.75


def near(away: float) -> tuple[float, float]:
    """A cubic weight of a distance, and its derivative."""
    if away < 1:
        return (A + 2) * away**3 - (A + 3) * away**2 + 1, 3 * (A + 2) * away**2 - 2 * (A + 3) * away
    if away < 2:
        return A * (away**3 - 5 * away**2 + 8 * away - 4), A * (3 * away**2 - 10 * away + 8)
    return 0.0, 0.0


class _Axis(NamedTuple):
    """An axis of so many cells, and how a call samples it."""

    size: int
    mode: int
    padding: int
    align: bool

    @property
    def factor(self) -> float:
        return (self.size - 1) / 2 if self.align else self.size / 2

    def place(self, g: float) -> float:
        if math.isnan(g):
            return -1e12
        return max(min((g + 1) * self.factor - (0 if self.align else 0.5), 1e12), -1e12)

    def moved(self, place: float) -> tuple[float, float]:
        """Where the padding moves a place, and the derivative."""
        turn = 1.0
        if self.padding == 2:
            low, span = (0, self.size - 1) if self.align else (-0.5, self.size)
            if not span:
                return 0.0, 0.0
            around = (place - low) % (2 * span)
            turn = 1.0 if around < span else -1.0
            place = low + min(around, 2 * span - around)
        if self.padding:
            turn *= 0 < place < self.size - 1
            place = min(max(place, 0.0), self.size - 1.0)
        return place, turn

    def line(self, g: float) -> dict[int, tuple[float, float]]:
        """By cell its weight at a number of the grid, and the derivative of that."""
        found: dict[int, tuple[float, float]] = {}
        place = self.place(g)
        if self.mode == BICUBIC:
            first = math.floor(place)
            for cell in range(first - 1, first + 3):
                weight, slope = near(abs(place - cell))
                sign = 1 if place >= cell else -1
                self._add(found, self.moved(cell)[0], weight, sign * slope * self.factor)
            return found
        place, turn = self.moved(place)
        if self.mode == NEAREST:
            self._add(found, round(place), 1.0, 0.0)
            return found
        first = math.floor(place)
        for cell, sign in ((first, -1), (first + 1, 1)):
            self._add(found, cell, 1 - abs(place - cell), sign * turn * self.factor)
        return found

    def _add(self, found: dict[int, tuple[float, float]], cell: float, *more: float) -> None:
        if 0 <= cell < self.size:
            before = found.get(int(cell), (0.0, 0.0))
            found[int(cell)] = (before[0] + more[0], before[1] + more[1])


def axes_of(k: Arguments) -> list[_Axis]:
    return [_Axis(size, *(k[name] for name in MODES)) for size in k["input"].shape[2:]]


def sampled(k: Arguments) -> Shape:
    return (*k["input"].shape[:2], *k["grid"].shape[1:-1])


def corners(k: Arguments, place: tuple[int, ...]) -> list[tuple[Any, Any, Any]]:
    """The cells around a place, with the weights of their axes and the derivatives of those."""
    grid = reversed(k["grid"][place].tolist())
    every = [axis.line(g).items() for axis, g in zip(axes_of(k), grid, strict=True)]
    found = []
    for each in product(*every):
        cells, pairs = zip(*each, strict=True)
        weights, slopes = zip(*pairs, strict=True)
        found.append((cells, weights, slopes))
    return found


def places(k: Arguments) -> Any:
    return product(*map(range, k["grid"].shape[:-1]))


def by_axis(weights: Any, slopes: Any, axis: int) -> float:
    """A corner's weight, derived along an axis."""
    return math.prod(slopes[n] if n == axis else w for n, w in enumerate(weights))


def loops(k: Arguments) -> Any:
    found = np.zeros(sampled(k))
    for item, *place in places(k):
        around = corners(k, (item, *place))
        for channel in range(found.shape[1]):
            plane = k["input"][item, channel]
            terms = [float(plane[at]) * math.prod(weights) for at, weights, _ in around]
            found[(item, channel, *place)] = reals.total(terms)
    return found


def grad_loops(k: Arguments) -> dict[str, Any]:
    planes, grid = np.zeros(k["input"].shape), np.zeros(k["grid"].shape)
    for item, *place in places(k):
        around = corners(k, (item, *place))
        for axis in range(planes.ndim - 2):
            grid[(item, *place, -1 - axis)] = reals.total([
                float(k["grad_output"][(item, channel, *place)] * k["input"][(item, channel, *at)])
                * by_axis(weights, slopes, axis)
                for at, weights, slopes in around for channel in range(planes.shape[1])
            ])  # fmt: skip
        for (at, weights, _), channel in product(around, range(planes.shape[1])):
            dy = k["grad_output"][(item, channel, *place)]
            planes[(item, channel, *at)] += dy * math.prod(weights)
    return {
        name: each * k["output_mask"][place]
        for place, (name, each) in enumerate(zip(GRADIENTS, (planes, grid), strict=True))
    }


def lines(k: Arguments) -> tuple[list[Any], list[Any]]:
    """By axis the weights of each place's cells and their derivatives; and how large both are."""
    grid = k["grid"].reshape(len(k["grid"]), math.prod(k["grid"].shape[1:-1]), k["grid"].shape[-1])
    exact, sizes = [], []
    for number, axis in enumerate(axes_of(k)):
        column = grid[..., -1 - number]
        both = np.zeros((2, *column.shape, axis.size))
        for place in np.ndindex(column.shape):
            for cell, pair in axis.line(float(column[place])).items():
                both[(slice(None), *place, cell)] = pair
        unsure = (both != 0).any(0) * (axis.size + 1) / 4  # of a place in float32
        more = [axis.mode != NEAREST, (axis.mode == BICUBIC) * 4 * axis.factor]
        exact.append(both)
        sizes.append(np.abs(both) + np.multiply.outer(more, unsure))
    return exact, sizes


def table(weights: list[Any], by: int = -1) -> Any:
    """Of each place the weights of all cells of a plane; along one axis their derivatives."""
    found = np.ones((*weights[0].shape[1:3], 1))
    for axis, both in enumerate(weights):
        found = np.einsum("npq,nph->npqh", found, both[int(axis == by)])
        found = flat(found)
    return found


def flat(x: Any) -> Any:
    return x.reshape(*x.shape[:2], math.prod(x.shape[2:]))


def arrays(k: Arguments) -> Terms:
    both = [(flat(k["input"]), 0), (flat(np.abs(k["input"])), 1)]
    weights = lines(k)
    found = [np.einsum("ncq,npq->ncp", x, table(weights[n])).reshape(sampled(k)) for x, n in both]
    return Terms(*found)


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    given = [(flat(k["input"]), flat(k["grad_output"]))]
    given.append(tuple(map(np.abs, given[0])))
    axes, planes, grids = k["grid"].shape[-1], [], []
    for (x, dy), weights in zip(given, lines(k), strict=True):
        planes.append(np.einsum("ncp,npq->ncq", dy, table(weights)).reshape(k["input"].shape))
        by = [np.einsum("ncp,ncq,npq->np", dy, x, table(weights, a), optimize=True)
              for a in range(axes)]  # fmt: skip
        grids.append(np.stack(by[::-1], -1).reshape(k["grid"].shape))
    added = (table(lines(k)[0]) != 0).sum(1)
    found = {
        GRADIENTS[0]: Terms(planes[0], planes[1], summed=int(max(added.max(initial=1), 1))),
        GRADIENTS[1]: Terms(grids[0], grids[1], summed=4**axes * k["input"].shape[1]),
    }
    mask = dict(zip(GRADIENTS, k["output_mask"], strict=True))
    return {name: each if mask[name] else Terms(0 * each.value) for name, each in found.items()}


def _zeros(found: dict[str, Terms]) -> tuple[str, ...]:
    """All places may be beyond the planes, and nothing depends on the nearest cell's place."""
    return tuple(name for name, terms in found.items() if not terms.value.any())


def between(draw: Draw) -> Any:
    """Numbers whose places are near no middle and no edge of a cell, some beyond the ends.

    The last place is inside, so that not all results are near zero.
    """
    sizes = np.array(draw.shapes["input"][:1:-1])
    halves = draw.random.integers(-3, 2 * np.maximum(sizes, 1) + 2, draw.shape)
    halves.reshape(-1, len(sizes))[-1:] = 0
    place = (halves + draw.random.uniform(0.2, 0.8, draw.shape)) / 2
    if draw["align_corners"]:
        return 2 * place / np.maximum(sizes - 1, 1) - 1
    return (2 * place + 1) / np.maximum(sizes, 1) - 1


def stated(axes: int, takes: Takes, *, backward: bool) -> Statement:
    """The sampler of planes with so many axes, or its gradient."""
    sides, cells = SIDES[:axes], CELLS[:axes]
    aten_name = f"grid_sampler_{axes}d{'_backward' * backward}"
    tensors = ("grad_output", "input", "grid")[not backward :]
    names = (*tensors, *MODES, *["output_mask"][:backward])

    def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
        items, channels, *rest = base
        found = {"input": (items, channels, *rest[:axes]), "grid": (items, *rest[axes:], axes)}
        return found | ({"grad_output": (items, channels, *rest[axes:])} if backward else {})

    def torch_says(k: Arguments, torch: Any) -> Any:
        if not all(k[name].numel() for name in tensors) or not k["grid"].isfinite().all():
            return None
        found = getattr(torch.ops.aten, aten_name)(*(k[name] for name in names))
        if not backward:
            return found
        zeros = (torch.zeros_like(k[name]) for name in ("input", "grid"))
        pairs = zip(GRADIENTS, found, zeros, k["output_mask"], strict=True)
        return {name: each if asked else zero for name, each, zero, asked in pairs}

    listed = "".join(f"const aclTensor* {name}, " for name in ("gradOutput", "input", "grid")
                     [not backward :])  # fmt: skip
    listed += "int64_t interpolationMode, int64_t paddingMode, bool alignCorners, "
    ends = "const aclBoolArray* outputMask, aclTensor* inputGrad, aclTensor* gridGrad"
    way = aten(aten_name, *names)
    dtypes: tuple[DType, ...] = takes["Ascend910B"]
    limits: dict[str, Any] = {} if backward else {"products": WITH_BFLOAT16, "only": FLOATS}
    bicubic = Setup("bicubic", attributes={"interpolation_mode": 2}, **limits)
    masks = ((True, False), (False, True), (False, False))
    return Statement(
        f"aclnnGridSampler{axes}D{'Backward' * backward}",
        prototype=listed + (ends if backward else "aclTensor* out"),
        takes=takes,
        legacy=(),
        defaults={"interpolation_mode": 0, "padding_mode": 0, "align_corners": False}
        | ({"output_mask": BOTH} if backward else {}),
        attributes={MODES[0]: (0, 1), MODES[1]: (0, 1, 2), MODES[2]: (False, True)},
        inputs=(
            *[In("grad_output", normal())][:backward],
            In("input", normal()),
            In("grid", between),
        ),
        outputs=(
            (
                Out(GRADIENTS[0], "input", "input"),
                Out(GRADIENTS[1], "grid", "input"),
            )
            if backward
            else (Out("out", sampled, "input"),)
        ),
        shapes=shapes,
        loops=grad_loops if backward else loops,
        arrays=grad_arrays if backward else arrays,
        faint=lambda k: _zeros(grad_arrays(k) if backward else {"out": arrays(k)}),
        sprinkled=False,
        dtypes=dtypes,
        kernel=dtype_of("input"),
        npu=within(way, "output_mask", (BOTH,)) if backward else way,
        torch=torch_says,
        base_shapes=((2, 2, *sides, *cells), (1, 3, *sides[::-1], *cells[::-1]),
                     (3, 1, *(1 for _ in sides), *cells)),
        layout_shape=(2, 2, *sides, *cells),
        rank_shapes=((1,) * (2 + 2 * axes),),
        empty_shapes=((0, 2, *sides, *cells), (2, 2, *sides, *cells[:-1], 0)),
        sized=lambda count: (1, max(count // 2**axes, 1), *(2 for _ in sides + cells)),
        fitted=lambda base: (*base[:2], *(max(n, 1) for n in base[2 : 2 + axes]),
                             *base[2 + axes :]),
        large_shape=(1, 9001, *sides, *(1 for _ in cells[2:]), 3, 4),
        large=(
            Setup("many-rows", (9, 1001, *sides, *cells)),
            Setup("long-rows", (1, 2, *(1 for _ in cells[2:]), 251, 401, *cells)),
            Setup("channels-row", (1, 100_003, *(1 for _ in cells[1:]), 2, *(1 for _ in cells))),
        ),
        edges=(
            Setup("places", (1, 1, *(2 for _ in sides), 5, *(1 for _ in cells[1:])), values={
                "grid": np.repeat([-1.0, 1.0, 0.0, NAN, -3e38], axes).reshape(
                    1, 5, *(1 for _ in cells[1:]), axes)}, only=(FLOAT,)),
            *(Setup(f"mask-{number}", attributes={"output_mask": mask})
              for number, mask in enumerate(masks) if backward),
            *([bicubic][: axes == 2]),
        ),
        invalid=_invalid(axes, backward=backward),
        empty_before="" if backward or axes > 2 else "bicubic-old",
        empty_spares=("no-cells",),
    )  # fmt: skip


def _modes(name: str, *found: int) -> tuple[Invalid, ...]:
    return defects.values(name, -1, *found)


def _invalid(axes: int, *, backward: bool) -> tuple[Invalid, ...]:
    sides, cells = SIDES[:axes], CELLS[:axes]
    tensors = ("grad_output", "input", "grid")[not backward :]
    outputs = GRADIENTS if backward else ("out",)
    made = "grad_output" if backward else "out"
    every = (*tensors, *outputs)
    first = ("input", *(name for name in every if name != "input"))
    modes = [_modes("interpolation_mode", 3 if axes == 2 else 2), _modes("padding_mode", 3)]
    after = (2, 2, *cells)
    planes = {"input": {"shape": (2, 2, 0, *sides[1:])}}
    if backward:
        planes["input_grad"] = planes["input"]
    return (
        *(defects.nulls("output_mask") if backward else ()),
        *defects.nulls(*every),
        *defects.dtypes(*first[1:], found=FLOAT16),
        *defects.all_dtypes(*first, found=INT32),
        *defects.all_dtypes(*first, found=BF16, products=WITHOUT_BFLOAT16),
        *([] if axes == 2 else defects.formats("input", made, found=Format.NDHWC)),
        *(row for each in (modes if axes == 2 else modes[::-1]) for row in each),
        *defects.shapes("input", (2, *sides), (1, 2, 2, *sides)),
        *defects.shapes("grid", (*cells, axes), (1, 2, *cells, axes)),
        *defects.shapes(made, after[1:], (1, *after)),
        *defects.shapes("grid", (3, *cells, axes)),
        *defects.shapes(made, (3, *after[1:]), (2, 3, *cells), (*after[:-1], 3)),
        Invalid("no-cells", planes, ("input",), ShapeError),
        *defects.shapes("grid", (2, *cells, 4)),
        *(
            (
                *defects.shapes("input_grad", (2, 3, *sides), sides),
                *defects.shapes("grid_grad", (3, *cells, axes), cells),
                *(Invalid(f"mask-of-{len(mask)}", {"output_mask": mask}, ("output_mask",),
                          AttributeValueError) for mask in ((), (True,), (True,) * 3)),
            )
            if backward
            else ()
        ),
        *(() if backward or axes > 2 else (
            Invalid("bicubic-old", {"interpolation_mode": BICUBIC}, ("interpolation_mode",),
                    AttributeValueError, products=WITHOUT_BFLOAT16),
            Invalid("bicubic-double", {"interpolation_mode": BICUBIC,
                                       **defects.all_of(DOUBLE, *every)},
                    ("interpolation_mode",), AttributeValueError, alone=True),
        )),
    )  # fmt: skip


HALVES = (FLOAT, FLOAT16)
NEW = on(WITH_BFLOAT16, *FLOATS, DOUBLE)
SAMPLERS = (
    stated(2, {**NEW, **on(("Ascend910", "Ascend310P", "Ascend310B"), *HALVES, DOUBLE)},
           backward=False),
    stated(3, {**NEW, **on(("Ascend910",), *HALVES, DOUBLE)}, backward=False),
    stated(2, {**NEW, **on(("Ascend910",), *HALVES)}, backward=True),
    stated(3, {**on(WITH_BFLOAT16, *FLOATS), "Ascend950": (*FLOATS, DOUBLE),
               **on(("Ascend910",), *HALVES, DOUBLE)}, backward=True),
)  # fmt: skip
