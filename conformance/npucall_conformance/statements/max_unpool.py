"""aclnnMaxUnpool2d, 3d, and their gradients [src:max-unpool]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import (
    BF16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
)
from npucall.errors import ArgumentError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import max_pool2d, pool3d
from npucall_conformance.statements.max_pool2d import several
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on

COPIED = (FLOAT, FLOAT16, INT8, UINT8, INT16, INT32, INT64)
CASES = (FLOAT, FLOAT16, INT32)
SIZES = {2: ((5, 9),), 3: ((3, 5, 6),)}
PLANES = {2: (2, 2, 4, 5), 3: (2, 2, 3, 3, 4)}
C_ARRAYS = {
    2: "const aclIntArray* outputSize",
    3: "const aclIntArray* outputSize, const aclIntArray* stride, const aclIntArray* padding",
}
DEFAULTS: dict[int, Any] = {2: {}, 3: {"stride": (1, 1, 1), "padding": (0, 0, 0)}}


def beyond(axes: int) -> Any:
    """Planes of a few cells more than the numbers have."""
    return lambda base: tuple(extent + 1 for extent in base[-axes:])


def shared(axes: int) -> dict[str, Any]:
    of_planes = max_pool2d.COMMON if axes == 2 else pool3d.SHAPES
    found = {
        name: value
        for name, value in of_planes.items()
        if name
        not in ("defaults", "attributes", "defaulted", "kernel", "base_shapes", "empty_shapes")
    }
    return {
        **found,
        "base_shapes": ((1, 2, 3, 4), (2, 3, 2)) if axes == 2 else ((1, 2, 2, 3, 2), (2, 2, 3, 2)),
        "empty_shapes": ((0, *(2,) * (axes + 1)),),
        "cost": 0.0,
        "dtypes": CASES,
        "defaults": DEFAULTS[axes],
        "attributes": {"output_size": (beyond(axes),)},
    }  # fmt: skip


def whole(k: Any, axes: int) -> Shape:
    return (*k["self"].shape[:-axes], *k["output_size"])


def places(axes: int) -> Any:
    """For each plane as many places as there are numbers, none of them twice."""

    def draw_places(draw: Draw) -> Any:
        count = math.prod(draw.shape[-axes:])
        room = math.prod(extent + 1 for extent in draw.shape[-axes:])
        planes = [
            draw.random.permutation(room)[:count] for _ in range(math.prod(draw.shape[:-axes]))
        ]
        return np.reshape(planes, draw.shape)

    return draw_places


def by_planes(k: Arguments, name: str, axes: int) -> Any:
    shape = k[name].shape
    return k[name].reshape(math.prod(shape[:-axes]), math.prod(shape[-axes:]))


def filled(k: Arguments, axes: int) -> Any:
    """Number by number."""
    found = []
    numbers, where = (by_planes(k, name, axes).tolist() for name in ("self", "indices"))
    for own, at in zip(numbers, where, strict=True):
        plane = [0.0] * math.prod(k["output_size"])
        for number, place in zip(own, at, strict=True):
            plane[int(place)] = number
        found.append(plane)
    return np.reshape(found, whole(k, axes))


def filled_of_arrays(k: Arguments, axes: int) -> Terms:
    numbers, where = by_planes(k, "self", axes), by_planes(k, "indices", axes).astype(np.int64)
    found = np.zeros((len(numbers), math.prod(k["output_size"])))
    for column in range(numbers.shape[1]):
        found[np.arange(len(found)), where[:, column]] = numbers[:, column]
    return Terms(found.reshape(whole(k, axes)))


def taken(k: Arguments, axes: int) -> Any:
    gradients, where = (by_planes(k, name, axes).tolist() for name in ("grad_output", "indices"))
    found = [
        [plane[int(place)] for place in at] for plane, at in zip(gradients, where, strict=True)
    ]
    return np.reshape(found, k["self"].shape)


def taken_of_arrays(k: Arguments, axes: int) -> Terms:
    where = by_planes(k, "indices", axes).astype(np.int64)
    lines = np.arange(len(where))[:, np.newaxis]
    return Terms(by_planes(k, "grad_output", axes)[lines, where].reshape(k["self"].shape))


def says(axes: int) -> Any:
    def torch_says(k: Arguments, torch: Any) -> Any:
        if not k["self"].numel():
            return None
        more = [k["stride"], k["padding"]] if axes == 3 else []
        function = getattr(torch.ops.aten, f"max_unpool{axes}d")
        return function(k["self"], k["indices"].long(), k["output_size"], *more)

    return torch_says


def grad_says(axes: int) -> Any:
    def torch_says(k: Arguments, torch: Any) -> Any:
        if not k["self"].numel():
            return None
        flat = k["grad_output"].flatten(-axes).gather(-1, k["indices"].long().flatten(-axes))
        return flat.reshape(k["self"].shape)

    return torch_says


def outside(base: Shape, room: int) -> tuple[Invalid, ...]:
    return tuple(
        Invalid(f"index-{name}", {"indices": {"values": np.full(base, value)}}, ("indices",),
                ArgumentError, alone=True)
        for name, value in (("beyond", float(room)), ("below", -1.0))
    )  # fmt: skip


def no_channels(base: Shape, *names: str) -> Invalid:
    shape = {"shape": (2, 0, *base[2:])}
    return Invalid("no-channels", dict.fromkeys(names, shape), ("self",), ShapeError)


def no_gradients(base: Shape) -> tuple[Invalid, ...]:
    changes = {"grad_output": {"shape": (*base[:-2], 0, 1)}, "output_size": (0, 1)}
    return (Invalid("no-gradients", changes, ("grad_output",), ShapeError),)


def gaps(name: str, shape: Shape) -> tuple[Invalid, ...]:
    strides = [2]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return (Invalid(f"gaps-{name}", {name: {"strides": tuple(strides)}}, (name,), ShapeError),)


def arrays_wrong(axes: int) -> tuple[Invalid, ...]:
    sizes = ((), (2,) * (axes + 1), (0, *(40,) * (axes - 1)), (-1, *(-40,) * (axes - 1)))
    return (
        *several("output_size", *sizes),
        *(several("stride", (), (1, 1), (0, 1, 1)) if axes == 3 else ()),
        *(several("padding", (), (0, 0)) if axes == 3 else ()),
        *several("output_size", (2,) * axes),
    )


def stated(axes: int) -> Statement:
    base = PLANES[axes]
    output = "out" if axes == 2 else "out_ref"
    room = tuple(extent + 1 for extent in base[-axes:])
    arrays = ("output_size", *DEFAULTS[axes])
    return Statement(
        f"aclnnMaxUnpool{axes}d",
        prototype=(
            f"const aclTensor* self, const aclTensor* indices, {C_ARRAYS[axes]}, "
            f"aclTensor* {'out' if axes == 2 else 'outRef'}"
        ),
        takes=on(pool3d.NEW, *COPIED, DOUBLE),
        inputs=(In("self", normal(9.0)), In("indices", places(axes), dtypes=(INT64, INT32))),
        outputs=(Out(output, lambda k: whole(k, axes), "self", dense=axes == 3),),
        loops=lambda k: filled(k, axes),
        arrays=lambda k: filled_of_arrays(k, axes),
        kernel=dtype_of("self"),
        npu=aten(f"max_unpool{axes}d", "self", "indices", *arrays),
        torch=says(axes),
        **shared(axes),
        mixed=tuple(Setup(dtypes={"self": each, output: each})
                    for each in (DOUBLE, INT8, UINT8, INT16, INT64)),
        invalid=(
            *defects.nulls("self", "indices", *arrays, output),
            *(gaps(output, (2, 2, *room)) if axes == 3 else ()),
            *defects.dtypes("self", found=BF16),
            *defects.dtypes(output, found=FLOAT16),
            *defects.dtypes("indices", found=FLOAT),
            *defects.shapes("self", base[2:], (1, 1, *base)),
            *defects.shapes("indices", base[1:]),
            no_channels(base, "self", "indices"),
            *arrays_wrong(axes),
            *defects.shapes(output, (2, *room), (2, 3, *room)),
            *outside(base, math.prod(room)),
        ),
        empty_spares=("index-", "no-", "gaps-"),
    )  # fmt: skip


def grad_stated(axes: int) -> Statement:
    base = PLANES[axes]
    room = tuple(extent + 1 for extent in base[-axes:])
    arrays = ("output_size", *DEFAULTS[axes])
    flat = axes == 2
    takes = (
        on((*pool3d.NEW, "Ascend910"), *COPIED, BOOL) if flat else on(pool3d.NEW, *COPIED, DOUBLE)
    )

    def shapes(base: Shape, k: Attributes) -> dict[str, Shape]:
        return {"grad_output": (*base[:-axes], *beyond(axes)(base)), "self": base, "indices": base}

    every = ("grad_output", "self", "out")
    more = (INT8, UINT8, INT16, INT64, *((BOOL,) if flat else (DOUBLE,)))
    cast = (
        Setup(dtypes={"out": FLOAT16}),
        Setup(dtypes={"grad_output": INT32, "self": INT32, "out": FLOAT}),
    )
    return Statement(
        f"aclnnMaxUnpool{axes}dBackward",
        prototype=(
            "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* indices, "
            f"{C_ARRAYS[axes]}, aclTensor* out"
        ),
        takes=takes,
        inputs=(
            In("grad_output", normal(9.0)),
            In("self", normal(), read=False),
            In("indices", places(axes), dtypes=(INT64, INT32) if flat else (INT64,)),
        ),
        outputs=(Out("out", "self", "grad_output", dense=not flat),),
        loops=lambda k: taken(k, axes),
        arrays=lambda k: taken_of_arrays(k, axes),
        shapes=shapes,
        kernel=dtype_of("grad_output"),
        npu="torch calls it in autograd alone",
        torch=grad_says(axes),
        **shared(axes),
        mixed=(
            *(Setup(dtypes=dict.fromkeys(every, each)) for each in more),
            *(cast if flat else ()),
        ),
        invalid=(
            *defects.nulls("grad_output", "self", "indices", *arrays, "out"),
            *(() if flat else gaps("out", base)),
            *defects.dtypes(*every, found=BF16),
            *defects.dtypes("self", found=FLOAT16),
            *(() if flat else defects.dtypes("out", found=FLOAT16)),
            *(() if flat else defects.dtypes("indices", found=INT32)),
            *defects.dtypes("indices", found=FLOAT),
            *defects.shapes("self", base[2:], (1, 1, *base)),
            *defects.shapes("grad_output", (2, *room)),
            *defects.shapes("indices", base[1:]),
            *defects.shapes("out", base[1:]),
            *(several("output_size", (), (2, 2, 2)) if flat else
              (no_channels(base, "self", "indices", "out"), *arrays_wrong(axes))),
            *defects.shapes("grad_output", (2, 3, *room), (2, 2, *room[::-1])),
            *(no_gradients(base) if flat else ()),
            *outside(base, math.prod(room)),
        ),
        empty_spares=("index-", "no-", "gaps-"),
    )  # fmt: skip


MAX_UNPOOL2D, MAX_UNPOOL3D = stated(2), stated(3)
MAX_UNPOOL2D_BACKWARD, MAX_UNPOOL3D_BACKWARD = grad_stated(2), grad_stated(3)
