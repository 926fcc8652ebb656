"""aclnnRepeatInterleaveGrad [src:repeat-interleave]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT16, FLOATS, INT32, INT64, UINT8
from npucall.errors import TILING_ERROR, ArgumentError, AttributeValueError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import LEFT_OUT, ONLY_950, Statement
from npucall_conformance.stating.tables import on

NAN, INF = reals.NAN, reals.INFINITY
TILING = {"status": TILING_ERROR}


def shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    cells = base[given["axis"]] if base else 1
    runs = cells if cells % 2 else cells // 2  # which could all be alike
    return {"y_grad": base, "repeats": (max(runs, 2),)}


def parts(draw: Draw) -> Any:
    """Lengths of runs that have all cells; a few have none."""
    cells = draw.shapes["y_grad"][draw["axis"]]
    if not draw.shape[0]:
        return np.zeros(0)
    inner = np.sort(draw.random.integers(0, cells, draw.shape[0] - 1, endpoint=True))
    return np.diff([0, *inner.tolist(), cells])


def lengths(k: Arguments) -> list[int]:
    given = [int(each) for each in k["repeats"].reshape(-1)]
    if len(given) > 1 or not k["y_grad"].ndim:
        return given
    cells = k["y_grad"].shape[k["axis"]]
    return given * (cells // given[0] if given and given[0] else 0)


def lines(k: Arguments, x: Any) -> Any:
    """The lines along the axis, one after the other."""
    moved = np.moveaxis(x, k["axis"], -1) if x.ndim else x.reshape(1)
    return moved.reshape(prod(moved.shape[:-1]), moved.shape[-1])


def back(k: Arguments, found: Any) -> Any:
    """Lines of runs, in the place of the axis."""
    if not k["y_grad"].ndim:
        return np.reshape(found, ())
    moved = list(shape(k))
    runs = moved.pop(k["axis"])
    return np.moveaxis(np.reshape(found, (*moved, runs)), -1, k["axis"])


def loops(k: Arguments) -> Any:
    found = []
    for line in lines(k, k["y_grad"]).tolist():
        left = iter(line)
        found += [reals.total([next(left) for _ in range(run)]) for run in lengths(k)]
    return back(k, np.array(found, np.float64))


def arrays(k: Arguments) -> Terms:
    owners = np.repeat(np.arange(len(lengths(k))), lengths(k))
    found = []
    for each in (k["y_grad"], np.abs(k["y_grad"])):
        total = np.zeros((len(lengths(k)), len(lines(k, each))))
        np.add.at(total, owners, lines(k, each).T)
        found.append(back(k, total.T))
    return Terms(found[0], found[1], summed=max([*lengths(k), 1]))


def shape(k: Arguments) -> Shape:
    found = list(k["y_grad"].shape)
    if found:
        found[k["axis"]] = len(lengths(k))
    return tuple(found)


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["y_grad"].numel():
        return None
    x = torch.zeros(shape(k), dtype=torch.float64, requires_grad=True)
    axis = k["axis"] if k["y_grad"].ndim else None
    y = torch.repeat_interleave(x, k["repeats"].long(), axis)
    return torch.autograd.grad(y, x, k["y_grad"].reshape(y.shape))[0].reshape(x.shape)


def one(note: str, y_grad: Shape, number: int, out: Shape, axis: int, *of: int) -> Setup:
    """A call whose runs have one length; ``of``: the shape of that number."""
    return Setup(
        note, shapes={"y_grad": y_grad, "out": out},
        values={"repeats": np.full(of, number)}, attributes={"axis": axis},
    )  # fmt: skip


SINGLE = one("one", (3, 4), 2, (3, 2), 1, 1)


def wrong(row: str, *values: int) -> Invalid:
    return Invalid(row, {"repeats": {"values": values}}, ("repeats",), ArgumentError)


REPEAT_INTERLEAVE_GRAD = Statement(
    "aclnnRepeatInterleaveGrad",
    prototype=(
        "const aclTensor* yGrad, const aclTensor* repeats, int64_t axis, const aclTensor* out"
    ),
    takes=on(ONLY_950, *FLOATS),
    legacy=(),
    attributes={"axis": (-1, 0, lambda base: len(base) // 2)},
    inputs=(In("y_grad", normal()), In("repeats", parts, dtypes=(INT64, INT32), apart=True)),
    outputs=(Out("out", shape, "y_grad"),),
    shapes=shapes,
    loops=loops,
    arrays=arrays,
    kernel=dtype_of("y_grad"),
    npu="torch_npu calls it in a gradient alone",
    torch=torch_says,
    rank_shapes=((5,), (2, 1, 3, 1, 1, 2, 1, 2), (1,) * 8, (2, 1, 3, 1, 2)),
    faint=lambda k: () if k["y_grad"].size else ("out",),
    broadcast=(
        Setup("more-runs-than-cells", shapes={"y_grad": (3, 2), "repeats": (9,)},
              attributes={"axis": 1}),
    ),
    reductions=(
        one("one-number", (3, 6), 3, (3, 2), -1, 1),
        one("a-number-without-dimensions", (4, 5), 2, (2, 5), 0),
        one("one-run", (2, 7, 3), 7, (2, 1, 3), 1, 1),
        one("each-cell", (5, 2), 1, (5, 2), 0, 1),
        one("no-dimensions", (), 1, (), 0, 1),
        one("neither-has-dimensions", (), 1, (), -1),
    ),
    empty=(
        one("no-runs", (2, 0, 3), 4, (2, 0, 3), 1, 1),
        Setup("neither", shapes={"y_grad": (0, 3), "repeats": (0,)}, attributes={"axis": 0}),
    ),
    edges=(
        Setup("numbers", values={"y_grad": [[1.0, NAN, INF, -INF, INF, 300, 3e4, 3e4]],
                                 "repeats": [1, 1, 2, 0, 1, 3]}, attributes={"axis": 1}),
        Setup("alike", (1000, 3), values={"y_grad": np.full((1000, 3), 0.1),
                                          "repeats": [1, 998, 0, 1]}, attributes={"axis": 0}),
    ),
    large_shape=(331, 307),
    large=(
        Setup("many-rows", (50_021, 2)),
        Setup("long-rows", (2, 50_021)),
        Setup("dimensions", (7, 11, 37, 41)),
        Setup("one-axis", (200_003,)),
        Setup("long-runs", shapes={"y_grad": (2, 100_000), "repeats": (4,)},
              attributes={"axis": 1}),
    ),
    invalid=(
        *defects.nulls("y_grad", "repeats", "out"),
        *defects.dtypes("y_grad", found=DOUBLE),
        *defects.dtypes("repeats", found=UINT8),
        *defects.dtypes("out", found=FLOAT16),
        *defects.dtypes("y_grad", found=BF16, blames=("out",)),
        *defects.ranks("y_grad", **TILING),
        *defects.shapes("repeats", (1, 2), (2, 1), **TILING),
        *defects.shapes("repeats", (0,), **TILING),
        *defects.shapes("y_grad", (), blames=("repeats",), **TILING),
        *(Invalid(f"axis-{axis}", {"axis": axis}, ("axis",), AttributeValueError, TILING_ERROR)
          for axis in (2, -3)),
        Invalid("out-of-one-number", {"out": LEFT_OUT}, ("out",), ArgumentError, TILING_ERROR,
                base=SINGLE),
        *defects.shapes("out", (3,), (3, 3), (2, 2), (6,), **TILING),
        *(Invalid(f"indivisible-{extent}", {"out": {"shape": (3, extent)}}, ("out",), ShapeError,
                  TILING_ERROR, base=SINGLE) for extent in (3, 0)),
        Invalid("no-extent", {"out": LEFT_OUT}, ("out",), ArgumentError, TILING_ERROR,
                base=SINGLE, alone=True),
        wrong("short", 1, 2),
        wrong("long", 1, 4),
        wrong("negative", -1, 5),
        Invalid("wraps-around", {"repeats": {"values": (2**62,) * 4 + (4,)}}, ("repeats",),
                ArgumentError, base=Setup(shapes={"y_grad": (3, 4), "repeats": (5,)},
                                          dtypes={"repeats": INT64})),
    ),
    empty_before="short",
    empty_spares=("shape-repeats-0",),
)  # fmt: skip
