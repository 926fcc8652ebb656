"""aclnnConvolution [src:convolution]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16
from npucall.errors import (
    PARAM_NULLPTR,
    ArgumentError,
    ArgumentMissingError,
    AttributeValueError,
)
from npucall.tensors import Shape
from npucall_conformance.statements import _convolution as shared
from npucall_conformance.statements._convolution import TRANSPOSED, wrong
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import TorchArguments
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

PAIR = ("input", "weight")


def loops(k: Arguments) -> Any:
    images, weight = k["input"], k["weight"]
    terms: dict[Shape, list[float]] = {}
    for result, one, other in shared.geometry(k).joined(images.shape):
        terms.setdefault(result, []).append(float(images[one]) * float(weight[other]))
    found = np.zeros(shape(k))
    for place in np.ndindex(found.shape):
        bias = 0.0 if k["bias"] is None else float(k["bias"][place[1]])
        found[place] = reals.total([bias, *terms.get(place, [])])
    return found


def arrays(k: Arguments) -> Terms:
    def of(images: Any, weight: Any, bias: Any) -> Any:
        call = shared.geometry(k)
        if k["transposed"]:
            found = call.apply_back(images, weight, shape(k))
        else:
            found = call.apply(images, weight)
        return found if bias is None else found + bias.reshape(1, -1, *(1,) * (found.ndim - 2))

    given = [k[name] for name in (*PAIR, "bias")]
    return Terms(of(*given), of(*(None if each is None else np.abs(each) for each in given)))


def shape(k: Arguments) -> Shape:
    return shared.geometry(k).result(k["input"].shape)


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    weight = shared.weight_shape(base, attributes)
    channels = 2 * attributes["groups"] if attributes["transposed"] else weight[0]
    return {"input": base, "weight": weight, "bias": (channels,)}


def torch_says(k: Arguments, torch: Any) -> Any:
    call = shared.geometry(k)
    images = k["input"]
    pads = [0] * len(call.pads)
    if any(before != after for before, after in call.pads):
        around = [side for pair in reversed(call.pads) for side in pair]
        images = torch.nn.functional.pad(images, around)
    else:
        pads = [before for before, _ in call.pads]
    return torch.ops.aten.convolution(
        images, k["weight"], k["bias"] if k["bias"] is None else k["bias"].double(), call.stride,
        pads, call.dilation, k["transposed"], call.more, k["groups"],
    )  # fmt: skip


def npu(given: TorchArguments) -> Any:
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    return given.aten.convolution(
        given["input"], given["weight"], given["bias"], *(given[name] for name in names)
    )


CONVOLUTION = Statement(
    "aclnnConvolution",
    (
        In("input", normal()),
        In("weight", normal()),
        In("bias", normal(), dtypes=(FLOAT, FLOAT16), optional=True),
    ),
    (Out("output", shape, promotion(*PAIR)),),
    loops,
    arrays,
    prototype=(
        "const aclTensor* input, const aclTensor* weight, const aclTensor* bias, "
        "const aclIntArray* stride, const aclIntArray* padding, const aclIntArray* dilation, "
        "bool transposed, const aclIntArray* outputPadding, int64_t groups, aclTensor* output, "
        "int8_t cubeMathType"
    ),
    takes=FLOATS_EVERYWHERE,
    formats_by_rank=True,
    legacy=("Ascend910",),
    defaults=shared.DEFAULTS,
    defaulted=shared.DEFAULTED,
    attributes=shared.ATTRIBUTES,
    kernel=promotion(*PAIR),
    kernels=dict.fromkeys(shared.WITHOUT_FLOAT, shared.lowered(*PAIR)),
    shapes=shapes,
    torch=torch_says,
    npu=npu,
    **shared.SIZES,
    broadcast=shared.STRETCHED,
    empty_spares=("no-elements",),
    invalid=(
        *defects.nulls("input", "weight", "stride", "padding", "dilation", "output"),
        Invalid("null-output_padding", {"output_padding": None}, ("output_padding",),
                ArgumentMissingError, PARAM_NULLPTR, base=TRANSPOSED, alone=True),
        *defects.dtypes("bias", "input", "weight", "output"),
        *defects.no_bfloat16("bias", "input", "weight", "output"),
        *defects.shapes("input", (2, 2), (1,) * 6),
        *defects.shapes("weight", (3, 2, 2)),
        *defects.shapes("output", (2, 3, 20)),
        *defects.shapes("bias", (2,), (1, 3), blames=("bias", "weight")),
        *shared.lengths("stride", "dilation", "padding"),
        *shared.lengths("output_padding", base=TRANSPOSED, alone=True),
        shared.form("output"),
        shared.form("input", "output"),
        shared.form("weight"),
        *defects.shapes("weight", (3, 2, 0, 2)),
        *defects.values("stride", [0], [1, -1]),
        *defects.values("dilation", [0], [1, -1]),
        *defects.shapes("weight", (3, 2, 9, 2), blames=PAIR),
        *defects.values("groups", 0, -1),
        *defects.shapes("input", (2, 3, 3, 4), blames=PAIR),
        *(
            Invalid(f"output_padding-{number}", {"output_padding": [number]}, ("output_padding",),
                    AttributeValueError, base=TRANSPOSED, alone=True)
            for number in (1, -1)
        ),
        wrong("uneven-groups", {"weight": (3, 1, 2, 2), "groups": 2}, "weight"),
        wrong("no-channels", {"input": (2, 0, 3, 4), "weight": (0, 2, 2, 2)}, "input",
              base=TRANSPOSED, alone=True),
        wrong("far-reach", {"weight": (2, 2, 300, 2)}, "weight", base=TRANSPOSED, alone=True,
              products=("Ascend910B", "Ascend910_93", "Ascend910", "Ascend310P", "Ascend310B")),
        *defects.shapes("output", (2, 3, 4, 4), (1, 3, 4, 5)),
        wrong("no-elements", {"input": (2, 0, 3, 4), "weight": (3, 0, 2, 2)}, *PAIR),
        *defects.values("cube_math_type", 5, -1),
        *defects.values("cube_math_type", 0, 3, products=shared.WITHOUT_FLOAT),
        wrong("transposed", {"transposed": True}, "input", base=TRANSPOSED, alone=True,
              products=("Ascend310B",), error=ArgumentError),
        wrong("one-axis", {"input": (2, 2, 3)}, "input", base=Setup(base=(2, 2, 3)), alone=True,
              products=("Ascend310B",), error=ArgumentError),
    ),
)  # fmt: skip
