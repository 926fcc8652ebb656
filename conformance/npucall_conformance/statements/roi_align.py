"""aclnnRoiAlignV2 and aclnnRoiAlignV2Backward [src:roi-align]."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT32
from npucall.errors import ArgumentError, AttributeValueError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on

C_NAMES = (
    "int64_t pooledHeight, int64_t pooledWidth, float spatialScale, int64_t samplingRatio, "
    "bool aligned"
)
POOLED = ("pooled_height", "pooled_width")
TORCHVISION = "torchvision has its own operator for boxes, where the suite does not look"
BOXES = 3
"""Of a call."""


def boxes_of(draw: Draw) -> Any:
    """Boxes inside the planes, some of them small, of all images."""
    count = draw.shape[0]
    shape = draw.shapes["self"] if "self" in draw.shapes else draw["input_shape"]
    sides = np.array(shape[:1:-1]) / draw["spatial_scale"]
    corners = draw.random.uniform(0.02, 0.98, (2, count, 2)) * sides
    small, large = np.sort(corners, 0)
    images = draw.random.integers(0, max(shape[0], 1), (count, 1))
    return np.concatenate([images, small, large], 1)


def samples(k: Arguments, box: Any, axis: int, size: int) -> Iterator[tuple[int, float, int]]:
    """Along an axis, 0 for y: the part of each sample, its place, and how many a part has."""
    parts = k[POOLED[axis]]
    start, end = (float(box[place - axis]) * k["spatial_scale"] - 0.5 * k["aligned"]
                  for place in (2, 4))  # fmt: skip
    extent = end - start if k["aligned"] else max(end - start, 1.0)
    count = k["sampling_ratio"] or max(math.ceil(extent / parts), 0)
    for part in range(parts):
        for number in range(count):
            place = start + part * extent / parts + (number + 0.5) * extent / parts / count
            if -1 <= place <= size:
                yield part, place, count


def beside(place: float, size: int) -> list[tuple[int, float]]:
    """The two cells beside a place, with their weights."""
    place = max(place, 0.0)
    low = int(place)
    if low >= size - 1:
        return [(size - 1, 1.0)]
    return [(low, 1 - (place - low)), (low + 1, place - low)]


def sums_of(k: Arguments, box: Any, planes: Shape) -> list[Any]:
    """By axis the weights of cells in parts, (parts, cells)."""
    found = []
    for axis in range(2):
        table = np.zeros((k[POOLED[axis]], planes[2 + axis]))
        for part, place, count in samples(k, box, axis, planes[2 + axis]):
            for cell, weight in beside(place, planes[2 + axis]):
                table[part, cell] += weight / count
        found.append(table)
    return found


def terms_of(k: Arguments, box: Any, planes: Shape) -> Iterator[tuple[int, int, int, int, float]]:
    """A part of a box, a cell, and its weight in one sample."""
    for y, at_y, ny in samples(k, box, 0, planes[2]):
        for x, at_x, nx in samples(k, box, 1, planes[3]):
            for row, of_row in beside(at_y, planes[2]):
                for column, of_column in beside(at_x, planes[3]):
                    yield y, x, row, column, of_row * of_column / (ny * nx)


def pooled(k: Arguments, channels: int) -> Shape:
    return (len(k["boxes"]), channels, *(k[name] for name in POOLED))


def out_shape(k: Arguments) -> Shape:
    return pooled(k, k["self"].shape[1])


def loops(k: Arguments) -> Any:
    found = np.zeros(out_shape(k))
    for number, box in enumerate(k["boxes"]):
        for channel, plane in enumerate(k["self"][int(box[0])]):
            added: dict[tuple[int, int], list[float]] = {}
            for y, x, row, column, weight in terms_of(k, box, k["self"].shape):
                added.setdefault((y, x), []).append(weight * float(plane[row, column]))
            for at, terms in added.items():
                found[(number, channel, *at)] = reals.total(terms)
    return found


def unsure(table: Any) -> Any:
    """How large weights are, whose places are computed in float32."""
    return table + (table > 0) * (table.shape[1] + 1) / 8


def arrays(k: Arguments) -> Terms:
    value, size = np.zeros(out_shape(k)), np.zeros(out_shape(k))
    for number, box in enumerate(k["boxes"]):
        y, x = sums_of(k, box, k["self"].shape)
        planes = k["self"][int(box[0])]
        value[number] = y @ planes @ x.T
        size[number] = unsure(y) @ np.abs(planes) @ unsure(x).T
    return Terms(value, size, summed=16)


def grad_loops(k: Arguments) -> Any:
    shape = tuple(k["input_shape"])
    found = np.zeros(shape)
    for number, box in enumerate(k["boxes"]):
        for y, x, row, column, weight in terms_of(k, box, shape):
            for channel in range(shape[1]):
                grad = float(k["grad_output"][number, channel, y, x])
                found[int(box[0]), channel, row, column] += weight * grad
    return found


def grad_arrays(k: Arguments) -> Terms:
    shape = tuple(k["input_shape"])
    value, size = np.zeros(shape), np.zeros(shape)
    for number, box in enumerate(k["boxes"]):
        y, x = sums_of(k, box, shape)
        value[int(box[0])] += y.T @ k["grad_output"][number] @ x
        size[int(box[0])] += unsure(y).T @ np.abs(k["grad_output"][number]) @ unsure(x)
    return Terms(value, size, summed=16 * max(len(k["boxes"]), 1))


def by_torch(k: Arguments, torch: Any, planes: Any) -> Any:
    """Samples by torch's own function, and their means."""
    found = []
    for box in k["boxes"].numpy():
        means, places = [], []
        for axis in range(2):
            taken = list(samples(k, box, axis, planes.shape[2 + axis]))
            mean = torch.zeros((k[POOLED[axis]], len(taken)), dtype=planes.dtype)
            for number, (part, _, count) in enumerate(taken):
                mean[part, number] = 1 / count
            means.append(mean)
            cells = torch.tensor([place for _, place, _ in taken], dtype=planes.dtype)
            places.append(2 * cells / (planes.shape[2 + axis] - 1) - 1)
        grid = torch.stack(torch.meshgrid(places[1], places[0], indexing="xy"), -1)
        image = planes[int(box[0])][None]
        taken = torch.nn.functional.grid_sample(
            image, grid[None], padding_mode="border", align_corners=True
        )
        found.append(means[0] @ taken[0] @ means[1].T)
    return torch.stack(found)


def torch_says(k: Arguments, torch: Any) -> Any:
    return by_torch(k, torch, k["self"]) if k["self"].numel() else None


def grad_torch(k: Arguments, torch: Any) -> Any:
    planes = torch.zeros(k["input_shape"], dtype=k["grad_output"].dtype, requires_grad=True)
    if not planes.numel():
        return None
    return torch.autograd.grad(by_torch(k, torch, planes), planes, k["grad_output"])[0]


COMMON: dict[str, Any] = {
    "legacy": (),
    "formats_by_rank": True,
    "defaults": {"sampling_ratio": 0, "aligned": False},
    "sprinkled": False,
    "npu": TORCHVISION,
    "base_shapes": ((2, 2, 5, 6), (1, 3, 7, 4), (3, 1, 2, 2)),
    "layout_shape": (2, 2, 5, 6),
    "rank_shapes": ((1, 1, 3, 3),),
    "fitted": lambda base: (*(max(n, 1) for n in base[:2]), *(max(n, 2) for n in base[2:])),
    "sized": lambda count: (1, max(count // 25, 1), 5, 5),
}
ATTRIBUTES: dict[str, Any] = {
    "pooled_height": (2, 1),
    "pooled_width": (3,),
    "spatial_scale": (0.5, 1.0),
    "sampling_ratio": (0, 2),
    "aligned": (False, True),
}
POOLED_WRONG = (*defects.values("pooled_height", 0, -2), *defects.values("pooled_width", 0))
LAST = (
    *defects.values("sampling_ratio", -1),
    *defects.values("spatial_scale", 0.0, -0.5, reals.NAN),
)


def strange(*boxes: tuple[float, ...]) -> tuple[Invalid, ...]:
    """Boxes of no image, or with numbers that are not finite."""
    one = (0.0, 1.0, 1.0, 3.0, 3.0)
    return tuple(
        Invalid(f"box-{number}", {"boxes": {"values": [one, box, one]}}, ("boxes",),
                ArgumentError, alone=True) for number, box in enumerate(boxes)
    )  # fmt: skip


STRANGE = strange(
    (2.0, 1, 1, 3, 3), (-1.0, 1, 1, 3, 3), (0.0, reals.NAN, 1, 3, 3), (0.0, 1, 1, 3, reals.INFINITY)
)


def flat(name: str, *shape: int) -> Invalid:
    """Planes without one of their axes, which still call themselves NCHW."""
    changes = {name: {"shape": shape, "format": Format.NCHW}}
    return Invalid(f"rank-of-{name}", changes, (name,), ShapeError)


FIVE = defects.shapes("boxes", (BOXES, 4), (BOXES, 6))
CROPPED = [[0.0, -3.0, -2.5, 14.25, 9.5], [0.5, 3.25, 4.5, 3.25, 4.5], [1.0, 4.5, 5.0, 2.25, 1.5]]
"""Boxes beyond the planes, of no extent, and with their corners exchanged."""
AT_ENDS = Setup(
    "at-the-ends", (2, 2, 5, 6),
    values={"boxes": [[0.0, -2, -2, 4, 2], [1.0, 1, 2, 7, 6], [0.0, -2.25, -2.25, 6.75, 6.25]]},
    attributes={"pooled_height": 2, "pooled_width": 3, "spatial_scale": 1.0, "sampling_ratio": 1,
                "aligned": False, "input_shape": (2, 2, 5, 6)},
)  # fmt: skip
"""Samples one cell before the planes, and one behind their last, which count; others do not."""


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"self": base, "boxes": (BOXES, 5)}


ROI_ALIGN_V2 = Statement(
    "aclnnRoiAlignV2",
    prototype=f"const aclTensor* self, const aclTensor* boxes, {C_NAMES}, aclTensor* out",
    takes=on(("Ascend910B", "Ascend910_93", "Ascend910", "Ascend310P"), FLOAT, FLOAT16),
    attributes=ATTRIBUTES,
    inputs=(In("self", normal()), In("boxes", boxes_of, own=True, dense=True, tiny=False)),
    outputs=(Out("out", out_shape, "self"),),
    shapes=shapes,
    loops=loops,
    torch=torch_says,
    arrays=arrays,
    kernel=dtype_of("self"),
    dtypes=(FLOAT, FLOAT16),
    **COMMON,
    empty_shapes=((2, 0, 5, 6),),
    large_shape=(2, 5, 101, 103),
    large=(
        Setup("many-rows", (3, 5_003, 3, 3)),
        Setup("long-rows", (1, 2, 3, 40_003)),
        Setup("one-row", (1, 1, 401, 301)),
    ),
    edges=(
        Setup("beyond", values={"boxes": CROPPED}),
        replace(AT_ENDS, attributes={n: AT_ENDS.attributes[n] for n in ATTRIBUTES}),
    ),
    invalid=(
        *defects.nulls("self", "boxes", "out"),
        *defects.dtypes("self", found=DOUBLE),
        *defects.dtypes("boxes", "out", found=INT32),
        *defects.formats("self", found=Format.NHWC),
        *defects.formats("boxes", found=Format.NCHW),
        *defects.formats("out", found=Format.NHWC),
        flat("self", 2, 5, 6),
        *defects.shapes("boxes", (15,)),
        flat("out", 2, 2, 3),
        *defects.shapes("self", (0, 2, 5, 6), (2, 2, 0, 6), (2, 2, 5, 0)),
        *FIVE,
        *POOLED_WRONG,
        *defects.shapes("out", (2, 2, 2, 3), (3, 1, 2, 3), (3, 2, 1, 3), (3, 2, 2, 4)),
        *LAST,
        *STRANGE,
    ),
    empty_spares=("box-",),
)  # fmt: skip


def grad_shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    return {"grad_output": (BOXES, base[1], *(given[name] for name in POOLED)),
            "boxes": (BOXES, 5)}  # fmt: skip


ROI_ALIGN_V2_BACKWARD = Statement(
    "aclnnRoiAlignV2Backward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* boxes, const aclIntArray* inputShape, "
        f"{C_NAMES}, aclTensor* gradInput"
    ),
    takes=on(("Ascend910B", "Ascend910_93", "Ascend950", "Ascend910"), FLOAT),
    attributes={"input_shape": (lambda base: base,), **ATTRIBUTES},
    inputs=(In("grad_output", normal()), In("boxes", boxes_of, own=True, dense=True, tiny=False)),
    outputs=(Out("grad_input", lambda k: tuple(k["input_shape"]), "grad_output"),),
    shapes=grad_shapes,
    loops=grad_loops,
    torch=grad_torch,
    arrays=grad_arrays,
    kernel=dtype_of("grad_output"),
    dtypes=(FLOAT,),
    **COMMON,
    empty_shapes=((2, 0, 5, 6),),
    large_shape=(2, 11_003, 3, 3),
    chunked=(1, 120_000, 2, 2),
    large=(
        Setup("many-rows", (3, 20_003, 2, 3)),
        Setup("long-rows", (1, 20_003, 3, 7)),
        Setup("one-row", (1, 20_003, 7, 2)),
    ),
    edges=(Setup("beyond", values={"boxes": CROPPED}), AT_ENDS),
    invalid=(
        *defects.nulls("grad_output", "boxes", "input_shape", "grad_input"),
        *defects.dtypes("grad_output", found=FLOAT16),
        *defects.dtypes("boxes", "grad_input", found=FLOAT16),
        *defects.formats("grad_output", found=Format.NHWC),
        *defects.formats("boxes", found=Format.NCHW),
        *defects.formats("grad_input", found=Format.NHWC),
        flat("grad_output", 2, 2, 3),
        *defects.shapes("boxes", (15,)),
        *FIVE,
        *(Invalid(f"planes-{number}", {"input_shape": value}, ("input_shape",),
                  AttributeValueError)
          for number, value in enumerate(((2, 5, 6), (2, 2, 5, 6, 1), (0, 2, 5, 6), (2, -1, 5, 6),
                                          (2, 2, 0, 6), (2, 2, 5, 0)))),
        *POOLED_WRONG,
        *defects.shapes("grad_output", (2, 2, 2, 3), (3, 1, 2, 3), (3, 2, 1, 3), (3, 2, 2, 4)),
        flat("grad_input", 2, 5, 6),
        *defects.shapes("grad_input", (2, 2, 6, 5)),
        *LAST,
        *STRANGE,
    ),
    empty_spares=("box-",),
)  # fmt: skip
