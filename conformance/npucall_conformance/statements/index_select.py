"""aclnnIndexSelect and aclnnIndexAdd [src:indexing]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import (
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT8_E5M2,
    FLOAT16,
    FLOATS,
    INT8,
    INT32,
    INT64,
    UINT16,
)
from npucall.errors import DTypeError
from npucall.tensors import Shape
from npucall_conformance.statements import _indexing as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import INTEGERS, WITH_BFLOAT16, on
from npucall_conformance.stating.written import WrittenCall, of

NAN, INF = reals.NAN, reals.INFINITY
COMMON: dict[str, Any] = {
    "legacy": (),
    "kernel": dtype_of("self"),
    "attributes": {"dim": shared.DIMS},
    "dtypes": (*FLOATS, DOUBLE),
}


def shape(k: Arguments) -> Shape:
    own, axis = k["self"].shape, shared.axis_of(k)
    return (*own[:axis], k["index"].size, *own[axis + 1 :]) if own else ()


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    return {"self": base, "index": (shared.extent(base, attributes["dim"]),)}


def slices(array: Any, axis: int) -> list[Any]:
    """The slices along a dimension, as nested lists."""
    rows: list[Any] = np.moveaxis(shared.as_rows(array), axis, 0).tolist()
    return rows


def loops(k: Arguments) -> Any:
    rows, axis = slices(k["self"], shared.axis_of(k)), shared.axis_of(k)
    found = [rows[int(i)] for i in k["index"].reshape(-1).tolist()]
    moved = np.array(found, k["self"].dtype)
    if not k["index"].size:
        return np.empty(shape(k))
    return np.moveaxis(moved, 0, axis).reshape(shape(k))


def arrays(k: Arguments) -> Terms:
    chosen = k["index"].reshape(-1).astype(np.int64)
    taken = np.take(shared.as_rows(k["self"]), chosen, shared.axis_of(k))
    return Terms(taken.reshape(shape(k)))


INDEX_SELECT = Statement(
    "aclnnIndexSelect",
    prototype="const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out",
    takes=shared.and_on(("Ascend910", "Ascend310P"), *shared.EVERY),
    inputs=(In("self", normal(2.0)), shared.index(shared.places())),
    outputs=(Out("out", shape, "self"),),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    cost=0.0,
    npu=aten("index_select", "self", "dim", "index"),
    torch=lambda k, torch: torch.index_select(k["self"], k["dim"], k["index"].long().reshape(-1)),
    **COMMON,
    edges=(
        Setup("numbers", (7,), values={
            "self": [0.0, -0.0, NAN, INF, -INF, 3e38, 1e-40], "index": [6, 5, 4, 3, 2, 1, 0, 0]}),
        Setup("one-number", (3, 4), shapes={"index": ()}),
    ),
    written=(
        WrittenCall("integers", {"self": of(INT64, 2**62 + 1, 5), "index": of(INT32, 1, 0, 0)},
                    (of(INT64, 5, 2**62 + 1, 2**62 + 1),), {"dim": 0}),
        WrittenCall("unsigned", {"self": of(UINT16, 65535, 5), "index": of(INT64, 0)},
                    (of(UINT16, 65535, shape=(1,)),), {"dim": 0}),
        WrittenCall("complex", {"self": of(COMPLEX64, 1 - 2j, 3j), "index": of(INT64, 1)},
                    (of(COMPLEX64, 3j, shape=(1,)),), {"dim": -1}),
    ),
    invalid=(
        *defects.nulls("self", "index", "out"),
        *defects.dtypes("self", found=FLOAT8_E5M2),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT16),
        *shared.refused_index(),
        *defects.formats("self", "index", "out"),
        *defects.ranks("self"),
        *defects.values("dim", 2, -3),
        *defects.shapes("index", (1, 3), block="rank", alone=True),
        shared.number_with("index", (2,)),
        *defects.shapes("out", (3, 3), (4, 4), (12,)),
        *shared.beyond((3,), 3, -1),
    ),
    empty_spares=("index-",),
)  # fmt: skip

REAL = (*FLOATS, DOUBLE, *INTEGERS, BOOL)


def add_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    """One more slice than there are places, so that one is named twice."""
    axis = attributes["dim"] % max(len(base), 1)
    source = tuple(n + (n > 0 and i == axis) for i, n in enumerate(base))
    return {"self": base, "index": (shared.extent(source, axis),), "source": source}


def add_loops(k: Arguments) -> Any:
    axis, alpha = shared.axis_of(k), k["alpha"]
    rows = np.moveaxis(shared.as_rows(k["self"]), axis, 0)
    more = np.moveaxis(shared.as_rows(k["source"]), axis, 0)
    terms: list[list[list[float]]] = [[[x] for x in row.reshape(-1).tolist()] for row in rows]
    for place, row in zip(k["index"].reshape(-1).tolist(), more, strict=True):
        for cell, x in zip(terms[int(place)], row.reshape(-1).tolist(), strict=True):
            cell.append(x * alpha)
    sums = np.reshape([[reals.total(cell) for cell in row] for row in terms], rows.shape)
    return np.moveaxis(sums, 0, axis).reshape(k["self"].shape)


def add_arrays(k: Arguments) -> Terms:
    axis = shared.axis_of(k)
    places = k["index"].reshape(-1).astype(np.int64)
    value = np.moveaxis(shared.as_rows(k["self"]), axis, 0).copy()
    size, more = np.abs(value), np.moveaxis(shared.as_rows(k["source"]), axis, 0) * k["alpha"]
    np.add.at(value, places, more)
    np.add.at(size, places, np.abs(more))
    counts = np.bincount(places, minlength=1)
    back = [np.moveaxis(each, 0, axis).reshape(k["self"].shape) for each in (value, size)]
    return Terms(back[0], back[1], summed=1 + int(counts.max()))


INDEX_ADD = Statement(
    "aclnnIndexAdd",
    prototype=(
        "const aclTensor* self, const int64_t dim, const aclTensor* index, "
        "const aclTensor* source, const aclScalar* alpha, aclTensor* out"
    ),
    takes=on(WITH_BFLOAT16, *REAL),
    in_kernel=("alpha",),
    short_as_float=True,
    inputs=(In("self", normal()), shared.index(shared.places()), In("source", normal())),
    outputs=(Out("out", "self", "self"),),
    loops=add_loops,
    arrays=add_arrays,
    shapes=add_shapes,
    npu=aten("index_add", "self", "dim", "index", "source", alpha="alpha"),
    torch=lambda k, torch: torch.index_add(
        k["self"], k["dim"], k["index"].long().reshape(-1), k["source"], alpha=k["alpha"]
    ),
    **{**COMMON, "attributes": {"dim": shared.DIMS, "alpha": (1.0, -0.75)}},
    edges=(
        Setup("one-place", (2, 3), shapes={"source": (200, 3)}, attributes={"dim": 0},
              values={"index": np.ones(200)}),
        Setup("numbers", (4,), attributes={"dim": 0}, values={
            "self": [1.0, INF, NAN, 2.0], "index": [0, 1, 2, 3],
            "source": [INF, -INF, 1.0, 3.0]}),
    ),
    empty=(Setup("no-source", (2, 3), shapes={"index": (0,), "source": (0, 3)},
                 attributes={"dim": 0}),),
    written=(
        WrittenCall("integers", {"self": of(INT8, 100, 1), "index": of(INT64, 0, 0),
                                 "source": of(INT8, 20, 20)}, (of(INT8, -116, 1),),
                    {"dim": 0, "alpha": Scalar(INT8, 1)}),
        WrittenCall("of-64-bits", {"self": of(INT64, 2**62, 1), "index": of(INT32, *[1] * 70),
                                   "source": of(INT64, *[2**55 + 1] * 70)},
                    (of(INT64, 2**62, 70 * 2**55 + 71),), {"dim": 0, "alpha": Scalar(INT64, 1)}),
        WrittenCall("truth", {"self": of(BOOL, 0, 1), "index": of(INT64, 0, 0),
                              "source": of(BOOL, 1, 1)}, (of(BOOL, 1, 1),),
                    {"dim": 0, "alpha": Scalar(BOOL, value=True)}),
    ),
    invalid=(
        *defects.nulls("self", "index", "source", "alpha", "out"),
        *defects.dtypes("self", found=UINT16),
        *shared.refused_index(),
        *defects.dtypes("source", found=COMPLEX64),
        *defects.dtypes("source", found=FLOAT16),
        *defects.dtypes("out", found=FLOAT16),
        Invalid("complex-alpha", {"alpha": Scalar(COMPLEX64, 1)}, ("alpha",), DTypeError),
        Invalid("alpha-of-integers", {"alpha": Scalar(FLOAT, 1.0),
                **defects.all_of(INT32, "self", "source", "out")}, ("alpha",), DTypeError),
        *defects.ranks("self", "source"),
        *defects.values("dim", 2, -3),
        *defects.shapes("source", (4, 5), (4,), ()),
        *defects.shapes("index", (2, 2), block="rank", alone=True),
        *defects.shapes("index", (3,), (), alone=True),
        *defects.shapes("out", (4, 3), (12,)),
        *shared.beyond((4,), 3, -1),
    ),
    empty_spares=("index-",),
)  # fmt: skip
