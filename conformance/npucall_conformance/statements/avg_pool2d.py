"""aclnnAvgPool2d and aclnnAvgPool2dBackward [src:avg-pool2d]."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from npucall.dtypes import FLOAT16, INT32
from npucall.errors import AttributeValueError, FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements.max_pool2d import COMMON as OF_MAXIMA
from npucall_conformance.statements.max_pool2d import counts, several
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import TorchArguments
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
UNCLIPPED = ("Ascend910", "Ascend310P")
NAMES = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
C_NAMES = (
    "const aclIntArray* kernelSize, const aclIntArray* stride, const aclIntArray* padding, "
    "bool ceilMode, bool countIncludePad, int64_t divisorOverride, int8_t cubeMathType"
)
COMMON: dict[str, Any] = {
    **{name: value for name, value in OF_MAXIMA.items() if name != "kernel"},
    "takes": {**FLOATS_WITH_BFLOAT16, **on(UNCLIPPED, *(FLOATS_WITH_BFLOAT16["Ascend910B"][:2]))},
    "formats_by_rank": True,
    "defaults": {"stride": (), "padding": (0,), "ceil_mode": False, "count_include_pad": True,
                 "divisor_override": 0, "cube_math_type": 0},
    "attributes": {
        "kernel_size": ((2, 3),),
        "stride": ((), (2, 1)),
        "padding": ((1, 1), (0,)),
        "ceil_mode": (False, True),
        "count_include_pad": (True, False),
        "divisor_override": (0,),
    },
    "defaulted": Setup(base=(2, 2, 5, 6), attributes={"padding": (1, 1)}),
    "broadcast": tuple(
        Setup(f"divided-by-{number}", (2, 2, 4, 5), attributes={"divisor_override": number})
        for number in (7, -3)
    ),
}  # fmt: skip


def axes(k: Arguments) -> list[list[tuple[list[int], int]]]:
    """For each window along both axes its numbers, and how many cells are counted."""
    steps, found = k["stride"] or k["kernel_size"], []
    for place, count in enumerate(counts(k["self"].shape, {**k.values, "dilation": (1,)})):
        size = k["self"].shape[place - 2]
        kernel, stride, padding = (
            given[place % len(given)] for given in (k["kernel_size"], steps, k["padding"])
        )
        of_axis = []
        for window in range(count):
            cells = [window * stride - padding + i for i in range(kernel)]
            inside = [cell for cell in cells if 0 <= cell < size]
            within = [cell for cell in cells if cell < size + padding]
            padded = cells if k.product in UNCLIPPED else within
            of_axis.append((inside, len(padded if k["count_include_pad"] else inside)))
        found.append(of_axis)
    return found


def windows(k: Arguments) -> Shape:
    return (*k["self"].shape[:-2], *counts(k["self"].shape, {**k.values, "dilation": (1,)}))


def divisor(k: Arguments, high: int, wide: int) -> int:
    return k["divisor_override"] or high * wide


def loops(k: Arguments) -> Any:
    down, across = axes(k)
    found = []
    for plane in k["self"].reshape(-1, *k["self"].shape[-2:]).tolist():
        for rows, high in down:
            for columns, wide in across:
                total = reals.total([plane[y][x] for y in rows for x in columns])
                found.append(reals.divide(total, float(divisor(k, high, wide))))
    return np.reshape(found, windows(k))


class WindowShares(NamedTuple):
    """What windows have of the numbers of a plane, one entry for each pair that shares any."""

    window: Any
    number: Any
    share: Any

    def of_windows(self, numbers: Any, shape: Shape) -> Terms:
        """For each window the sum of its shares."""
        return _summed(numbers, self.number, self.window, self.share, shape)

    def of_numbers(self, gradients: Any, shape: Shape) -> Terms:
        """For each number the sum of the shares that windows have of it."""
        return _summed(gradients, self.window, self.number, self.share, shape)


def _summed(given: Any, source: Any, target: Any, share: Any, shape: Shape) -> Terms:
    planes = given.reshape(math.prod(shape[:-2]), -1)
    parts = planes[:, source] * share

    def sums(parts: Any) -> Any:
        found = np.zeros((math.prod(shape[-2:]), len(planes)))
        np.add.at(found, target, parts.T)
        return found.T.reshape(shape)

    return Terms(sums(parts), sums(np.abs(parts)))


def shares_of(axes: Any, width: int, divisor: Any) -> WindowShares:
    """``axes``: for each window its numbers and its count; ``width``: numbers in a row."""
    (windows, numbers, counts), across = (
        np.array([(place, number, count) for place, (inside, count) in enumerate(of_axis)
                  for number in inside], np.int64).reshape(-1, 3).T
        for of_axis in axes
    )  # fmt: skip
    pairs = (
        windows[:, None] * len(axes[1]) + across[0],
        numbers[:, None] * width + across[1],
        1 / divisor(counts[:, None] * across[2]),
    )
    return WindowShares(*map(np.ravel, pairs))


def shares(k: Arguments) -> WindowShares:
    number = k["divisor_override"]
    return shares_of(
        axes(k),
        k["self"].shape[-1],
        lambda count: np.full(count.shape, number) if number else count,
    )


def arrays(k: Arguments) -> Terms:
    return shares(k).of_windows(k["self"], windows(k))


def given(k: Any) -> list[Any]:
    """As torch takes them: no divisor is None."""
    return [*(list(k[name]) for name in NAMES[:3]), *(k[name] for name in NAMES[3:5]),
            k[NAMES[5]] or None]  # fmt: skip


def torch_says(k: Arguments, torch: Any) -> Any:
    of_device = k.product in UNCLIPPED and k["ceil_mode"] and k["count_include_pad"]
    if of_device or not k["self"].numel():
        return None
    return torch.ops.aten.avg_pool2d(k["self"], *given(k))


def npu(arguments: TorchArguments) -> Any:
    return arguments.aten.avg_pool2d(arguments["self"], *given(arguments))


VALUES = (
    *several("kernel_size", (0, 2), (2, -1)),
    *several("stride", (0,), (1, -1)),
)
NO_WINDOW = Invalid("no-window", {"kernel_size": (9, 2)}, ("self", "kernel_size"), ShapeError)

AVG_POOL2D = Statement(
    "aclnnAvgPool2d",
    prototype=f"const aclTensor* self, {C_NAMES}, aclTensor* out",
    inputs=(In("self", normal(2.0)),),
    outputs=(Out("out", windows, "self"),),
    loops=loops,
    arrays=arrays,
    kernel=dtype_of("self"),
    npu=npu,
    torch=torch_says,
    **COMMON,
    edges=(Setup("numbers", (1, 4, 5), values={"self": [[
        [1.0, 1, NAN, 2, 2], [1, 1, 3, NAN, 0], [-INF, -INF, INF, INF, 0],
        [-INF, -INF, 0.0, -0.0, 5]]]}),),
    invalid=(
        *defects.nulls("self", "kernel_size", "stride", "padding", "out"),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT16),
        Invalid("channels-last", {n: {"format": Format.NHWC} for n in ("self", "out")},
                ("self",), FormatError),
        *defects.formats("out", found=Format.NHWC),
        *VALUES,
        *several("padding", (-1, 0)),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *defects.shapes("out", (2, 2, 8)),
        *defects.shapes("self", (2, 0, 4, 5), (2, 2, 0, 5)),
        *several("kernel_size", (), (2, 2, 2)),
        *several("padding", (), (0, 0, 0)),
        *several("stride", (1, 1, 1)),
        *several("padding", (2,)),
        NO_WINDOW,
        *defects.shapes("out", (2, 2, 4, 5)),
        *defects.values("cube_math_type", -1, 5),
    ),
)  # fmt: skip


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    values = {**COMMON["defaults"], **attributes, "dilation": (1,)}
    return {"grad_output": (*base[:-2], *counts(base, values)), "self": base}


def grad_loops(k: Arguments) -> Any:
    (down, across), (high, wide) = axes(k), k["self"].shape[-2:]
    found = []
    for plane in k["grad_output"].reshape(-1, len(down), len(across)).tolist():
        parts: list[list[list[float]]] = [[[] for _ in range(wide)] for _ in range(high)]
        for y, (rows, tall) in enumerate(down):
            for x, (columns, broad) in enumerate(across):
                part = reals.divide(plane[y][x], float(divisor(k, tall, broad)))
                for row in rows:
                    for column in columns:
                        parts[row][column].append(part)
        found.append([[reals.total(each) for each in row] for row in parts])
    return np.reshape(found, k["self"].shape)


def grad_arrays(k: Arguments) -> Terms:
    return shares(k).of_numbers(k["grad_output"], k["self"].shape)


def grad_torch(k: Arguments, torch: Any) -> Any:
    of_device = k.product in UNCLIPPED and k["ceil_mode"] and k["count_include_pad"]
    if of_device or not k["self"].numel():
        return None
    return torch.ops.aten.avg_pool2d_backward(k["grad_output"], k["self"], *given(k))


def grad_npu(arguments: TorchArguments) -> Any:
    return arguments.aten.avg_pool2d_backward(
        arguments["grad_output"], arguments["self"], *given(arguments)
    )


AVG_POOL2D_BACKWARD = Statement(
    "aclnnAvgPool2dBackward",
    prototype=(
        f"const aclTensor* gradOutput, const aclTensor* self, {C_NAMES}, aclTensor* gradInput"
    ),
    inputs=(In("grad_output", normal()), In("self", normal(), read=False)),
    outputs=(Out("grad_input", "self", "grad_output"),),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("grad_output"),
    npu=grad_npu,
    torch=grad_torch,
    **COMMON,
    mixed=(Setup(dtypes={"self": FLOAT16}),),
    edges=(Setup("numbers", (1, 4, 6), values={"grad_output": [[[INF, 1.0], [NAN, -2.0]]]},
                 attributes={"kernel_size": (2, 3), "stride": (), "padding": (0,)}),),
    invalid=(
        *defects.nulls("grad_output", "self", "kernel_size", "padding", "grad_input"),
        *defects.dtypes("grad_output", "self", found=INT32),
        *defects.no_bfloat16("grad_output", "self"),
        *defects.dtypes("grad_input", found=FLOAT16),
        Invalid("channels-last", {"grad_output": {"format": Format.NHWC}}, ("grad_output",),
                FormatError),
        *defects.formats("self", "grad_input", found=Format.NHWC),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *defects.shapes("grad_output", (2, 2, 8)),
        *defects.shapes("grad_input", (2, 2, 20)),
        *several("kernel_size", (), (2, 2, 2), (0, 2), (2, -1)),
        *several("stride", (1, 1, 1), (0,), (1, -1)),
        *several("padding", (), (0, 0, 0), (2,), (-1, 0)),
        *defects.values("cube_math_type", -1, 4),
        *defects.shapes("grad_input", (2, 2, 5, 4)),
        NO_WINDOW,
        *defects.shapes("grad_output", (2, 2, 4, 5)),
        Invalid("divisor-256", {"divisor_override": 256}, ("divisor_override",),
                AttributeValueError, products=UNCLIPPED),
    ),
)  # fmt: skip
