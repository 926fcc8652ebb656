"""aclnnConvolutionBackward [src:convolution]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16
from npucall.errors import PARAM_NULLPTR, AttributeValueError, FormatError
from npucall.tensors import Format, Shape
from npucall_conformance.statements import _convolution as shared
from npucall_conformance.statements._convolution import wrong
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import TorchArguments
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup, masked
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16, Statement
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B

GIVEN = ("grad_output", "input", "weight")
OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
EVERY = (True, True, True)
SKIPPING = ("Ascend910B", "Ascend910_93", "Ascend950")
NO_IMAGES = Setup(base=(0, 2, 3, 4), attributes={"bias_sizes": [3], "groups": 1})


def bias_axes(k: Arguments) -> tuple[int, ...]:
    return (0, *range(2, k["grad_output"].ndim))


def loops(k: Arguments) -> dict[str, Any]:
    images, weight, gradient = (k[name] for name in ("input", "weight", "grad_output"))
    found = {"grad_input": np.zeros(images.shape), "grad_weight": np.zeros(weight.shape)}
    for result, one, other in shared.geometry(k).joined(images.shape):
        found["grad_input"][one] += float(gradient[result]) * float(weight[other])
        found["grad_weight"][other] += float(gradient[result]) * float(images[one])
    bias = [float(sum(part.reshape(-1).tolist())) for part in np.moveaxis(gradient, 1, 0)]
    return {**found, "grad_bias": np.array(bias)}


def arrays(k: Arguments) -> dict[str, Terms]:
    call = shared.geometry(k)

    def of(gradient: Any, images: Any, weight: Any) -> dict[str, Any]:
        bias = gradient.sum(bias_axes(k))
        if k["transposed"]:
            of_images, of_weight = call.apply(gradient, weight), call.of_weights(gradient, images)
        else:
            of_images = call.apply_back(gradient, weight, images.shape)
            of_weight = call.of_weights(images, gradient)
        return dict(zip(OUTPUTS, (of_images, of_weight, bias), strict=True))

    given = [k[name] for name in GIVEN]
    values, sizes = of(*given), of(*map(np.abs, given))
    return {name: Terms(values[name], sizes[name]) for name in OUTPUTS}


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    weight = shared.weight_shape(base, attributes)
    result = shared.Geometry(attributes, weight).result(base)
    return {"grad_output": result, "input": base, "weight": weight}


def of_bias(k: Arguments) -> Shape:
    return (k["grad_output"].shape[1],)


def torch_says(k: Arguments, torch: Any) -> Any:
    call = shared.geometry(k)
    if any(before != after for before, after in call.pads):
        return None
    found = torch.ops.aten.convolution_backward(
        *(k[name] for name in GIVEN), list(of_bias(k)), call.stride,
        [before for before, _ in call.pads], call.dilation, k["transposed"], call.more,
        k["groups"], list(EVERY),
    )  # fmt: skip
    return dict(zip(OUTPUTS, found, strict=True))


def npu(given: TorchArguments) -> Any:
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    return given.aten.convolution_backward(
        *(given[name] for name in GIVEN), [given["grad_output"].shape[1]],
        *(given[name] for name in names), given["output_mask"],
    )  # fmt: skip


CONVOLUTION_BACKWARD = Statement(
    "aclnnConvolutionBackward",
    (In("grad_output", normal()), In("input", normal()), In("weight", normal())),
    (
        Out("grad_input", "input", "input", asked=masked(0)),
        Out("grad_weight", "weight", "weight", own=True, asked=masked(1)),
        Out("grad_bias", of_bias, "grad_output", own=True, asked=masked(2)),
    ),
    loops,
    arrays,
    sprinkled=False,
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* input, const aclTensor* weight, "
        "const aclIntArray* biasSizes, const aclIntArray* stride, const aclIntArray* padding, "
        "const aclIntArray* dilation, bool transposed, const aclIntArray* outputPadding, "
        "int groups, const aclBoolArray* outputMask, int8_t cubeMathType, aclTensor* gradInput, "
        "aclTensor* gradWeight, aclTensor* gradBias"
    ),
    takes=FLOATS_BUT_ON_310B,
    formats_by_rank=True,
    legacy=(),
    defaults={**shared.DEFAULTS, "bias_sizes": None, "output_mask": EVERY},
    defaulted=shared.DEFAULTED,
    attributes={
        **shared.ATTRIBUTES,
        "bias_sizes": (lambda base: [3 * (2 if base[1] % 2 == 0 else 1)],),
        "output_mask": (EVERY, (True, False, False), (False, True, False), (False, False, True)),
        "groups": (lambda base: 2 if base[1] % 2 == 0 else 1,),
    },
    kernel=promotion(*GIVEN),
    kernels=dict.fromkeys(shared.WITHOUT_FLOAT, shared.lowered(*GIVEN)),
    shapes=shapes,
    torch=torch_says,
    npu=npu,
    **shared.SIZES,
    empty_on=SKIPPING,
    broadcast=shared.STRETCHED,
    empty_spares=("channels", "uneven-groups", "shape-weight-"),  # bias_sizes does not fit then
    invalid=(
        *defects.nulls(*GIVEN, "stride", "padding", "dilation", "output_padding", "output_mask"),
        Invalid("mask-of-two", {"output_mask": [True, True]}, ("output_mask",),
                AttributeValueError, PARAM_NULLPTR),
        *defects.nulls(*OUTPUTS),
        *defects.dtypes(*GIVEN),
        *defects.no_bfloat16(*GIVEN),
        *(
            row
            for name in OUTPUTS
            for row in (
                *defects.dtypes(name),
                *defects.dtypes(name, found=BF16, products=(*WITHOUT_BFLOAT16, "Ascend950")),
            )
        ),
        *(shared.form(name) for name in (*GIVEN, "grad_input", "grad_weight")),
        Invalid("format-grad_bias", {"grad_bias": {"format": Format.NCHW}}, ("grad_bias",),
                FormatError, products=SKIPPING),
        *defects.values("stride", [0], [1, -1]),
        *defects.values("padding", [-1], [0, -1]),
        *defects.values("dilation", [0], [1, -1]),
        *defects.values("output_padding", [1], [0, -1]),
        *defects.values("groups", 0, -1),
        *defects.values("cube_math_type", 5, -1),
        *defects.values("cube_math_type", 0, 3, products=shared.WITHOUT_FLOAT),
        *(
            Invalid(f"bias_sizes-{'x'.join(map(str, found or ()))}", {"bias_sizes": found},
                    ("bias_sizes",), AttributeValueError, base=NO_IMAGES, alone=True,
                    products=SKIPPING)
            for found in ([4], None)
        ),
        wrong("images-without-positions", {"input": (2, 2, 0, 4), "bias_sizes": [6]}, "input",
              alone=True, products=SKIPPING),
        *defects.shapes("input", (2, 2), (1,) * 6, alone=True),
        *defects.shapes("grad_output", (2, 3, 20), alone=True),
        *defects.shapes("weight", (3, 2, 2), alone=True),
        *defects.shapes("grad_output", (2, 6, 0, 5), blames=GIVEN),
        wrong("nothing-to-compute", {"input": (0, 2, 3, 4), "grad_output": (0, 6, 4, 5),
              "grad_input": (0, 2, 3, 4)}, *GIVEN, alone=True, products=shared.WITHOUT_FLOAT),
        *defects.shapes("grad_input", (2, 2, 3, 5)),
        *defects.shapes("grad_weight", (6, 1, 2, 3)),
        *defects.shapes("grad_bias", (3,), (1, 6)),
        *shared.lengths("stride", "dilation", "padding"),
        *defects.values("output_padding", [0, 0, 0]),
        *defects.shapes("grad_output", (2, 5, 4, 5), blames=("grad_output", "weight")),
        wrong("channels", {"input": (2, 3, 3, 4), "grad_input": (2, 3, 3, 4)}, "input", "weight"),
        wrong("uneven-groups", {"grad_output": (2, 3, 4, 5), "weight": (3, 1, 2, 2),
              "grad_weight": (3, 1, 2, 2), "grad_bias": (3,)}, "weight"),
        *defects.shapes("grad_output", (2, 6, 4, 4), (1, 6, 4, 5), blames=GIVEN),
    ),
)  # fmt: skip
