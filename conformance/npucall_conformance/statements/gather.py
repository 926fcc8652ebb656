"""aclnnGather and aclnnScatterAdd [src:indexing]."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import (
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT16,
    FLOATS,
    INT8,
    INT32,
    INT64,
    UINT16,
    UINT32,
    UINT64,
)
from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _indexing as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import ARITHMETIC, INTEGERS, WITH_BFLOAT16, on
from npucall_conformance.stating.written import WrittenCall, of

NAN, INF = reals.NAN, reals.INFINITY
PLACED = (*FLOATS, DOUBLE, *INTEGERS, UINT16, UINT32, UINT64, BOOL)
LATER = ("Ascend950",)
COMMON: dict[str, Any] = {
    "kernel": dtype_of("self"),
    "attributes": {"dim": shared.DIMS},
    "dtypes": (*FLOATS, DOUBLE),
}


def fewer(base: Shape, dim: int, more: int) -> Shape:
    """Not all of the other dimensions, and so many more along this one."""
    axis = dim % max(len(base), 1)
    return tuple(n + more * (n > 0) if i == axis else n - (n > 2) for i, n in enumerate(base))


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    return {"self": base, "index": fewer(base, attributes["dim"], 1)}


def cells(k: Arguments) -> Any:
    """The places of all indices, and those of self that they name."""
    index, axis = shared.as_rows(k["index"]), shared.axis_of(k)
    for place in product(*map(range, index.shape)):
        there = list(place)
        there[axis] = int(index[place])
        yield place, tuple(there)


def loops(k: Arguments) -> Any:
    rows = shared.as_rows(k["self"])
    found = [rows[there] for _, there in cells(k)]
    return np.reshape(np.array(found, k["self"].dtype), k["index"].shape)


def arrays(k: Arguments) -> Terms:
    index, axis = shared.as_rows(k["index"]).astype(np.int64), shared.axis_of(k)
    grid = [index if n == axis else each for n, each in enumerate(np.indices(index.shape))]
    return Terms(shared.as_rows(k["self"])[tuple(grid)].reshape(k["index"].shape))


GATHER = Statement(
    "aclnnGather",
    prototype="const aclTensor* self, const int64_t dim, const aclTensor* index, aclTensor* out",
    takes=shared.and_on(("Ascend910", "Ascend310P"), *PLACED),
    legacy=("Ascend950", "Ascend910", "Ascend310P"),
    inputs=(In("self", normal(2.0)), shared.index(shared.places())),
    outputs=(Out("out", "index", "self"),),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    cost=0.0,
    npu=aten("gather", "self", "dim", "index"),
    torch=lambda k, torch: torch.gather(k["self"], k["dim"], k["index"].long()),
    **COMMON,
    edges=(
        Setup("numbers", (7,), attributes={"dim": 0}, values={
            "self": [0.0, -0.0, NAN, INF, -INF, 3e38, 1e-40], "index": [6, 5, 4, 3, 2, 1, 0]}),
        Setup("ranks", shapes={"self": (3,), "index": ()}, attributes={"dim": 0}),
    ),
    empty=(Setup("no-index", (2, 3), shapes={"index": (0, 9)}, attributes={"dim": 0}),),
    written=(
        WrittenCall("unsigned", {"self": of(UINT64, 2**63 + 1, 5), "index": of(INT32, 1, 0, 0)},
                    (of(UINT64, 5, 2**63 + 1, 2**63 + 1),), {"dim": 0}),
    ),
    invalid=(
        *defects.nulls("self", "index", "out"),
        *defects.dtypes("self", found=COMPLEX64),
        *defects.no_bfloat16("self"),
        *shared.refused_index(),
        *defects.dtypes("out", found=FLOAT16),
        *defects.shapes("index", (12,), (4, 3, 1), block="rank"),
        shared.nine("self", "index", "out"),
        *defects.shapes("out", (4, 4), (12,)),
        *defects.values("dim", 2, -3),
        Invalid("wide-index", {n: {"shape": (4, 5)} for n in ("index", "out")}, ("index",),
                ShapeError, alone=True),
        Invalid("nothing-along", {"self": {"shape": (0, 4)}}, ("self",), ShapeError),
        *shared.beyond((4, 3), 3, -1),
    ),
    empty_before="wide-index",
    empty_spares=("dtype-float-index", "dtype-uint16-index"),
)  # fmt: skip


def scatter_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    index = fewer(base, attributes["dim"], 1)
    return {"self": base, "index": index, "src": tuple(n + (n > 1) for n in index)}


def scatter_loops(k: Arguments) -> Any:
    own, src = shared.as_rows(k["self"]), shared.as_rows(k["src"])
    if not k["index"].size:
        return k["self"]
    terms: dict[Any, list[float]] = {}
    for place, there in cells(k):
        terms.setdefault(there, [float(own[there])]).append(float(src[place]))
    out = own.astype(np.float64)
    for there, added in terms.items():
        out[there] = reals.total(added)
    return out.reshape(k["self"].shape)


def scatter_arrays(k: Arguments) -> Terms:
    value = shared.as_rows(k["self"]).astype(np.float64)
    size, counts = np.abs(value), np.ones(value.shape, np.int64)
    if k["index"].size:
        index, axis = shared.as_rows(k["index"]).astype(np.int64), shared.axis_of(k)
        grid = tuple(index if n == axis else g for n, g in enumerate(np.indices(index.shape)))
        src = shared.as_rows(k["src"])[tuple(slice(0, n) for n in index.shape)]
        np.add.at(value, grid, src)
        np.add.at(size, grid, np.abs(src))
        np.add.at(counts, grid, 1)
    own = k["self"].shape
    return Terms(value.reshape(own), size.reshape(own), summed=int(counts.max(initial=1)))


BOTH = ("index", "src")
SCATTER_ADD = Statement(
    "aclnnScatterAdd",
    prototype=(
        "const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* src, "
        "aclTensor* out"
    ),
    takes=on(WITH_BFLOAT16, *ARITHMETIC),
    legacy=(),
    inputs=(In("self", normal()), shared.index(shared.places()), In("src", normal())),
    outputs=(Out("out", "self", "self"),),
    loops=scatter_loops,
    arrays=scatter_arrays,
    shapes=scatter_shapes,
    npu=aten("scatter_add", "self", "dim", "index", "src"),
    torch=lambda k, torch: torch.scatter_add(
        k["self"], k["dim"], k["index"].long(), k["src"]
    ),
    **COMMON,
    edges=(
        Setup("one-place", (2, 3), shapes={"src": (200, 3)}, attributes={"dim": 0},
              values={"index": np.ones((200, 3))}),
        Setup("numbers", (4,), attributes={"dim": 0}, values={
            "self": [1.0, INF, NAN, 2.0], "index": [0, 1, 2, 3], "src": [INF, -INF, 1.0, 3.0]}),
    ),
    empty=(Setup("no-index", (2, 3), shapes={"index": (0,), "src": (4,)},
                 attributes={"dim": 0}),),
    written=(
        WrittenCall("integers", {"self": of(INT8, 100, 1), "index": of(INT64, 0, 0),
                                 "src": of(INT8, 20, 20)}, (of(INT8, -116, 1),), {"dim": 0}),
        WrittenCall("of-64-bits", {"self": of(INT64, 2**62, 1), "index": of(INT32, *[1] * 70),
                                   "src": of(INT64, *[2**55 + 1] * 70)},
                    (of(INT64, 2**62, 70 * 2**55 + 71),), {"dim": 0}),
        WrittenCall("truth", {"self": of(BOOL, 0, 1), "index": of(INT64, 0, 0),
                              "src": of(BOOL, 1, 1)}, (of(BOOL, 1, 1),), {"dim": 0}),
        WrittenCall("complex", {"self": of(COMPLEX64, 1j, 2), "index": of(INT64, 1, 1),
                                "src": of(COMPLEX64, 1, 2j)}, (of(COMPLEX64, 1j, 3 + 2j),),
                    {"dim": 0}),
    ),
    invalid=(
        *defects.nulls("self", "index", "src", "out"),
        *defects.dtypes("self", found=UINT16),
        *defects.dtypes("src", "out", found=FLOAT16),
        *shared.refused_index(),
        *defects.shapes("out", (3, 3), (12,)),
        *defects.shapes("index", (12,), (4, 3, 1), blames=BOTH, block="rank"),
        *defects.shapes("src", (12,), blames=BOTH, block="rank"),
        *defects.shapes("src", (4, 2), (3, 4), blames=("index",)),
        *defects.values("dim", 2, -3),
        Invalid("wide-index", {n: {"shape": (4, 5)} for n in ("index", "src")}, ("index",),
                ShapeError, alone=True),
        shared.nine("self", "index", "src", "out"),
        *shared.beyond((4, 3), 3, -1),
    ),
    empty_before="rank-9",
    empty_spares=("dtype-float-index", "dtype-uint16-index", "shape-src", "dim-"),
)  # fmt: skip
