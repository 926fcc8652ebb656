"""aclnnGroupNorm and aclnnGroupNormBackward [src:group-norm]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT, FLOAT16, INT32
from npucall.errors import (
    PARAM_INVALID,
    ArgumentMissingError,
    AttributeValueError,
    FormatError,
    ShapeError,
)
from npucall.tensors import Format, Shape
from npucall_conformance.statements import _layer_norm as of_rows
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup, masked
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
STATISTICS = ("mean_out", "rstd_out")
GRADIENTS = ("grad_input", "grad_gamma_out", "grad_beta_out")
EXTENTS = ("n", "c", "hxw", "group")
C_NAMES = "int64_t N, int64_t C, int64_t HxW, int64_t group"
EVERY = (True, True, True)
BEFORE = ("Ascend910B", "Ascend910_93", "Ascend910")
ON_A2 = BEFORE[:2]
COMMON: dict[str, Any] = {
    "legacy": (),
    "renamed": {"HxW": "hxw"},
    "attributes": {
        "n": (lambda base: base[0],),
        "c": (lambda base: base[1],),
        "hxw": (lambda base: math.prod(base[2:]),),
        "group": (lambda base: 1 if base[1] % 2 else 2, 1),
    },
    "base_shapes": ((2, 4, 3), (3, 6, 2, 2), (2, 3, 4, 5), (4, 8)),
    "layout_shape": (3, 4, 2),
    "rank_shapes": ((3, 4), (2, 2, 3, 1, 1, 2, 1, 2), (2, 4, 2, 1, 3, 2)),
    "fitted": lambda base: base if len(base) > 1 else (1, 1, *base),
    "sized": lambda count: (max(count // 64, 1), 4, 16),
    "large_shape": (3, 8, 67, 71),
    "large": (Setup("many-groups", (12_301, 4, 2)), Setup("long-groups", (2, 2, 66_003)),
              Setup("one-group", (1, 1, 100_003))),
    "empty_shapes": ((0, 4, 3), (2, 4, 0), (2, 0, 3)),
}  # fmt: skip


def count(k: Arguments) -> Shape:
    return k["n"], k["group"]


def groups(k: Arguments, name: str) -> Any:
    """A row for each group of each item."""
    return k[name].reshape(k["n"] * k["group"], k["c"] // k["group"] * k["hxw"])


def weights(k: Arguments, name: str, none: float) -> Any:
    """What each number of a group of each item is multiplied by, or gets added."""
    given = np.full(k["c"], none) if k[name] is None else k[name].reshape(-1)
    rows = np.repeat(given, k["hxw"]).reshape(k["group"], k["c"] // k["group"] * k["hxw"])
    return np.tile(rows, (k["n"], 1))


def forward_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    return {"self": base, "gamma": base[1:2], "beta": base[1:2]}


def loops(k: Arguments) -> dict[str, Any]:
    found, means, rstds = [], [], []
    given = (groups(k, "self"), weights(k, "gamma", 1), weights(k, "beta", 0))
    for row, w, b in zip(*(each.tolist() for each in given), strict=True):
        mean, rstd = of_rows.moments(row, k["eps"])
        found += [(x - mean) * rstd * c + a for x, c, a in zip(row, w, b, strict=True)]
        means.append(mean)
        rstds.append(rstd)
    shapes = (k["self"].shape, count(k), count(k))
    named = zip(("out", *STATISTICS), (found, means, rstds), shapes, strict=True)
    return {name: np.reshape(each, shape) for name, each, shape in named}


def arrays(k: Arguments) -> dict[str, Terms]:
    x, w, b = groups(k, "self"), weights(k, "gamma", 1), weights(k, "beta", 0)
    if not x.size:
        zeros = np.zeros(count(k))
        return {"out": Terms(k["self"]), "mean_out": Terms(zeros), "rstd_out": Terms(zeros + NAN)}
    n = x.shape[1]
    mean, around = x.sum(1, keepdims=True) / n, np.abs(x).sum(1, keepdims=True) / n
    rstd = 1 / np.sqrt(((x - mean) ** 2).sum(1, keepdims=True) / n + k["eps"])
    wide = 1 + (x**2).sum(1, keepdims=True) / n * rstd**2
    size = np.abs(w) * (np.abs(x) + around) * rstd * wide + np.abs(b)
    value = w * ((x - mean) * rstd) + b
    shape, one = k["self"].shape, count(k)
    return {
        "out": Terms(value.reshape(shape), size.reshape(shape)),
        "mean_out": Terms(mean.reshape(one), around.reshape(one), summed=n),
        "rstd_out": Terms(rstd.reshape(one), (rstd * wide).reshape(one)),
    }


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["self"].numel():
        return None
    found = torch.ops.aten.native_group_norm(
        *(k[name] for name in ("self", "gamma", "beta", *EXTENTS, "eps"))
    )
    return dict(zip(("out", *STATISTICS), found, strict=True))


def extents(blames: str, **told: int) -> tuple[Invalid, ...]:
    """Numbers that are not those of the tensor."""
    return tuple(
        Invalid(f"{name}-{value}", {name: value}, (blames,), ShapeError)
        for name, value in told.items()
    )


DIVIDED = (
    *defects.values("group", 0, -1),
    Invalid("uneven-groups", {"group": 3}, ("c",), AttributeValueError),
)

GROUP_NORM = Statement(
    "aclnnGroupNorm",
    prototype=(
        "const aclTensor* self, const aclTensor* gamma, const aclTensor* beta, "
        f"{C_NAMES}, double eps, aclTensor* out, aclTensor* meanOut, aclTensor* rstdOut"
    ),
    takes={**FLOATS_WITH_BFLOAT16, **on(("Ascend910",), FLOAT, FLOAT16)},
    defaults={"eps": 1e-5},
    inputs=(
        In("self", normal(2.0, 0.5)),
        In("gamma", uniform(0.5, 2.0), optional=True),
        In("beta", normal(), optional=True),
    ),
    outputs=(
        Out("out", "self", "self"),
        *(Out(name, count, "self") for name in STATISTICS),
    ),
    loops=loops,
    arrays=arrays,
    shapes=forward_shapes,
    kernel=dtype_of("self"),
    formats_by_rank=True,
    npu=aten("native_group_norm", "self", "gamma", "beta", *EXTENTS, "eps"),
    torch=torch_says,
    **COMMON,
    edges=(
        Setup("groups", (2, 4, 2), values={"self": [
            [[0.0, 0], [0, 0], [1, NAN], [2, 3]], [[INF, 1], [2, 3], [1e4, -1e4], [0, 1]],
        ]}),
        Setup("eps-half", (2, 4, 2), attributes={"eps": 0.5}),
        Setup("each-channel", (2, 3, 4), attributes={"group": 3}),
    ),
    invalid=(
        *defects.nulls("self", "out", *STATISTICS),
        *defects.dtypes("self", found=INT32),
        *defects.no_bfloat16("self"),
        *defects.dtypes("gamma", "beta", "out", *STATISTICS, found=FLOAT16),
        *DIVIDED,
        *defects.values("eps", 0.0, -1.0, NAN),
        *defects.shapes("self", (24,), (1,) * 9),
        *defects.shapes("out", (24,), (3, 2, 4)),
        *defects.shapes("mean_out", (6,), (2, 3)),
        *defects.shapes("rstd_out", (6,), (2, 3)),
        *extents("self", c=8, hxw=3),
        *defects.shapes("gamma", (2,), (1, 4)),
        *defects.shapes("beta", (2,), (1, 4)),
        *defects.formats("out", found=Format.NHWC),
        Invalid("channels-last", {n: {"format": Format.NHWC} for n in ("self", "out")},
                ("self",), FormatError),
    ),
)  # fmt: skip


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    one = (attributes["n"], attributes["group"])
    return {"grad_out": base, "input": base, "mean": one, "rstd": one, "gamma": base[1:2]}


def of_gamma(k: Arguments) -> Shape:
    return (k["c"],) if k["gamma"] is None else tuple(k["gamma"].shape)


def by_channel(k: Arguments, numbers: Any) -> Any:
    """The numbers of each channel, of all items."""
    apart = np.reshape(numbers, (k["n"], k["c"], k["hxw"]))
    return np.moveaxis(apart, 1, 0).reshape(k["c"], k["n"] * k["hxw"])


def normal_form(k: Arguments) -> tuple[Any, Any, Any]:
    x = groups(k, "input")
    mean, rstd = (k[name].reshape(-1, 1) for name in ("mean", "rstd"))
    return (x - mean) * rstd, (np.abs(x) + np.abs(mean)) * np.abs(rstd), rstd


def grad_loops(k: Arguments) -> dict[str, Any]:
    form, _, rstds = normal_form(k)
    rows = (each.tolist() for each in (groups(k, "grad_out"), weights(k, "gamma", 1), form))
    found = []
    for g, w, of_row, rstd in zip(*rows, rstds[:, 0].tolist(), strict=True):
        found += of_rows.row_gradient(g, w, of_row, rstd) if of_row else []
    pairs = zip(by_channel(k, k["grad_out"]).tolist(), by_channel(k, form).tolist(), strict=True)
    sums = [(reals.total([a * b for a, b in zip(g, x, strict=True)]), reals.total(g))
            for g, x in pairs]  # fmt: skip
    gammas, betas = np.reshape(sums, (-1, 2)).T
    shapes = (k["input"].shape, of_gamma(k), of_gamma(k))
    named: Any = zip(GRADIENTS, (found, gammas, betas), shapes, strict=True)
    return {name: np.reshape(each, shape) for name, each, shape in named}


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    (form, size, rstd), g = normal_form(k), groups(k, "grad_out")
    d, n = weights(k, "gamma", 1) * g, max(g.shape[1], 1)

    def mean(numbers: Any) -> Any:
        return numbers.sum(1, keepdims=True) / n

    value = rstd * (d - mean(d) - mean(form * d) * form)
    sizes = np.abs(rstd) * (np.abs(d) + mean(np.abs(d)) + mean(np.abs(d) * size) * size)
    shape, one, summed = k["input"].shape, of_gamma(k), max(k["n"] * k["hxw"], 1)

    def sums(numbers: Any) -> Any:
        return by_channel(k, numbers).sum(1).reshape(one)

    return {
        GRADIENTS[0]: Terms(value.reshape(shape), sizes.reshape(shape)),
        GRADIENTS[1]: Terms(sums(form * g), sums(size * np.abs(g)), summed=summed),
        GRADIENTS[2]: Terms(sums(g), sums(np.abs(g)), summed=summed),
    }


def grad_torch(k: Arguments, torch: Any) -> Any:
    if not k["input"].numel():
        return None
    w = torch.ones(k["c"], dtype=torch.float64) if k["gamma"] is None else k["gamma"]
    if torch.isinf(w).any():  # of which it multiplies sums, not their terms
        return None
    found = torch.ops.aten.native_group_norm_backward(
        *(k[name] for name in ("grad_out", "input", "mean", "rstd")), w,
        *(k[name] for name in EXTENTS), EVERY,
    )  # fmt: skip
    return dict(zip(GRADIENTS, found, strict=True))


def means(draw: Any) -> Any:
    return of_rows.means(draw) if 0 not in draw.shape else np.zeros(draw.shape)


def deviations(draw: Any) -> Any:
    return of_rows.deviations(draw) if 0 not in draw.shape else np.zeros(draw.shape)


GROUP_NORM_BACKWARD = Statement(
    "aclnnGroupNormBackward",
    prototype=(
        "const aclTensor* gradOut, const aclTensor* input, const aclTensor* mean, "
        f"const aclTensor* rstd, const aclTensor* gamma, {C_NAMES}, "
        "const aclBoolArray* outputMask, aclTensor* gradInput, aclTensor* gradGammaOut, "
        "aclTensor* gradBetaOut"
    ),
    takes={**FLOATS_WITH_BFLOAT16, **on(("Ascend910",), FLOAT, FLOAT16)},
    defaults={"output_mask": EVERY},
    inputs=(
        In("grad_out", normal()),
        In("input", normal(2.0)),
        In("mean", means, own=True),
        In("rstd", deviations, own=True),
        In("gamma", uniform(0.5, 2.0), optional=True, own=True),
    ),
    outputs=(
        Out(GRADIENTS[0], "input", "input", asked=masked(0)),
        Out(GRADIENTS[1], of_gamma, "mean", own=True, asked=masked(1)),
        Out(GRADIENTS[2], of_gamma, "mean", own=True, asked=masked(2)),
    ),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("grad_out"),
    npu=aten("native_group_norm_backward", "grad_out", "input", "mean", "rstd", "gamma", *EXTENTS,
             "output_mask"),
    torch=grad_torch,
    **{**COMMON, "attributes": {
        **COMMON["attributes"], "output_mask": (EVERY, (True, False, True)),
    }},
    mixed=tuple(Setup(dtypes=dict.fromkeys(("mean", "rstd", "gamma"), FLOAT), only=(each,),
                      products=ONLY_950) for each in (FLOAT16, BF16)),
    edges=(
        Setup("groups", (2, 4, 2), values={
            "input": [[[0.0, 0], [0, 0], [1, NAN], [2, 3]],
                      [[INF, 1], [2, 3], [1e4, -1e4], [0, 1]]],
            "grad_out": [[[1.0, 2], [3, 4], [1, 1], [1, 1]], [[0, 1], [0, 0], [30, -30], [1, 0]]],
        }, attributes={"output_mask": EVERY}),
        Setup("infinite-factors", (2, 4, 2), values={
            "gamma": [1.0, INF, -INF, 1],
            "grad_out": [[[1.0, 2], [3, -4], [1, 1], [1, 1]], [[0, 1], [2, -1], [3, -5], [1, 2]]],
        }, attributes={"output_mask": EVERY}),
        Setup("each-channel", (2, 3, 4), attributes={"group": 3}),
    ),
    invalid=(
        *defects.nulls("grad_out", "input", "mean", "rstd"),
        Invalid("null-output_mask", {"output_mask": None}, ("output_mask",), ArgumentMissingError,
                PARAM_INVALID),
        *(Invalid(f"mask-of-{len(mask)}", {"output_mask": mask}, ("output_mask",),
                  AttributeValueError) for mask in ((), (True, True), (True,) * 4)),
        *(Invalid(f"null-{name}", {name: None}, (name,), ArgumentMissingError, PARAM_INVALID)
          for name in GRADIENTS),
        *defects.dtypes("grad_out", found=INT32),
        *defects.no_bfloat16("grad_out"),
        *defects.dtypes("input", found=FLOAT16),
        *defects.dtypes("mean", found=FLOAT16),
        *defects.dtypes("rstd", "gamma", found=FLOAT16),
        *defects.dtypes(*GRADIENTS, found=FLOAT16),
        *DIVIDED,
        Invalid("many-channels", {"c": 240_004, "group": 60_001}, ("c",), AttributeValueError,
                products=ON_A2),
        Invalid("many-in-a-group", {"c": 16_004}, ("c",), AttributeValueError, products=ON_A2),
        *defects.ranks("grad_out"),
        *extents("grad_out", n=2, c=8, hxw=3),
        *defects.shapes("input", (3, 2, 4), (24,)),
        *defects.shapes("mean", (3, 1), ()),
        *defects.shapes("rstd", (3, 1), ()),
        *defects.shapes("gamma", (2,), (1, 3)),
        *defects.shapes(GRADIENTS[0], (3, 2, 4), (24,)),
        *defects.shapes(GRADIENTS[1], (2,), (1, 4)),
        *defects.shapes(GRADIENTS[2], (2,), (1, 4)),
    ),
)  # fmt: skip
