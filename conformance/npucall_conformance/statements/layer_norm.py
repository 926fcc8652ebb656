"""aclnnLayerNorm [src:layer-norm]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32
from npucall.errors import DTypeError, ShapeError
from npucall_conformance.statements import _layer_norm as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import BEFORE_950, ONLY_950, Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

NAN, INF = reals.NAN, reals.INFINITY
STATISTICS = ("mean_out", "rstd_out")


def loops(k: Arguments) -> dict[str, Any]:
    w, b = (shared.weights(k, name, none).tolist() for name, none in (("weight", 1), ("bias", 0)))
    found, means, rstds = [], [], []
    for row in shared.rows(k, "input").tolist():
        mean, rstd = shared.moments(row, k["eps"])
        found += [(x - mean) * rstd * c + a for x, c, a in zip(row, w, b, strict=True)]
        means.append(mean)
        rstds.append(rstd)
    out = np.reshape(found, k["input"].shape)
    one_each = (np.reshape(each, shared.ones(k)) for each in (means, rstds))
    return {"out": out, **dict(zip(STATISTICS, one_each, strict=True))}


def arrays(k: Arguments) -> dict[str, Terms]:
    x, w, b = shared.rows(k, "input"), shared.weights(k, "weight", 1), shared.weights(k, "bias", 0)
    count = x.shape[1]
    if not count:
        zeros = np.zeros(shared.ones(k))
        return {"out": Terms(x.reshape(k["input"].shape)), "mean_out": Terms(zeros),
                "rstd_out": Terms(zeros + np.nan)}  # fmt: skip
    mean = x.sum(1, keepdims=True) / count
    rstd = 1 / np.sqrt(((x - mean) ** 2).sum(1, keepdims=True) / count + k["eps"])
    value = w * ((x - mean) * rstd) + b
    around = np.abs(x).sum(1, keepdims=True) / count
    wide = 1 + (x**2).sum(1, keepdims=True) / count * rstd**2
    size = np.abs(w) * (np.abs(x) + around) * rstd * wide + np.abs(b)
    shape, ones = k["input"].shape, shared.ones(k)
    return {
        "out": Terms(value.reshape(shape), size.reshape(shape)),
        "mean_out": Terms(mean.reshape(ones), around.reshape(ones), summed=count),
        "rstd_out": Terms(rstd.reshape(ones), (rstd * wide).reshape(ones)),
    }


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["input"].numel():
        return None
    given = (k[name] for name in ("input", "normalized_shape", "weight", "bias", "eps"))
    found = torch.ops.aten.native_layer_norm(*given)
    return dict(zip(("out", *STATISTICS), found, strict=True))


LAYER_NORM = Statement(
    "aclnnLayerNorm",
    prototype=(
        "const aclTensor* input, const aclIntArray* normalizedShape, "
        "const aclTensor* weightOptional, const aclTensor* biasOptional, double eps, "
        "aclTensor* out, aclTensor* meanOutOptional, aclTensor* rstdOutOptional"
    ),
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend310P",),
    defaults={"eps": 1e-5},
    inputs=(
        In("input", normal(2.0, 0.5)),
        In("weight", uniform(0.5, 2.0), dtypes=(FLOAT,), optional=True),
        In("bias", normal(), dtypes=(FLOAT,), optional=True),
    ),
    outputs=(
        Out("out", "input", "input"),
        Out("mean_out", shared.ones, lambda _: FLOAT, own=True, optional=True),
        Out("rstd_out", shared.ones, lambda _: FLOAT, own=True, optional=True),
    ),
    loops=loops,
    arrays=arrays,
    shapes=shared.forward_shapes,
    kernel=dtype_of("input"),
    npu=aten("native_layer_norm", "input", "normalized_shape", "weight", "bias", "eps"),
    torch=torch_says,
    **shared.SHAPES,
    empty_shapes=((0,), (0, 3), (2, 0), (2, 0, 3)),
    mixed=(
        *shared.MIXED,
        *(Setup(dtypes={"out": one, "mean_out": other, "rstd_out": other})
          for one in FLOATS for other in FLOATS),
    ),
    edges=(
        Setup("rows", (6, 4), values={"input": [
            [0.0, 0, 0, 0], [1, NAN, 2, 3], [INF, 1, 2, 3], [-INF, INF, 0, 1],
            [1e4, -1e4, 0, 1], [1e-3, 2e-3, 0, -1e-3],
        ]}, attributes={"normalized_shape": [4]}),
        Setup("one-element", (3, 1), attributes={"normalized_shape": [1]}),
        *(Setup(f"eps-{eps}", (3, 4), attributes={"normalized_shape": [4], "eps": eps})
          for eps in (0.0, 0.5)),
    ),
    invalid=(
        *defects.nulls("input", "normalized_shape", "out"),
        *defects.dtypes("input", found=INT32),
        *defects.no_bfloat16("input"),
        *defects.dtypes("weight", "bias", found=FLOAT16),
        Invalid("bias-unlike-weight", {"bias": {"dtype": FLOAT16}}, ("bias",), DTypeError,
                base=Setup(dtypes={"input": FLOAT16})),
        *defects.dtypes("out", *STATISTICS, found=DOUBLE),
        *defects.ranks("input", "out", *STATISTICS),
        *shared.tails(()),
        *shared.tails((2, 3, 4), blames=("input",), error=ShapeError),
        *defects.shapes("weight", (4, 1), (1, 4)),
        *defects.shapes("bias", (1, 4)),
        *shared.tails((3,), (1,)),
        *defects.shapes("weight", (3,), (1,)),
        *defects.shapes("bias", (3,), (1,)),
        *defects.shapes("out", (4, 3), (3, 4, 1), (12,)),
        *defects.shapes("mean_out", (3,), (1, 3), products=ONLY_950),
        *defects.shapes("rstd_out", (3,), (1, 3), products=ONLY_950),
        *defects.shapes("mean_out", (4, 1), (4,), (), products=BEFORE_950),
        *defects.shapes("rstd_out", (4, 1), (4,), (), products=BEFORE_950),
    ),
)  # fmt: skip
