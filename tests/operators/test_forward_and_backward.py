"""Every gradient operator is the derivative of its forward operator, by differences in float64.

Pairs are found by name. What the backward operator takes it is given by its names: inputs of the
forward operator, its results, and the upstream gradient. ``CASES`` has what no name tells.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from tests.rows import each

from npucall.compute.evaluate import compute
from npucall.declare.declaration import Operator
from npucall.declare.parameters import Output
from npucall.operators import CATALOGUE

Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]

STEP = 1e-5
"""Of the differences, whose error is about its square, or 2^-52 of the result divided by it."""
NEAR = 2e-8
SHAPE = (3, 4)
PARTS = re.compile(r"(?P<of>aclnn\w+?)(Target|Dense)?(Backward|Grad)(?P<version>V2)?")
PARTIAL = {"aclnnBatchNormReduceBackward", "aclnnBatchNormElemtBackward", "aclnnUnfoldGrad"}
"""Steps of a gradient, and the gradient of a view, which is no operator."""
GRADIENTS = [
    operator
    for operator in CATALOGUE
    if PARTS.fullmatch(operator.name) and operator.name not in PARTIAL
]
UPSTREAM = ("grad_output", "grad_out", "grad_loss", "dy", "y_grad", "grad_y", "grad", "grad_hy")
VARIABLES = {
    "grad_weight": "weight",
    "grad_target": "target",
    "grad_bias": "bias",
    "dgx_out": "gx",
    "dcos_out": "cos",
    "dsin_out": "sin",
    "grad_weight_out": "weight",
    "grad_bias_out": "bias",
    "dgamma_out": "gamma",
    "grad_gamma_out": "gamma",
    "grad_beta_out": "beta",
    "dbeta_out": "beta",
    "dk": "key",
    "dv": "value",
    "grid_grad": "grid",
}
"""The input that an output is the gradient of, if it is not the first one."""


@dataclass(frozen=True)
class Case:
    """A forward operator's calls, and how its gradient calls things otherwise."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Values of the forward operator's attributes; a list has several to try."""
    backward: Mapping[str, Any] = field(default_factory=dict)
    """Of attributes that the gradient operator alone has, or has under another name."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    draws: Mapping[str, Draw] = field(default_factory=dict)
    through: Callable[[Any], Any] = np.asarray
    """What the gradient goes through on its way to the variable, which is a result of it."""
    result: str = ""
    """The forward operator's output whose gradient is given, if that is not the first."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What the gradient operator calls inputs and outputs of the forward operator."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """As ``VARIABLES``, where names mean something else."""


def between(low: float, high: float) -> Draw:
    """Numbers of an interval."""
    return lambda random, shape: random.uniform(low, high, shape)


def labels(classes: int) -> Draw:
    return lambda random, shape: random.integers(0, classes, shape)


def logarithms(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Logarithms of probabilities that sum to 1 along the last axis."""
    return log_softmax(random.uniform(-3, 3, shape))


def log_softmax(logits: Any) -> Any:
    """Of logarithms of probabilities these themselves."""
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def reduced(*reductions: Any, **more: Any) -> dict[str, Any]:
    return {"reduction": list(reductions or (0, 1, 2)), **more}


STRETCHED = {"self": (3, 1)}
INSIDE = between(0.3, 0.7)
LABELLED = {"target": labels(4), "weight": between(0.5, 2)}
LOGITS = {"target": INSIDE, "weight": between(0.5, 2), "pos_weight": between(0.5, 2)}
CTC = {"input_lengths": (5, 4), "target_lengths": (2, 1)}
ELU = {"alpha": 1.5, "scale": 0.75, "input_scale": 1.25}
SIDES = (3, 4, 3)


def upsampled(kind: str, axes: int, **more: Any) -> dict[str, tuple[Case, ...]]:
    """Planes with more cells along each of the last axes."""
    planes = (1, 2, *SIDES[:axes])
    sizes = {"output_size": tuple(2 * side - 1 for side in SIDES[:axes]), **more}
    return {
        f"aclnnUpsample{kind}": (
            Case(sizes, {"input_size": planes}, dict.fromkeys(("self", "input", "x"), planes)),
        )
    }


CASES: dict[str, tuple[Case, ...]] = {
    **{
        f"aclnn{kind}Pad{axes}d": (
            Case({"padding": (2, 1) * axes}, shapes={"self": (2, *SIDES[:axes])}),
        )
        for kind in ("Reflection", "Replication", "Circular")
        for axes in (1, 2, 3)
    },
    **{
        f"aclnnGridSampler{axes}D": (
            Case(
                {"interpolation_mode": list(modes), "padding_mode": 2},
                shapes={"input": (1, 2, *SIDES[:axes]), "grid": (1, *(2,) * axes, axes)},
            ),
        )
        for axes, modes in ((2, range(3)), (3, range(2)))
    },
    "aclnnRoiAlignV2": (
        Case(
            {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5, "aligned": [False, True]},
            {"input_shape": (1, 2, 4, 5)},
            {"self": (1, 2, 4, 5), "boxes": (2, 5)},
            {"boxes": lambda *_: np.array([[0, 1.25, 2.5, 8.5, 4.25], [0, 0, 0, 9, 7.5]])},
        ),
    ),
    "aclnnIm2col": (
        Case(
            {"kernel_size": (2, 3), "dilation": (1, 2), "padding": (1, 2), "stride": (2, 1)},
            {"input_size": (4, 5)},
            {"self": (2, 4, 5)},
        ),
    ),
    **upsampled("Nearest1d", 1),
    **upsampled("Nearest2d", 2),
    **upsampled("Nearest3d", 3),
    **upsampled("NearestExact1d", 1),
    **upsampled("NearestExact2d", 2),
    **upsampled("NearestExact3d", 3),
    **upsampled("Linear1d", 1, align_corners=[False, True]),
    **upsampled("Bilinear2d", 2, align_corners=True),
    **upsampled("Bicubic2d", 2, align_corners=True),
    **upsampled("Trilinear3d", 3, align_corners=False),
    **upsampled("Bilinear2dAA", 2, align_corners=False),
    **upsampled("Bicubic2dAA", 2, align_corners=True),
    "aclnnKlDiv": (
        Case(reduced(0, 1, 2, 3, log_target=[False, True]), draws={"target": INSIDE}),
        Case(reduced(0, 1, 2, 3), shapes=STRETCHED, draws={"target": INSIDE}),
    ),
    "aclnnL1Loss": (Case(reduced()), Case(reduced(), shapes=STRETCHED)),
    # Where self is stretched the gradients of these two divide by its own elements, as torch's do.
    "aclnnMseLoss": (Case(reduced()), Case(reduced(0, 2), shapes=STRETCHED)),
    "aclnnSmoothL1Loss": (
        Case(reduced(beta=[0.0, 0.75, 5.0])),
        Case(reduced(0, 2, beta=0.75), shapes=STRETCHED),
    ),
    "aclnnSoftMarginLoss": (Case(reduced()), Case(reduced(), shapes=STRETCHED)),
    "aclnnBinaryCrossEntropy": (Case(reduced(), draws={**LOGITS, "self": INSIDE}),),
    "aclnnBinaryCrossEntropyWithLogits": (Case(reduced(), draws=LOGITS),),
    "aclnnNLLLoss": (
        Case(
            reduced(ignore_index=[-100, 2]),
            shapes={"self": (6, 4), "target": (6,), "weight": (4,)},
            draws=LABELLED,
        ),
    ),
    "aclnnNLLLoss2d": (
        Case(
            reduced(ignore_index=[-100, 2]),
            shapes={"self": (2, 4, 1, 3), "target": (2, 1, 3), "weight": (4,)},
            draws=LABELLED,
        ),
    ),
    "aclnnCrossEntropyLoss": (
        Case(
            reduced("none", "mean", "sum", ignore_index=[-100, 2]),
            shapes={"input": (6, 4), "target": (6,), "weight": (4,)},
            draws={"target": labels(4), "weight": lambda r, s: np.float32(r.uniform(0.5, 2, s))},
        ),
    ),
    "aclnnCtcLoss": (
        Case(
            CTC,
            shapes={"log_probs": (5, 2, 4), "targets": (2, 2)},
            draws={"log_probs": logarithms, "targets": lambda r, s: r.integers(1, 4, s)},
            through=log_softmax,
        ),
    ),
    "aclnnRotaryPositionEmbedding": (
        Case(
            {"mode": [0, 1]}, shapes={"x": (2, 3, 2, 4), "cos": (1, 3, 1, 4), "sin": (1, 3, 1, 4)}
        ),
    ),
    "aclnnConvolution": (
        Case(
            {"stride": (2, 1), "padding": (1,), "groups": 2, "cube_math_type": 0},
            shapes={"input": (2, 4, 3, 4), "weight": (6, 2, 2, 3), "bias": (6,)},
        ),
        Case(
            {"transposed": True, "stride": (2,), "output_padding": (1,), "cube_math_type": 0},
            shapes={"input": (2, 4, 3), "weight": (4, 3, 2), "bias": (3,)},
        ),
    ),
    "aclnnLayerNorm": (
        Case(
            {"normalized_shape": (4,), "eps": 1e-3},
            shapes={"weight": (4,), "bias": (4,)},
        ),
    ),
    "aclnnRmsNorm": (Case({"epsilon": 1e-3}, shapes={"gamma": (4,)}),),
    "aclnnAddLayerNorm": (
        Case(
            {"epsilon": 1e-3},
            shapes={"gamma": (4,), "beta": (4,), "bias": (4,)},
            draws={"bias": lambda r, s: np.zeros(s)},
        ),
    ),
    "aclnnDeepNorm": (
        Case(
            {"alpha": [0.5, 2.0], "epsilon": 1e-3},
            shapes={"gamma": (4,), "beta": (4,)},
            result="y_out",
        ),
    ),
    "aclnnClippedSwiglu": (
        Case(
            {"limit": 1.5, "dim": [1, 0], "interleaved": [True, False]},
            shapes={"x": (4, 6), "group_index": (1,)},
            draws={"x": between(-3, 3), "group_index": lambda r, s: np.full(s, 3)},
        ),
    ),
    "aclnnScaledMaskedSoftmax": (
        Case(
            {"scale": 0.5},
            shapes={"x": (1, 2, 3, 4), "mask": (1, 1, 3, 4)},
            draws={"mask": lambda r, s: np.eye(3, 4, dtype=bool).reshape(s)},
        ),
    ),
    "aclnnGeGlu": (
        Case({"approximate": [0, 1]}, renamed={"gelu": "out_gelu"}),
        Case({"dim": 0}, shapes={"self": (6, 3)}, renamed={"gelu": "out_gelu"}),
    ),
    "aclnnGeGluV3": (
        Case({"approximate": [0, 1], "activate_left": [False, True]}, renamed={"gelu": "out_gelu"}),
    ),
    "aclnnFlashAttentionScore": (
        Case(
            {"head_num": 4, "input_layout": "BNSD", "scale_value": 0.5, "pre_tokens": [0, 9]},
            shapes={
                **dict.fromkeys(("key", "value"), (2, 2, 5, 3)),
                "query": (2, 4, 3, 3),
                "real_shift": (1, 4, 3, 5),
                "atten_mask": (3, 5),
            },
            draws={"atten_mask": lambda r, s: np.eye(*s, k=1, dtype=np.uint8)},
            result="attention_out",
            renamed={
                "key_in": "key",
                "pse_shift": "real_shift",
                "attention_in": "attention_out",
            },
        ),
    ),
    "aclnnMoeTokenPermute": (
        Case(
            {"num_out_tokens": [0, 5]},
            {"num_topk": 2},
            shapes={"tokens": (4, 3), "indices": (4, 2)},
            draws={"indices": labels(3)},
            renamed={"permuted_output_grad": UPSTREAM[0], "sorted_indices": "sorted_indices_out"},
        ),
    ),
    "aclnnMoeTokenUnpermute": (
        Case(
            shapes={"permuted_tokens": (8, 3), "sorted_indices": (8,), "probs": (4, 2)},
            draws={"sorted_indices": lambda r, s: np.int32(r.permutation(s[0]))},
            renamed={"unpermuted_tokens_grad": UPSTREAM[0]},
            variables={"probs_grad_out": "probs"},
        ),
    ),
    "aclnnMoeInitRoutingV2": (
        Case(
            {"drop_pad_mode": [0, 1], "expert_num": 3, "expert_capacity": 2},
            {"top_k": 2},
            shapes={"x": (4, 3), "expert_idx": (4, 2)},
            draws={"expert_idx": lambda r, s: np.int32(r.integers(0, 3, s))},
            renamed={"grad_expanded_x": UPSTREAM[0], "expanded_row_idx": "expanded_row_idx_out"},
        ),
    ),
    "aclnnMoeFinalizeRoutingV2": (
        Case(
            {"drop_pad_mode": 2},
            {"drop_pad_mode": 0},
            shapes={
                **dict.fromkeys(("scales", "expert_idx"), (4, 2)),
                **dict.fromkeys(("x1", "x2"), (4, 3)),
                "expanded_x": (8, 3),
                "expanded_row_idx": (8,),
                "bias": (3, 3),
            },
            draws={
                "expanded_row_idx": lambda r, s: np.int32(r.permutation(s[0])),
                "expert_idx": lambda r, s: np.int32(r.integers(0, 3, s)),
            },
            variables={"grad_scales_out": "scales"},
        ),
    ),
    "aclnnThnnFusedLstmCell": (
        Case(
            backward={"grad_c": np.zeros(SHAPE), "has_bias": True},
            shapes={
                **dict.fromkeys(("input_gates", "hidden_gates"), (3, 16)),
                **dict.fromkeys(("input_bias", "hidden_bias"), (16,)),
            },
            variables={"grad_cx_out": "cx", "grad_bias_out": "input_bias"},
        ),
    ),
    "aclnnSwiGlu": (Case({"dim": -1}), Case({"dim": 0}, shapes={"x": (6, 3)})),
    "aclnnDropoutDoMask": (
        Case(
            {"prob": 0.5},
            {"scale": 2.0},
            shapes={"mask": (16,)},
            draws={"mask": lambda r, s: r.integers(0, 256, s, np.uint8)},
        ),
    ),
    "aclnnEmbedding": (
        Case(
            backward={"num_weights": 4},
            shapes={"weight": (4, 3), "indices": (5,)},
            draws={"indices": labels(4)},
        ),
    ),
    "aclnnBatchNorm": (
        Case(
            {"training": [True, False], "eps": 1e-3},
            shapes={"weight": (4,), "bias": (4,)},
            result="output",
        ),
    ),
    "aclnnGroupNormSwish": (
        Case(
            {"num_groups": [1, 2], "swish_scale": 0.75, "eps": 1e-3},
            shapes={"x": (2, 4, 3), "gamma": (4,), "beta": (4,)},
        ),
    ),
    "aclnnGroupNorm": (
        Case(
            {"n": 2, "c": 4, "hxw": 3, "group": [1, 2], "eps": 1e-3},
            shapes={"self": (2, 4, 3), "gamma": (4,), "beta": (4,)},
            renamed={"input": "self"},
        ),
    ),
    "aclnnMaxPool2dWithIndices": (
        Case({"kernel_size": (2,), "stride": (1,)}, shapes={"self": (2, 3, 4)}),
    ),
    "aclnnMaxPool2dWithMask": (
        Case({"kernel_size": (2,), "stride": (1,)}, shapes={"self": (2, 3, 4)}),
    ),
    "aclnnAvgPool2d": (
        Case(
            {
                "kernel_size": (3, 2),
                "stride": (2, 1),
                "padding": (1,),
                "ceil_mode": [False, True],
                "count_include_pad": [False, True],
                "divisor_override": [0, 5],
            },
            shapes={"self": (2, 4, 5)},
        ),
    ),
    "aclnnMaxPool3dWithArgmax": (
        Case({"kernel_size": (2,), "stride": (1,)}, shapes={"self": (2, 2, 3, 3)}),
    ),
    "aclnnAvgPool3d": (
        Case(
            {"kernel_size": (2, 3, 2), "stride": (1,), "padding": (1, 0, 1), "ceil_mode": True},
            shapes={"self": (1, 2, 4, 3)},
        ),
    ),
    **{
        f"aclnnAdaptiveMaxPool{axes}d": (
            Case(
                {"output_size": (2, 3, 1)[:axes]},
                shapes={"self": (1, 3, 2, 4)[: axes + 1]},
                renamed={"indices": "indices_out"},
            ),
        )
        for axes in (2, 3)
    },
    **{
        f"aclnnMaxUnpool{axes}d": (
            Case(
                {"output_size": (3,) * axes},
                shapes={"self": (1, *(2,) * axes), "indices": (1, *(2,) * axes)},
                draws={"indices": lambda _, shape: np.arange(np.prod(shape)).reshape(shape) * 2},
            ),
        )
        for axes in (2, 3)
    },
    "aclnnAdaptiveAvgPool3d": (Case({"output_size": (2, 3, 1)}, shapes={"self": (1, 3, 2, 4)}),),
    "aclnnAdaptiveAvgPool2d": (
        Case({"output_size": [(2, 3), (7, 2)]}, shapes={"self": (2, 4, 5)}),
    ),
    "aclnnSoftmax": (Case({"dim": [0, -1]}),),
    "aclnnLogSoftmax": (Case({"dim": [0, -1]}),),
    "aclnnGlu": (Case({"dim": -1}), Case({"dim": 0}, shapes={"self": (6, 3)})),
    "aclnnPrelu": (
        Case(shapes={"self": (2, 3, 2), "weight": (3,)}),
        Case(shapes={"weight": (1,)}),
    ),
    "aclnnGeluV2": (
        Case({"approximate": 0}, {"approximate": "none"}),
        Case({"approximate": 1}, {"approximate": "tanh"}),
    ),
    "aclnnElu": (Case(ELU, {"is_result": False}), Case(ELU, {"is_result": True})),
    "aclnnLeakyRelu": (
        Case({"negative_slope": 0.125}, {"self_is_result": False}),
        Case({"negative_slope": 0.125}, {"self_is_result": True}),
    ),
    "aclnnHardtanh": (
        Case({"clip_value_min": -0.5, "clip_value_max": 1.5}, {"min": -0.5, "max": 1.5}),
    ),
    "aclnnSwish": (Case({"beta": [None, 1.5, -0.25]}),),
    "aclnnHardshrink": (Case({"lambd": 0.75}),),
    "aclnnSoftshrink": (Case({"lambd": 0.75}),),
    "aclnnSelu": (Case(renamed={"result": "out"}),),
    "aclnnLogSigmoid": (Case(backward={"buffer": np.zeros(())}),),
    "aclnnSoftplus": (Case({"beta": [1.0, 2.0], "threshold": 3.0}),),
    "aclnnThreshold": (Case({"threshold": 0.25, "value": -1.5}),),
    "aclnnHardswish": (Case(draws={"self": between(-5, 5)}),),
    "aclnnHardsigmoid": (Case(draws={"self": between(-5, 5)}),),
    "aclnnLogit": (Case({"eps": [-1.0, 0.0, 0.4]}, draws={"input": between(0.1, 0.9)}),),
}
EXCEPT: dict[str, tuple[int, ...]] = {
    "aclnnKlDivTargetBackward (documented)": (1, 3),
    "aclnnKlDivTargetBackward (community)": (3,),
}
"""Reductions of which a gradient knows that it is not the loss's: see their docstrings."""


def forward_of(gradient: Operator[..., Any]) -> Operator[..., Any]:
    """Its forward operator: of the same version if there is one."""
    parts = PARTS.fullmatch(gradient.name)
    assert parts is not None
    names = {operator.name for operator in CATALOGUE}
    versioned = f"{parts['of']}{parts['version'] or ''}"
    known = versioned, parts["of"], f"{parts['of']}DoMask"
    return CATALOGUE.find(next(name for name in known if name in names))


def calls(case: Case) -> list[dict[str, Any]]:
    """All combinations of a case's attributes."""
    choices = [v if isinstance(v, list) else [v] for v in case.attributes.values()]
    return [dict(zip(case.attributes, chosen, strict=True)) for chosen in product(*choices)]


def drawn(forward: Operator[..., Any], case: Case) -> dict[str, Any]:
    """The forward operator's inputs, every one of them."""
    random = np.random.default_rng(11)
    return {
        p.name: np.asarray(
            case.draws.get(p.name, between(-2, 2))(random, case.shapes.get(p.name, SHAPE))
        )
        for p in forward.inputs
        if p.name not in forward.sample.without
    }


def given_to(
    gradient: Operator[..., Any],
    forward: Operator[..., Any],
    tensors: Mapping[str, Any],
    answers: Mapping[str, Any],
    upstream: Any,
    case: Case,
    attributes: Mapping[str, Any],
) -> dict[str, Any]:
    """What the gradient operator takes, by its own names."""
    first = forward.inputs[0].name
    is_result = attributes.get("self_is_result") or attributes.get("is_result")
    result = next(iter(answers.values()))
    values = {"output": result, **dict.fromkeys(UPSTREAM, upstream), **tensors, **attributes}
    for name, answer in answers.items():
        values.setdefault(name.removesuffix("_out"), answer)
    values |= {own: {**values, **answers}[name] for own, name in case.renamed.items()}
    for name in ("self", "self_or_result", "x"):
        if name == first or name not in tensors:
            values[name] = result if is_result else tensors[first]
    wanted = [p for p in gradient.parameters if not isinstance(p, Output)]
    left_out = gradient.sample.without
    return {p.name: values[p.name] for p in wanted if p.name in values and p.name not in left_out}


def by_differences(
    weigh: Callable[[Any], Any], variable: Any, through: Callable[[Any], Any], along: Any
) -> Any:
    """The derivative of what ``weigh`` answers, as all elements of the variable move at once."""
    there, back = (weigh(through(variable + step * along)) for step in (STEP, -STEP))
    return (there - back) / (2 * STEP)


def direction(shape: tuple[int, ...]) -> Any:
    """No two elements move alike: a wrong gradient of any of them shows."""
    random = np.random.default_rng(13)
    return random.choice((-1, 1), shape) * random.uniform(0.5, 1, shape)


def summed_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Summed along the axes that an input was stretched along: some operators leave that."""
    axes = tuple(n for n, (a, b) in enumerate(zip(array.shape, shape, strict=True)) if a != b)
    return array.sum(axes, keepdims=True)


def named(operator: Operator[..., Any], answer: Any) -> dict[str, Any]:
    """Its outputs by name, without those that nobody asks for."""
    every = answer if isinstance(answer, tuple) else (answer,)
    pairs = zip(operator.outputs, every, strict=True)
    return {output.name: one for output, one in pairs if one is not None}


def compared(
    gradient: Operator[..., Any], case: Case, attributes: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Of each output its variable, and a derivative along a direction: by it, by differences."""
    forward = forward_of(gradient)
    tensors = drawn(forward, case)

    def answered(**changed: Any) -> dict[str, Any]:
        return named(forward, compute(forward, **{**tensors, **changed}, **attributes))

    answers = answered()
    result = case.result or next(iter(answers))
    upstream = np.random.default_rng(12).uniform(0.5, 2, answers[result].shape)
    more = {**attributes, **case.backward}
    given = given_to(gradient, forward, tensors, answers, upstream, case, more)
    for output, one in named(gradient, compute(gradient, **given)).items():
        name = {**VARIABLES, **case.variables}.get(output, forward.inputs[0].name)

        def weigh(moved: Any, name: str = name) -> Any:
            return np.sum(upstream * answered(**{name: moved})[result])

        along = direction(tensors[name].shape)
        expected = by_differences(weigh, tensors[name], case.through, along)
        yield name, np.sum(summed_to(one, along.shape) * along), expected


@each("gradient", GRADIENTS)
def test_a_gradient_is_the_derivative_of_its_forward_operator(
    gradient: Operator[..., Any],
) -> None:
    wrong = []
    for case in CASES.get(forward_of(gradient).name, (Case(),)):
        for attributes in calls(case):
            if attributes.get("reduction") in EXCEPT.get(gradient.title, ()):
                continue
            for name, found, expected in compared(gradient, case, attributes):
                if not np.allclose(found, expected, rtol=NEAR, atol=NEAR):
                    wrong.append((attributes, dict(case.backward), name, found, expected))
    assert not wrong


def test_differences_tell_a_wrong_gradient() -> None:
    target = np.array([1.0, 2, 3])
    along, zeros = direction((3,)), np.zeros(3)
    found = by_differences(lambda x: np.sum((x - target) ** 2), zeros, np.asarray, along)
    right = -2 * target
    assert np.isclose(found, np.sum(right * along), rtol=NEAR, atol=NEAR)
    for wrong in right[::-1], right + np.array([0, 1e-5, 0]):
        assert not np.isclose(found, np.sum(wrong * along), rtol=NEAR, atol=NEAR)
