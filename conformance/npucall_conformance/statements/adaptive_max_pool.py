"""aclnnAdaptiveMaxPool2d, 3d, and their gradients [src:adaptive-max-pool]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32, INT64
from npucall.errors import ArgumentError, FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements import max_pool2d, pool3d
from npucall_conformance.statements._pooling import Pooling
from npucall_conformance.statements.max_pool2d import ALL_BUT_950, several
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import on

FLAT = {name: value for name, value in max_pool2d.COMMON.items()
        if name not in ("defaults", "attributes", "defaulted")}  # fmt: skip
DEEP: dict[str, Any] = {
    **pool3d.SHAPES,
    "empty_shapes": ((0, 3, 3, 4),),
    "kernel": dtype_of("self"),
}
SIDES = (2, 3, 4)
SPREAD = {2: Format.NHWC, 3: Format.NDHWC}


class _Planes(Pooling):
    """Windows of all that is wanted, which may be one number for all axes, or none."""

    def counts(self, shape: Shape, k: Any) -> Shape:
        wanted = super().counts(shape, k)
        return (
            (wanted * self.axes)[: self.axes] if len(wanted) == 1 else wanted or shape[-self.axes :]
        )

    def of_arrays(self, k: Arguments) -> dict[str, Terms]:
        return renamed(self.maxima_of_arrays(k))


def renamed(found: Any) -> dict[str, Any]:
    return {"output_out": found["out"], "indices_out": found["indices"]}


def says(axes: int) -> Any:
    def torch_says(k: Arguments, torch: Any) -> Any:
        if not k["self"].numel():
            return None
        pooled = _Planes(axes, adaptive=True).windows(k)[-axes:]
        function = getattr(torch.nn.functional, f"adaptive_max_pool{axes}d")
        found = function(k["self"], pooled, return_indices=True)
        return {"output_out": found[0], "indices_out": found[1].double()}

    return torch_says


def grad_says(axes: int) -> Any:
    def torch_says(k: Arguments, torch: Any) -> Any:
        if not k["self"].numel():
            return None
        function = getattr(torch.ops.aten, f"adaptive_max_pool{axes}d_backward")
        return function(k["grad_output"], k["self"], k["indices"].long())

    return torch_says


def stated(axes: int, **more: Any) -> Statement:
    planes = _Planes(axes, adaptive=True)
    return Statement(
        f"aclnnAdaptiveMaxPool{axes}d",
        prototype=(
            "const aclTensor* self, const aclIntArray* outputSize, aclTensor* outputOut, "
            "aclTensor* indicesOut"
        ),
        inputs=(In("self", normal(2.0)),),
        outputs=(
            Out("output_out", planes.windows, "self"),
            Out("indices_out", planes.windows, lambda _: INT64 if axes == 2 else INT32, own=True),
        ),
        loops=lambda k: renamed(planes.maxima(k)),
        arrays=planes.of_arrays,
        cost=0.0,
        npu=aten(f"adaptive_max_pool{axes}d", "self", "output_size"),
        torch=says(axes),
        formats_by_rank=True,
        **more,
    )  # fmt: skip


def grad_stated(axes: int, *dtypes: Invalid, **more: Any) -> Statement:
    planes = _Planes(axes, adaptive=True)
    base = more["layout_shape"]
    pooled, plane = (2, 2, *SIDES[-axes:]), float(np.prod(base[-axes:]))

    def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
        some = (*base[:-axes], *SIDES[-axes:])
        return {"grad_output": some, "self": base, "indices": some}

    names = ("grad_output", "grad_input", "indices")
    every = ("self", *names)
    numbers = np.array([[INF, 1.0, NAN], [-2.0, 0.5, -INF]])
    where = np.array([[0, 0, 3], [9, 9, 1]])
    return Statement(
        f"aclnnAdaptiveMaxPool{axes}dBackward",
        prototype=(
            "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* indices, "
            "aclTensor* gradInput"
        ),
        takes=on(pool3d.NEW, *FLOATS),
        inputs=(
            In("grad_output", normal()),
            In("self", normal(), read=False),
            In("indices", planes.places, dtypes=(INT32,)),
        ),
        outputs=(Out("grad_input", "self", "self"),),
        loops=planes.added,
        arrays=planes.added_of_arrays,
        shapes=shapes,
        npu=aten(f"adaptive_max_pool{axes}d_backward", "grad_output", "self", "indices"),
        torch=grad_says(axes),
        mixed=(Setup(dtypes={"indices": INT64}, products=pool3d.NEW if axes == 2 else ONLY_950),),
        edges=(Setup("numbers", (1, *(1,) * (axes - 2), 4, 5),
                     dict.fromkeys(("grad_output", "indices"), (1, *(1,) * (axes - 2), 2, 3)),
                     values={"grad_output": numbers.reshape(1, *(1,) * (axes - 2), 2, 3),
                             "indices": where.reshape(1, *(1,) * (axes - 2), 2, 3)}),),
        empty=(Setup("no-windows", base, dict.fromkeys(("grad_output", "indices"),
               (2, 2, 0, *SIDES[1 - axes:])), filled=0.0),),
        invalid=(
            *defects.nulls("grad_output", "self", "indices", "grad_input"),
            *defects.dtypes("grad_output", "grad_input", found=FLOAT16),
            *defects.all_dtypes("self", "grad_output", "grad_input"),
            *dtypes,
            *defects.dtypes("indices", found=FLOAT),
            *defects.shapes("grad_input", base[1:]),
            *defects.shapes("grad_output", pooled[1:]),
            *defects.shapes("indices", pooled[1:], (2, 2, *SIDES[-axes:][::-1])),
            *defects.shapes("grad_input", (2, 2, *base[2:][::-1])),
            *defects.formats(*names, found=SPREAD[axes]),
            Invalid("channels-last", {n: {"format": SPREAD[axes]} for n in every}, ("self",),
                    FormatError),
            Invalid("flat", {n: {"shape": (base if n in ("self", "grad_input") else pooled)[2:]}
                    for n in every}, ("self",), ShapeError),
            Invalid("lead", {n: {"shape": (2, 3, *pooled[2:])} for n in ("grad_output", "indices")},
                    ("grad_output",), ShapeError),
            Invalid("index-beyond", {"indices": {"values": np.full(pooled, plane)}},
                    ("indices",), ArgumentError, alone=True),
            Invalid("index-below", {"indices": {"values": np.full(pooled, -1.0)}},
                    ("indices",), ArgumentError, alone=True),
        ),
        empty_spares=("index-", "lead"),
        **more,
    )  # fmt: skip


NAN, INF = reals.NAN, reals.INFINITY
ADAPTIVE_MAX_POOL2D = stated(
    2,
    takes={**on(pool3d.NEW, *FLOATS, DOUBLE), **on(("Ascend910",), FLOAT, FLOAT16, DOUBLE)},
    attributes={"output_size": ((2, 3), (1, 1), (5, 9))},
    **FLAT,
    mixed=(Setup(dtypes={"self": DOUBLE, "output_out": DOUBLE}),),
    edges=(Setup("numbers", (1, 4, 5), values={"self": [[
        [1.0, 1, NAN, 2, 2], [1, 1, 3, NAN, 0], [-INF, -INF, INF, INF, 0],
        [-INF, -INF, 0.0, -0.0, 5]]]}),),
    invalid=(
        *defects.nulls("self", "output_size", "output_out", "indices_out"),
        *defects.dtypes("self", "output_out", found=INT32),
        *defects.no_bfloat16("self"),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *defects.shapes("output_out", (4, 2, 3)),
        *defects.shapes("indices_out", (4, 2, 3)),
        *defects.dtypes("indices_out", found=INT32),
        Invalid("channels-last", {n: {"format": Format.NHWC} for n in ("self", "output_out")},
                ("self",), FormatError),
        *defects.formats("output_out", found=Format.NHWC),
        *defects.dtypes("output_out", found=FLOAT16),
        *defects.shapes("self", (2, 0, 4, 5), (2, 2, 0, 5)),
        *several("output_size", (), (2,), (2, 3, 1), (0, 3), (-1, 3)),
        *defects.shapes("output_out", (2, 2, 3, 2)),
        *defects.shapes("indices_out", (2, 2, 3, 2)),
    ),
)  # fmt: skip
ADAPTIVE_MAX_POOL3D = stated(
    3,
    takes=on(pool3d.NEW, *FLOATS),
    attributes={"output_size": pool3d.SIZES},
    **DEEP,
    mixed=(Setup(dtypes={"indices_out": INT64}, products=ONLY_950),),
    broadcast=(
        Setup("one-number", (2, 2, 3, 3, 4), attributes={"output_size": (2,)}, products=ONLY_950),
        Setup("no-numbers", (2, 2, 3, 3, 4), attributes={"output_size": ()}, products=ONLY_950),
    ),
    edges=(Setup("numbers", (1, 3, 2, 5), values={"self": pool3d.NUMBERS}),),
    invalid=(
        *defects.nulls("self", "output_size", "output_out", "indices_out"),
        *defects.shapes("self", (3, 3, 4), (1, 1, 1, 3, 3, 4)),
        *defects.shapes("output_out", (4, 2, 1, 3)),
        *defects.shapes("indices_out", (4, 2, 1, 3)),
        *defects.dtypes("self", "output_out"),
        *defects.dtypes("indices_out", found=INT64, products=ALL_BUT_950),
        *defects.dtypes("indices_out", found=FLOAT),
        Invalid("channels-last", {n: {"format": Format.NDHWC} for n in ("self", "output_out")},
                ("self",), FormatError),
        *defects.formats("output_out", found=Format.NDHWC),
        *defects.dtypes("output_out", found=FLOAT16),
        *defects.shapes("self", (2, 0, 3, 3, 4), (2, 2, 3, 0, 4)),
        *several("output_size", (), (2,), products=ALL_BUT_950),
        *several("output_size", (2, 3), (0, 3, 2), (2, 3, -1)),
        *defects.shapes("output_out", (2, 2, 1, 2, 3)),
        *defects.shapes("indices_out", (2, 2, 1, 2, 3)),
    ),
)  # fmt: skip
ADAPTIVE_MAX_POOL2D_BACKWARD = grad_stated(2, **FLAT)
ADAPTIVE_MAX_POOL3D_BACKWARD = grad_stated(
    3, *defects.dtypes("indices", found=INT64, products=ALL_BUT_950), **DEEP
)
