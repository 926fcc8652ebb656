"""aclnnUnfoldGrad [src:unfold-grad]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT16, FLOATS, INT32
from npucall.errors import (
    TILING_ERROR,
    AclnnStatus,
    ArgumentMissingError,
    AttributeValueError,
)
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup, mixed_floats
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
NULLPTR = AclnnStatus.ACLNN_ERR_INNER_NULLPTR


def shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    dim, size = given["dim"], given["size"]
    count = (base[dim] - size) // given["step"] + 1
    return {"grad_out": (*base[:dim], count, *base[dim + 1 :], size)}


def rows(k: Arguments) -> tuple[Any, int]:
    """The slices of each row of the axis, (rows, slices, cells); and how long rows are."""
    moved = np.moveaxis(k["grad_out"], k["dim"], -2)
    return moved.reshape(-1, *moved.shape[-2:]), k["input_sizes"][k["dim"]]


def back(k: Arguments, found: Any) -> Any:
    sizes, dim = list(k["input_sizes"]), k["dim"]
    cells = sizes.pop(dim)
    return np.moveaxis(np.reshape(found, (*sizes, cells)), -1, dim)


def loops(k: Arguments) -> Any:
    slices, cells = rows(k)
    found = []
    for row in slices.tolist():
        terms: list[list[float]] = [[] for _ in range(cells)]
        for i, cut in enumerate(row):
            for j, value in enumerate(cut):
                terms[i * k["step"] + j].append(value)
        found.append([reals.total(each) for each in terms])
    return back(k, found)


def arrays(k: Arguments) -> Terms:
    slices, cells = rows(k)
    places = np.add.outer(np.arange(slices.shape[1]) * k["step"], np.arange(slices.shape[2]))
    found = []
    for each in (slices, np.abs(slices)):
        total = np.zeros((len(slices), cells))
        np.add.at(total.T, places, np.moveaxis(each, 0, -1))
        found.append(back(k, total))
    return Terms(found[0], found[1], summed=slices.shape[2])


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["grad_out"].numel():
        return None
    given = (list(k["input_sizes"]), k["dim"], k["size"], k["step"])
    return torch.ops.aten.unfold_backward(k["grad_out"], *given)


def tiled(row: str, name: str, value: Any, **more: Any) -> Invalid:
    changes = {name: value, **more.pop("changes", {})}
    return Invalid(row, changes, (name,), AttributeValueError, TILING_ERROR, **more)


def along(base: Shape, **given: int) -> Setup:
    attributes = {"dim": 0, "size": 2, "step": 1, **given}
    return Setup(base=base, attributes={**attributes, "input_sizes": base})


UNFOLD_GRAD = Statement(
    "aclnnUnfoldGrad",
    prototype=(
        "const aclTensor* gradOut, const aclIntArray* inputSizes, int64_t dim, int64_t size, "
        "int64_t step, const aclTensor* gradIn"
    ),
    takes=on(WITH_BFLOAT16, *FLOATS),
    legacy=(),
    null=NULLPTR,
    attributes={
        "input_sizes": (lambda base: base,),
        "dim": (lambda base: len(base) - 1, lambda base: len(base) - 2),
        "size": (2, 3),
        "step": (1, 2),
    },
    inputs=(In("grad_out", normal()),),
    outputs=(Out("grad_in", lambda k: tuple(k["input_sizes"]), "grad_out"),),
    shapes=shapes,
    loops=loops,
    arrays=arrays,
    kernel=dtype_of("grad_out"),
    npu=aten("unfold_backward", "grad_out", "input_sizes", "dim", "size", "step"),
    torch=torch_says,
    mixed=mixed_floats("grad_out", output="grad_in"),
    base_shapes=((4, 6), (3, 5, 7), (2, 3, 4, 5)),
    rank_shapes=((3, 3), (1, 1, 1, 1, 1, 3, 4), (2, 1, 3, 1, 3, 3)),
    empty_shapes=((0, 3, 4),),
    sized=lambda count: (max(count // 25, 1), 5, 5),
    fitted=lambda base: (*base[:-2], *(max(n, 3) for n in base[-2:])),
    large_shape=(83, 31, 47),
    chunked=(60_000, 5, 5),
    large=(
        Setup("many-rows", (20_021, 4, 3)),
        Setup("long-rows", (3, 60_013)),
        Setup("one-row", (3, 3, 17_001)),
    ),
    edges=(
        Setup("numbers", values={"grad_out": [[[1.0, NAN], [INF, 2], [-INF, 0]]]},
              attributes={"dim": 1, "size": 2, "step": 1, "input_sizes": (1, 4)}),
        Setup("a-row", (7,), attributes={"dim": 0, "size": 3, "step": 2, "input_sizes": (7,)}),
        Setup("cells-left", (2, 7), attributes={"dim": 1, "size": 2, "step": 3,
                                                "input_sizes": (2, 7)}),
    ),
    invalid=(
        *(Invalid(f"null-{name}", {name: None}, (name,), ArgumentMissingError, NULLPTR)
          for name in ("grad_out", "input_sizes", "grad_in")),
        *defects.dtypes("grad_out", "grad_in", found=INT32),
        *defects.ranks("grad_out", "grad_in"),
        *defects.shapes("grad_out", (3,)),
        *(Invalid(f"sizes-{number}", {"input_sizes": value}, ("input_sizes",),
                  AttributeValueError) for number, value in enumerate(((3,), (3, 4, 2), (3, -4)))),
        *defects.shapes("grad_in", (4, 3), (12,)),
        *defects.values("dim", -1, 2),
        *defects.values("size", 0, -2),
        *defects.values("step", 0, -1),
        *defects.formats("grad_out"),
        tiled("dim-before", "dim", 0, base=along((4, 3, 4), dim=1)),
        tiled("size-beyond", "size", 5),
        *defects.shapes("grad_out", (3, 2, 2), (3, 3, 3), (2, 3, 2), status=TILING_ERROR),
        tiled("size-long", "size", 89, base=along((90, 2), size=88),
              changes={"grad_out": {"shape": (2, 2, 89)}}),
        *(tiled(f"size-of-{dtype.short}", "size", 73, base=along((80, 2), size=73),
                changes=defects.all_of(dtype, "grad_out", "grad_in")) for dtype in (FLOAT16, BF16)),
        tiled("step-long", "step", 89, base=along((180, 2), step=88)),
    ),
    empty_before="dim-before",
)  # fmt: skip
