"""aclnnIndexPutImpl [src:indexing]."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT32,
    INT64,
)
from npucall.errors import ArgumentError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import FLOAT_INSIDE, Arguments, Terms
from npucall_conformance.stating.domains import Domain, Draw, normal
from npucall_conformance.stating.npu import TorchArguments
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import INTEGERS, WITH_BFLOAT16, on
from npucall_conformance.stating.written import WrittenCall, of

NAN, INF = reals.NAN, reals.INFINITY
REAL = (*FLOATS, DOUBLE, *INTEGERS, BOOL)
INDICES = ("indices[0]", "indices[1]")
THIRD = "indices[2]"
ADDED = {"accumulate": True}


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    """One more place than there are along the first axis; values are the same for each of them."""
    places = (base[0] + (base[0] > 0),)
    return {"self_ref": base, **dict.fromkeys((*INDICES, THIRD), places), "values": base[2:]}


def places(axis: int) -> Domain:
    """Places along an axis, from the front and from the end."""

    def draw(given: Draw) -> Any:
        extent = max(given.shapes["self_ref"][axis], 1)
        return given.random.integers(-extent, extent, given.shape)

    return draw


def index_of(k: Arguments) -> tuple[Any, ...]:
    """The index as NumPy takes it."""
    there = [name for name in (*INDICES, THIRD) if k[name] is not None]
    return tuple(
        slice(None)
        if not k[name].size
        else k[name].astype(bool if k.dtypes[name] is BOOL else np.int64)
        for name in there
    )


def cells(k: Arguments) -> list[tuple[tuple[int, ...], float]]:
    """Each place that is named with what is put there, one after the other."""
    own: list[Any] = []
    for piece in index_of(k):
        if isinstance(piece, slice):
            own.append(None)
        elif piece.dtype == bool:
            rows = [p for p in product(*map(range, piece.shape)) if piece[p]]
            own += [np.array([row[axis] for row in rows], np.int64) for axis in range(piece.ndim)]
        else:
            own.append(piece)
    shape = k["self_ref"].shape
    own += [None] * (len(shape) - len(own))
    taken = [axis for axis, piece in enumerate(own) if piece is not None]
    chosen = np.broadcast_shapes(*(own[axis].shape for axis in taken))
    grids = {axis: np.broadcast_to(own[axis], chosen) for axis in taken}
    rest = [axis for axis in range(len(shape)) if axis not in taken]
    apart = any(b - a > 1 for a, b in pairwise(taken))
    before = [] if apart else [axis for axis in rest if taken and axis < taken[0]]
    behind = [axis for axis in rest if axis not in before]
    extents = (*(shape[a] for a in before), *chosen, *(shape[a] for a in behind))
    put = np.broadcast_to(k["values"], extents)
    found = []
    for place in product(*map(range, extents)):
        middle = place[len(before) : len(before) + len(chosen)]
        there = dict(
            zip(
                (*before, *behind),
                (*place[: len(before)], *place[len(before) + len(chosen) :]),
                strict=True,
            )
        )
        there |= {axis: int(grid[middle]) % shape[axis] for axis, grid in grids.items()}
        found.append((tuple(there[axis] for axis in range(len(shape))), float(put[place])))
    return found  # fmt: skip


def loops(k: Arguments) -> Any:
    out = k["self_ref"].copy()
    if not k["values"].size:
        return out
    terms: dict[Any, list[float]] = {}
    for place, value in cells(k):
        terms.setdefault(place, [float(out[place])]).append(value)
    for place, added in terms.items():
        out[place] = reals.total(added) if k["accumulate"] else added[-1]
    return out


def arrays(k: Arguments) -> Terms:
    value, index = k["self_ref"].copy(), index_of(k)
    if not k["values"].size:
        return Terms(value)
    if not k["accumulate"]:
        value[index] = k["values"]
        return Terms(value)
    size, counts = np.abs(value), np.ones(value.shape, np.int64)
    put = np.broadcast_to(k["values"], value[index].shape)
    for target, more in ((value, put), (size, np.abs(put)), (counts, 1)):
        np.add.at(target, index, more)
    return Terms(value, size, summed=int(counts.max()))


def indices_in(k: Any, name: str, is_mask: bool) -> Any:  # noqa: FBT001
    """An index as torch takes it: None for all of an axis."""
    if not k[name].numel():
        return None
    return k[name].bool() if is_mask else k[name].long()


def torch_says(k: Arguments, torch: Any) -> Any:
    found = [indices_in(k, n, k.dtypes[n] is BOOL) for n in (*INDICES, THIRD) if k[n] is not None]
    if all(each is None for each in found):
        return None
    return torch.ops.aten.index_put(k["self_ref"], found, k["values"], k["accumulate"])


def npu(given: TorchArguments) -> Any:
    found = [each if each.numel() else None for each in given["indices"]]
    return given.aten.index_put_.default(
        given["self_ref"], found, given["values"], given["accumulate"]
    )


MASK = np.array([[1, 0, 1], [0, 1, 1]])
INDEX_PUT_IMPL = Statement(
    "aclnnIndexPutImpl",
    prototype=(
        "aclTensor* selfRef, const aclTensorList* indices, const aclTensor* values, "
        "const bool accumulate, const bool unsafe"
    ),
    takes={
        **on(WITH_BFLOAT16, *REAL),
        **on(("Ascend910",), *(each for each in REAL if each is not BF16)),
    },
    legacy=(),
    defaults={"accumulate": False, "unsafe": False},
    inputs=(
        In("self_ref", normal(), updated=True),
        In(INDICES[0], places(0), dtypes=(INT64, INT32), apart=True),
        In(INDICES[1], places(1), dtypes=(INT64, INT32), optional=True, apart=True),
        In(THIRD, places(2), dtypes=(INT64, INT32), optional=True, refused=True, apart=True),
        In("values", normal()),
    ),
    outputs=(Out("self_ref", "self_ref", "self_ref"),),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=dtype_of("self_ref"),
    cost=lambda k: FLOAT_INSIDE if k["accumulate"] else 0.0,
    dtypes=(*FLOATS, DOUBLE),
    attributes={"accumulate": (False, True), "unsafe": (False,)},
    npu=npu,
    torch=torch_says,
    base_shapes=((4, 6), (3, 5, 7), (2, 3, 4, 5)),
    rank_shapes=((2, 1, 3, 1, 1, 2, 1, 2), (1,) * 8, (2, 1, 3, 1, 2)),
    empty_shapes=((0, 3), (2, 0), (2, 0, 3)),
    sized=lambda count: (max(count // 8, 1), 8),
    broadcast=(
        Setup("full", (3, 4), shapes={INDICES[0]: (5,), "values": (5, 4)}, absent=(INDICES[1],),
              attributes=ADDED),
        Setup("column", (3, 4), shapes={INDICES[0]: (5,), "values": (5, 1)}, absent=(INDICES[1],),
              attributes=ADDED),
        Setup("stretched", (3, 4, 2), shapes={INDICES[0]: (5, 1), INDICES[1]: (3,),
              "values": (5, 3, 2)}, absent=("",), attributes=ADDED),
        Setup("number", (3, 4, 2), shapes={INDICES[0]: (), INDICES[1]: (3,), "values": (3, 1)},
              absent=("",), attributes=ADDED),
        Setup("all-of-the-first", (3, 4, 2), shapes={INDICES[0]: (0,), INDICES[1]: (2, 3),
              "values": (3, 2, 1, 2)}, absent=("",), attributes=ADDED),
        Setup("all", (3, 4), shapes={INDICES[0]: (0,), INDICES[1]: (0,), "values": (3, 4)},
              absent=("",)),
        Setup("all-of-the-second", (3, 4, 5, 2), shapes={INDICES[0]: (2, 1), INDICES[1]: (0,),
              THIRD: (3,), "values": (3, 4, 2)}, absent=("",)),
        Setup("three", (3, 4, 5), shapes={INDICES[0]: (2, 1), INDICES[1]: (3,), THIRD: (1,),
              "values": (2, 1)}, absent=("",), attributes=ADDED),
    ),
    edges=(
        Setup("mask", (2, 3, 2), shapes={"values": (4, 2)}, values={INDICES[0]: MASK},
              dtypes={INDICES[0]: BOOL}, absent=(INDICES[1],)),
        Setup("mask-behind", (4, 3), shapes={"values": (4, 2)},
              values={INDICES[0]: np.zeros(0), INDICES[1]: np.array([1, 0, 1])},
              dtypes={INDICES[1]: BOOL}, absent=("",)),
        Setup("mask-beside", (4, 3), shapes={"values": (2,)},
              values={INDICES[0]: [3, -4], INDICES[1]: np.array([1, 0, 1])},
              dtypes={INDICES[1]: BOOL}, absent=("",)),
        Setup("no-true", (3, 2), shapes={"values": (0, 2)}, values={INDICES[0]: np.zeros(3)},
              dtypes={INDICES[0]: BOOL}, absent=(INDICES[1],)),
        Setup("one-place", (3, 2), shapes={INDICES[0]: (200,), "values": (200, 2)},
              absent=(INDICES[1],), attributes=ADDED),
        Setup("numbers", (4, 2), absent=(INDICES[1],), attributes=ADDED,
              values={INDICES[0]: [0, 1, 2, 3], "values": [[INF, 1], [-INF, NAN], [0, -0.0],
                                                           [3e38, 1e-40]]}),
    ),
    empty=(Setup("no-values", (2, 3), shapes={"values": (0,)}),),
    written=(
        WrittenCall("integers", {"self_ref": of(INT8, 100, 1, shape=(2, 1)),
                                 INDICES[0]: of(INT64, 0, 0), "values": of(INT8, 20)},
                    (of(INT8, -116, 1, shape=(2, 1)),), ADDED),
        WrittenCall("of-64-bits", {"self_ref": of(INT64, 2**62, 1), INDICES[0]: of(INT32, -1),
                                   "values": of(INT64, 2**62 + 1)},
                    (of(INT64, 2**62, 2**62 + 2),), ADDED),
        WrittenCall("truth", {"self_ref": of(BOOL, 0, 1), INDICES[0]: of(INT64, 0, 0),
                              "values": of(BOOL, 1)}, (of(BOOL, 1, 1),), ADDED),
    ),
    empty_before="places-apart",
    empty_spares=("dtype-float-indices",),
    invalid=(
        *defects.nulls("self_ref", "values", "indices"),
        *defects.dtypes("self_ref", found=COMPLEX64),
        *defects.no_bfloat16("self_ref"),
        *defects.dtypes("values", found=COMPLEX64),
        *defects.dtypes(*INDICES, found=FLOAT),
        *defects.dtypes("values", found=FLOAT16),
        *defects.ranks("self_ref"),
        Invalid("too-many", {INDICES[0]: {"dtype": BOOL, "shape": (3, 4)}}, ("indices",),
                ShapeError),
        Invalid("mask", {INDICES[0]: {"dtype": BOOL, "shape": (4,)}}, INDICES[:1], ShapeError),
        Invalid("mask-of-number", {INDICES[1]: {"dtype": BOOL, "shape": ()}}, INDICES[1:],
                ShapeError),
        Invalid("places-apart", {INDICES[1]: {"shape": (3,)}}, INDICES, ShapeError),
        *defects.shapes("values", (3,), (1, 4)),
        *(Invalid(f"place-{found}-{name}", {name: {"values": np.array([found, 0, 0, 0])}}, (name,),
                  ArgumentError)
          for name, found in ((INDICES[0], 3), (INDICES[0], -4), (INDICES[1], 4))),
    ),
)  # fmt: skip
