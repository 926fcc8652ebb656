"""aclnnAdaLayerNorm, its second version and aclnnAdaLayerNormBackward [src:ada-layer-norm]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, FLOATS, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _layer_norm as shared
from npucall_conformance.statements import layer_norm, layer_norm_backward
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
PAIR, STATISTICS = ("scale", "shift"), ("mean_out", "rstd_out")
OUTPUTS = (
    "grad_input_out", "grad_scale_out", "grad_shift_out", "grad_weight_out", "grad_bias_out"
)  # fmt: skip
TAKES = on(("Ascend910B", "Ascend910_93"), *FLOATS)
GIVEN = ("grad_out", "input", "mean", "rstd", *PAIR)
WEIGHTS = (
    In("weight", uniform(0.5, 2.0), optional=True, own=True),
    In("bias", normal(), optional=True, own=True),
)
COMMON: dict[str, Any] = {
    "legacy": (),
    "npu": "torch_npu has no function for it",
    "base_shapes": ((4, 6), (3, 5, 7), (2, 3, 4, 5)),
    "layout_shape": (2, 3, 4),
    "rank_shapes": ((1, 3), (2, 1, 3, 1, 1, 2, 1, 2), (2, 1, 3, 1, 2)),
    "empty_shapes": (),
    "sized": lambda count: (max(count // 64, 1), 4, 16),
    "sprinkled": False,  # a normal form that is 0 is not quite 0 in float32, and so not NaN
    "large_shape": (31, 47, 71),
    "large": (
        Setup("many-rows", (6_007, 3, 6)),
        Setup("long-rows", (2, 3, 17_011)),
        Setup("one-row", (1, 100_003)),
    ),
}


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    batch, one = (*base[:-2], base[-1]), (*base[:-1], 1)
    tensors = dict.fromkeys(("x", "grad_out", "input"), base)
    rows = dict.fromkeys(("weight", "bias"), base[-1:])
    return {**tensors, **dict.fromkeys(PAIR, batch), **rows, "mean": one, "rstd": one}


def of(*names: str) -> Any:
    """The shapes of these inputs."""
    return lambda base, given: {n: s for n, s in shapes(base, given).items() if n in names}


def beside(k: Arguments, name: str, like: str) -> Any:
    """What each sequence has, for its tokens: (B..., 1, H)."""
    extents = k[like].shape
    return k[name].reshape(*extents[:-2], 1, extents[-1])


def as_layer_norm(k: Arguments) -> Arguments:
    own = {"input": k["x"], "normalized_shape": k["x"].shape[-1:], "eps": k["epsilon"]}
    return replace(k, values={**k.values, **own})


def one_a_token(k: Arguments) -> Shape:
    return (*k["x"].shape[:-1], 1)


def loops(k: Arguments) -> dict[str, Any]:
    found = layer_norm.loops(as_layer_norm(k))
    scale, shift = (
        np.broadcast_to(beside(k, n, "x"), k["x"].shape).reshape(-1).tolist() for n in PAIR
    )
    forms = np.reshape(found["out"], -1).tolist()
    out = [x * (1 + a) + b for x, a, b in zip(forms, scale, shift, strict=True)]
    return {**found, "out": np.reshape(out, k["x"].shape)}


def arrays(k: Arguments) -> dict[str, Terms]:
    found = layer_norm.arrays(as_layer_norm(k))
    scale, shift = (beside(k, name, "x") for name in PAIR)
    own = found["out"]
    out = Terms(own.value * (1 + scale) + shift,
                own.sizes * (1 + np.abs(scale)) + np.abs(shift))  # fmt: skip
    return {**found, "out": out}


def torch_says(k: Arguments, torch: Any) -> Any:
    size = k["x"].shape[-1:]
    found = torch.nn.functional.layer_norm(k["x"], size, k["weight"], k["bias"], k["epsilon"])
    scale, shift = (k[n].reshape(*k["x"].shape[:-2], 1, *size) for n in PAIR)
    return {"out": found * (1 + scale) + shift}


def first_alone(answer: Any) -> Any:
    """Of the first version, which has one output."""
    return lambda k, *more: {"out": answer(k, *more)["out"]}


def weights_unlike(dtype: Any = FLOAT16) -> tuple[Invalid, ...]:
    changes = {"weight": {"dtype": dtype}}
    return (Invalid("weight-unlike-bias", changes, ("weight",), DTypeError),)


def of_both(row: str, change: dict[str, Any], blames: str, **more: Any) -> Invalid:
    """A weight and a bias that are alike."""
    changes = {"weight": change, "bias": change}
    return Invalid(row, changes, (blames,), more.pop("error", DTypeError), **more)


def batches(*names: str) -> tuple[Invalid, ...]:
    return tuple(
        row
        for name in names
        for row in defects.shapes(name, (4,), (2, 3), (3, 4), (2, 3, 4), (1, 2, 4), (2, 4, 1))
    )


def forward(version: str) -> Statement:
    second = bool(version)
    pair, weights = (PAIR[::-1], ("bias", "weight")) if second else (PAIR, ("weight", "bias"))
    last = ("mean_out", "rstd_out") if second else ()
    return Statement(
        f"aclnnAdaLayerNorm{version}",
        prototype="const aclTensor* x, const aclTensor* scale, const aclTensor* shift, "
        "const aclTensor* weightOptional, const aclTensor* biasOptional, double epsilon, "
        "aclTensor* out"
        + ", aclTensor* meanOutOptional, aclTensor* rstdOutOptional" * second,
        takes=on(WITH_BFLOAT16, *FLOATS) if second else TAKES,
        defaults={"epsilon": 1e-5},
        attributes={"epsilon": (1e-5, 0.25)},
        inputs=(In("x", normal(2.0, 0.5)), In("scale", normal()), In("shift", normal()), *WEIGHTS),
        outputs=(
            Out("out", "x", "x"), *(Out(name, one_a_token, "x", optional=True) for name in last)
        ),
        loops=loops if second else first_alone(loops),
        arrays=arrays if second else first_alone(arrays),
        shapes=of("x", *PAIR, "weight", "bias"),
        kernel=dtype_of("x"),
        torch=torch_says,
        **COMMON,
        broadcast=(
            Setup("one-token", (2, 4, 6), shapes=dict.fromkeys(PAIR, (2, 1, 6))),
            Setup("one-token-to-shift", (2, 1, 3, 4), shapes={"shift": (2, 1, 1, 4)}),
            Setup("no-batch", (5, 4), shapes={"scale": (1, 4)}),
        ),
        mixed=tuple(
            Setup(dtypes={"x": one, "scale": one, "shift": one, "weight": FLOAT, "bias": FLOAT})
            for one in (FLOAT16, BF16) if second
        ),
        edges=(
            Setup("rows", (2, 3, 4), values={"x": [
                [[0.0, 0, 0, 0], [1, NAN, 2, 3], [1e4, -1e4, 0, 1]],
                [[INF, 1, 2, 3], [1e-3, 2e-3, 0, -1e-3], [1, 2, 3, 4]]]}),
            Setup("one-element", (3, 2, 1)),
        ),
        invalid=(
            *defects.nulls("x", *PAIR, "out"),
            *defects.dtypes("x", found=INT32),
            *defects.dtypes(*pair, found=FLOAT16),
            *weights_unlike(),
            *([of_both("weights-of-halves", {"dtype": FLOAT16}, weights[0])]),
            of_both("weights-of-double", {"dtype": DOUBLE}, weights[0]),
            *(Invalid("weight-of-double-alone", {"weight": {"dtype": DOUBLE}}, ("weight",),
                      DTypeError, base=Setup(absent=("bias",)), alone=True) for _ in last[:1]),
            *defects.dtypes("out", *last[::-1], found=FLOAT16),
            *defects.shapes("x", (4,)),
            *defects.ranks("x"),
            *defects.shapes("x", (0, 3, 4), (2, 3, 0)),
            *batches(*pair),
            *(row for name in weights for row in defects.shapes(name, (3,), (1, 4))),
            *defects.shapes("out", (2, 4, 3), (3, 4)),
            *(row for name in last[::-1] for row in defects.shapes(name, (2, 3), (2, 3, 4))),
        ),
    )  # fmt: skip


ADA_LAYER_NORM = forward("")
ADA_LAYER_NORM_V2 = forward("V2")


def scaled(k: Arguments) -> Arguments:
    """The call of LayerNorm's gradient of which tokens and weights are the same."""
    own = {"grad_out": k["grad_out"] * (1 + beside(k, "scale", "input"))}
    return replace(k, values={**k.values, **own})


def in_order(found: Mapping[str, Any], of_pair: Any) -> dict[str, Any]:
    parts = {**found, **dict(zip(OUTPUTS[1:3], of_pair, strict=True))}
    return {name: parts[name] for name in OUTPUTS}


def sequences(k: Arguments, numbers: Any) -> Any:
    """The rows of each sequence, (sequences, S, H)."""
    return numbers.reshape(-1, *k["input"].shape[-2:])


def gradient_loops(k: Arguments) -> dict[str, Any]:
    w, b = (shared.weights(k, n, none).tolist() for n, none in (("weight", 1), ("bias", 0)))
    forms = sequences(k, layer_norm_backward.normal_form(k)[0]).tolist()
    of_scale, of_shift = [], []
    for sequence, own in zip(sequences(k, k["grad_out"]).tolist(), forms, strict=True):
        for column, (c, a) in enumerate(zip(w, b, strict=True)):
            upstream = [token[column] for token in sequence]
            pairs = zip(upstream, own, strict=True)
            of_scale.append(reals.total([g * (form[column] * c + a) for g, form in pairs]))
            of_shift.append(reals.total(upstream))
    of_pair = [np.reshape(e, k[n].shape) for e, n in zip((of_scale, of_shift), PAIR, strict=True)]
    return in_order(layer_norm_backward.loops(scaled(k)), of_pair)


def gradient_arrays(k: Arguments) -> dict[str, Terms]:
    w, b = (shared.weights(k, n, none) for n, none in (("weight", 1), ("bias", 0)))
    form, size, _ = layer_norm_backward.normal_form(k)
    grad = sequences(k, k["grad_out"])
    tokens = grad.shape[1]
    terms = grad * (sequences(k, form) * w + b)
    wide = np.abs(grad) * (sequences(k, size) * np.abs(w) + np.abs(b))
    of_pair = [
        Terms(value.sum(1).reshape(k[name].shape), sizes.sum(1).reshape(k[name].shape),
              summed=tokens)
        for name, value, sizes in zip(PAIR, (terms, grad), (wide, np.abs(grad)), strict=True)
    ]  # fmt: skip
    return in_order(layer_norm_backward.arrays(scaled(k)), of_pair)


def torch_gradient(k: Arguments, torch: Any) -> Any:
    size = k["input"].shape[-1:]
    lead = k["input"].shape[:-2]
    ones = torch.ones(size, dtype=torch.float64)
    w = ones if k["weight"] is None else k["weight"]
    b = 0 * ones if k["bias"] is None else k["bias"]
    g = k["grad_out"] * (1 + k["scale"].reshape(*lead, 1, *size))
    of_rows = torch.ops.aten.native_layer_norm_backward(
        g, k["input"], size, k["mean"], k["rstd"], w, ones, (True, True, True)
    )
    form = (k["input"] - k["mean"]) * k["rstd"]
    of_pair = ((k["grad_out"] * (form * w + b)).sum(-2), k["grad_out"].sum(-2))
    parts = [each.reshape(k[name].shape) for each, name in zip(of_pair, PAIR, strict=True)]
    return dict(zip(OUTPUTS, (of_rows[0], *parts, *of_rows[1:]), strict=True))


ADA_LAYER_NORM_BACKWARD = Statement(
    "aclnnAdaLayerNormBackward",
    prototype=(
        "const aclTensor* gradOut, const aclTensor* input, const aclIntArray* normalizedShape, "
        "const aclTensor* rstd, const aclTensor* mean, const aclTensor* scale, "
        "const aclTensor* shift, const aclTensor* weightOptional, "
        "const aclTensor* biasOptional, aclTensor* gradInputOut, aclTensor* gradScaleOut, "
        "aclTensor* gradShiftOut, aclTensor* gradWeightOut, aclTensor* gradBiasOut"
    ),
    takes=TAKES,
    attributes={"normalized_shape": (lambda base: [base[-1]],)},
    inputs=(
        In("grad_out", normal()),
        In("input", normal(2.0)),
        In("rstd", shared.deviations),
        In("mean", shared.means),
        In("scale", normal()),
        In("shift", normal(), read=False),
        *WEIGHTS,
    ),
    outputs=(
        *(Out(name, like, "input", optional=True)
          for name, like in zip(OUTPUTS, ("input", *PAIR), strict=False)),
        *(Out(name, shared.tail, dtype_of("weight", "bias", "input"), own=True, optional=True)
          for name in OUTPUTS[3:]),
    ),
    loops=gradient_loops,
    arrays=gradient_arrays,
    shapes=of(*GIVEN, "weight", "bias"),
    kernel=dtype_of("input"),
    torch=torch_gradient,
    **COMMON,
    broadcast=(
        Setup("one-token", (2, 4, 6), shapes=dict.fromkeys(PAIR, (2, 1, 6))),
        Setup("no-batch", (5, 4), shapes={"shift": (1, 4)}),
    ),
    mixed=(
        *(Setup(dtypes={**dict.fromkeys(GIVEN, one), "weight": FLOAT, "bias": FLOAT})
          for one in (FLOAT16, BF16)),
        *(Setup(dtypes={**dict.fromkeys(GIVEN, one), OUTPUTS[3]: FLOAT, OUTPUTS[4]: FLOAT},
                absent=("weight", "bias")) for one in (FLOAT16, BF16)),
    ),
    edges=(
        Setup("rows", (1, 4, 4), values={
            "input": [[[1.0, 1, 1, 1], [1, NAN, 2, 3], [1e4, -1e4, 0, 1], [1, 2, 3, 4]]],
            "grad_out": [[[1.0, 2, 3, 4], [1, 1, 1, 1], [300, -300, 1, 0], [INF, 0, 0, 1]]],
        }),
        Setup("equal", (1, 2003, 3), values={"input": [[[0.1, 1 / 3, 2]] * 2003],
                               "grad_out": [[[0.7, 0.1, 0.3]] * 2003]}),
    ),
    invalid=(
        *defects.nulls("grad_out", "input", "normalized_shape", "mean", "rstd", *PAIR),
        *defects.dtypes("grad_out", found=INT32),
        *defects.dtypes("input", "rstd", "mean", *PAIR, found=FLOAT16),
        *defects.dtypes("weight", "bias", found=DOUBLE),
        *(Invalid("weight-unlike-bias", {"weight": {"dtype": FLOAT}, "bias": {"dtype": FLOAT16}},
                  ("weight",), DTypeError, base=Setup(dtypes=dict.fromkeys(GIVEN, FLOAT16))),),
        *defects.dtypes(*OUTPUTS, found=FLOAT16),
        *defects.ranks("grad_out", "input", "mean", "rstd", *PAIR, *OUTPUTS),
        *defects.shapes("grad_out", (2, 4, 3), (3, 4)),
        *defects.shapes("mean", (2, 3), (2, 3, 4)),
        *shared.tails((), (3, 4)),
        Invalid("one-dimension", {"grad_out": {"shape": (4,)}, "input": {"shape": (4,)}},
                ("input",), ShapeError),
        *shared.tails((3,)),
        *(row for name in ("weight", "bias") for row in defects.shapes(name, (3,), (1, 4))),
        Invalid("no-tokens", {"grad_out": {"shape": (2, 0, 4)}, "input": {"shape": (2, 0, 4)}},
                ("input",), ShapeError),
        *batches(*PAIR),
        Invalid("statistics-of-two", {"mean": {"shape": (2, 3)}, "rstd": {"shape": (2, 3)}},
                ("mean",), ShapeError),
        *defects.shapes(OUTPUTS[0], (2, 4, 3), (3, 4)),
        *(row for name in OUTPUTS[1:3] for row in defects.shapes(name, (2, 3), (2, 1, 4))),
        *(row for name in OUTPUTS[3:] for row in defects.shapes(name, (3,), (1, 4))),
    ),
)  # fmt: skip
