"""aclnnLayerNormBackward [src:layer-norm]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32
from npucall.errors import AttributeValueError, ShapeError
from npucall_conformance.statements import _layer_norm as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup, masked
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B

NAN, INF = reals.NAN, reals.INFINITY
OUTPUTS = ("grad_input_out", "grad_weight_out", "grad_bias_out")
READ = ("grad_out", "input", "mean", "rstd")
EVERY = (True, True, True)


def normal_form(k: Arguments) -> tuple[Any, Any, Any]:
    """The normal form of each row, the size of what cancels in it, and each row's rstd."""
    x = shared.rows(k, "input")
    mean, rstd = (k[name].reshape(-1, 1) for name in ("mean", "rstd"))
    return (x - mean) * rstd, (np.abs(x) + np.abs(mean)) * np.abs(rstd), rstd


def loops(k: Arguments) -> dict[str, Any]:
    w = shared.weights(k, "weight", 1).tolist()
    g, (forms, _, rstds) = shared.rows(k, "grad_out").tolist(), normal_form(k)
    found = []
    for upstream, form, rstd in zip(g, forms.tolist(), rstds[:, 0].tolist(), strict=True):
        found += shared.row_gradient(upstream, w, form, rstd) if form else []
    columns = range(math.prod(shared.tail(k)))
    of_weight = [reals.total([r[c] * n[c] for r, n in zip(g, forms.tolist(), strict=True)])
                 for c in columns]  # fmt: skip
    of_bias = [reals.total([row[c] for row in g]) for c in columns]
    shapes = (k["input"].shape, shared.tail(k), shared.tail(k))
    answers = zip(OUTPUTS, (found, of_weight, of_bias), shapes, strict=True)
    return {name: np.reshape(each, shape) for name, each, shape in answers}


def arrays(k: Arguments) -> dict[str, Terms]:
    g, w, (form, size, rstd) = (
        shared.rows(k, "grad_out"), shared.weights(k, "weight", 1), normal_form(k)
    )  # fmt: skip
    d, count = w * g, max(g.shape[1], 1)

    def mean(numbers: Any) -> Any:
        return numbers.sum(1, keepdims=True) / count

    value = rstd * (d - mean(d) - mean(form * d) * form)
    sizes = np.abs(rstd) * (np.abs(d) + mean(np.abs(d)) + mean(np.abs(d) * size) * size)
    tail, rows = shared.tail(k), max(g.shape[0], 1)
    return {
        OUTPUTS[0]: Terms(value.reshape(k["input"].shape), sizes.reshape(k["input"].shape)),
        OUTPUTS[1]: Terms((form * g).sum(0).reshape(tail), (size * np.abs(g)).sum(0).reshape(tail),
                          summed=rows),
        OUTPUTS[2]: Terms(g.sum(0).reshape(tail), np.abs(g).sum(0).reshape(tail), summed=rows),
    }  # fmt: skip


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["input"].numel():
        return None
    one = torch.ones(k["normalized_shape"], dtype=torch.float64)
    w = one if k["weight"] is None else k["weight"]
    found = torch.ops.aten.native_layer_norm_backward(
        *(k[name] for name in ("grad_out", "input", "normalized_shape", "mean", "rstd")), w, one,
        EVERY,
    )  # fmt: skip
    return dict(zip(OUTPUTS, found, strict=True))


LAYER_NORM_BACKWARD = Statement(
    "aclnnLayerNormBackward",
    prototype=(
        "const aclTensor* gradOut, const aclTensor* input, const aclIntArray* normalizedShape, "
        "const aclTensor* mean, const aclTensor* rstd, const aclTensor* weightOptional, "
        "const aclTensor* biasOptional, const aclBoolArray* outputMask, "
        "aclTensor* gradInputOut, aclTensor* gradWeightOut, aclTensor* gradBiasOut"
    ),
    takes=FLOATS_BUT_ON_310B,
    legacy=(),
    defaults={"output_mask": EVERY},
    inputs=(
        In("grad_out", normal()),
        In("input", normal(2.0)),
        In("mean", shared.means, dtypes=(FLOAT,)),
        In("rstd", shared.deviations, dtypes=(FLOAT,)),
        In("weight", uniform(0.5, 2.0), dtypes=(FLOAT,), optional=True),
        In("bias", normal(), dtypes=(FLOAT,), optional=True, read=False),
    ),
    outputs=(
        Out(OUTPUTS[0], "input", "input", asked=masked(0)),
        Out(OUTPUTS[1], shared.tail, dtype_of("weight", "input"), own=True, asked=masked(1)),
        Out(OUTPUTS[2], shared.tail, dtype_of("weight", "input"), own=True, asked=masked(2)),
    ),
    loops=loops,
    arrays=arrays,
    shapes=shared.backward_shapes,
    kernel=dtype_of("input"),
    npu=aten("native_layer_norm_backward", "grad_out", "input", "normalized_shape", "mean", "rstd",
             "weight", "bias", "output_mask"),
    torch=torch_says,
    **{**shared.SHAPES, "attributes": {
        **shared.SHAPES["attributes"],
        "output_mask": (EVERY, (True, False, False), (False, True, True)),
    }},
    empty_shapes=((0,), (0, 3), (2, 0), (2, 0, 3)),
    mixed=(
        *shared.MIXED,
        *(Setup(dtypes={"mean": one, "rstd": other}) for one in FLOATS for other in FLOATS),
        *(Setup(dtypes=dict.fromkeys(OUTPUTS, one), attributes={"output_mask": EVERY})
          for one in FLOATS),
    ),
    edges=(
        Setup("rows", (5, 4), values={
            "input": [[1.0, 1, 1, 1], [1, NAN, 2, 3], [INF, 1, 2, 3], [1e4, -1e4, 0, 1],
                      [1, 2, 3, 4]],
            "grad_out": [[1.0, 2, 3, 4], [1, 1, 1, 1], [0, 1, 0, 0], [300, -300, 1, 0],
                         [INF, 0, 0, 1]],
        }, attributes={"normalized_shape": [4], "output_mask": EVERY}),
    ),
    invalid=(
        *defects.nulls("grad_out", "input", "normalized_shape", "mean", "rstd", "output_mask"),
        *(Invalid(f"mask-of-{len(mask)}", {"output_mask": mask}, ("output_mask",),
                  AttributeValueError) for mask in ((), (True, True), (True,) * 4)),
        *defects.nulls(*OUTPUTS),
        *defects.dtypes(*READ, found=INT32),
        *defects.no_bfloat16(*READ),
        *defects.dtypes("grad_out", found=FLOAT16),
        *defects.dtypes("weight", found=DOUBLE),
        *defects.dtypes("weight", found=FLOAT16),
        *defects.dtypes("bias", *OUTPUTS, found=DOUBLE),
        *defects.ranks(*READ),
        *shared.tails((1,) * 9),
        *defects.ranks(*OUTPUTS),
        *shared.tails(()),
        *shared.tails((2, 3, 4), blames=("input",), error=ShapeError),
        *shared.tails((3,), (1,), (4, 3)),
        *defects.shapes("weight", (3,), (1, 4)),
        *defects.shapes("bias", (3,), (4, 1)),
        *defects.shapes("grad_out", (4, 3), (3, 4, 1)),
        *defects.shapes("mean", (3,), (1, 3)),
        Invalid("statistics-of-four", {"mean": {"shape": (4,)}, "rstd": {"shape": (4,)}},
                ("mean",), ShapeError),
        *defects.shapes(OUTPUTS[0], (4, 3), (12,)),
        *defects.shapes(OUTPUTS[1], (3,), (1, 4)),
        *defects.shapes(OUTPUTS[2], (3,), (1, 4)),
    ),
)  # fmt: skip
