"""Every gradient operator is the derivative of its forward operator, by differences in float64.

Pairs are found by name, and calls are those of the forward operator's statement. What the backward
operator takes it is given by its names: inputs of the forward operator, its results, and the
upstream gradient. ``CASES`` has what neither names nor statement tell.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tests.rows import each

from npucall.compute.evaluate import compute
from npucall.declare.declaration import Operator
from npucall.declare.parameters import Output
from npucall.dtypes import FLOAT
from npucall.operators import CATALOGUE
from npucall_conformance.cases.case import Maker
from npucall_conformance.stating.parts import Setup

from .calls import drawn
from .defects import table_of

Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]

STEP = 1e-5
"""Of the differences, whose error is about its square, or 2^-52 of the result divided by it."""
NEAR = 2e-8
MOST = 12
"""Of a statement's combinations of attributes about so many are tried."""
PARTS = re.compile(r"(?P<of>aclnn\w+?)(Target|Dense)?(Backward|Grad)(?P<version>V[24])?")
PARTIAL = {
    *("aclnnBatchNormReduceBackward", "aclnnBatchNormElemtBackward", "aclnnUnfoldGrad"),
    *("aclnnGroupedBiasAddGrad", "aclnnGroupedBiasAddGradV2", "aclnnModulateBackward"),
    *("aclnnChamferDistanceBackward", "aclnnGRUBackward", "aclnnConvTbcBackward"),
    *("aclnnRepeatInterleaveGrad", "aclnnLstmBackward"),
    "aclnnFusedLinearCrossEntropyLossGrad",
}
"""Steps of a gradient, those of what is no operator, and one by a factor less 1 than the forward's.
"""
GRADIENTS = [
    operator
    for operator in CATALOGUE
    if PARTS.fullmatch(operator.name) and operator.name not in PARTIAL
]
STATISTICS_OF = {"aclnnAdaLayerNorm": "aclnnAdaLayerNormV2"}
"""The version of a forward operator that gives what the gradient takes."""
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
    """What a statement does not say of calls whose derivative is the gradient's."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Values of the forward operator's attributes, instead of the statement's."""
    backward: Mapping[str, Any] = field(default_factory=dict)
    """Of attributes that the gradient operator alone has, or has under another name."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    draws: Mapping[str, Draw] = field(default_factory=dict)
    """Numbers away from where a function bends, or that it needs."""
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


def logarithms(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Logarithms of probabilities that sum to 1 along the last axis."""
    return log_softmax(random.uniform(-3, 3, shape))


def log_softmax(logits: Any) -> Any:
    """Of logarithms of probabilities these themselves."""
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


STRETCHED = Case(shapes={"self": (3, 1)})
INSIDE = between(0.3, 0.7)
SELF = {"self": between(-2, 2)}
FAR = {"self": between(-5, 5)}
ELU = {"alpha": 1.5, "scale": 0.75, "input_scale": 1.25}
GATED = {"gelu": "out_gelu"}

OF_ATTENTION = {"key_in": "key", "attention_in": "attention_out"}
IN = "same_as_input"

CASES: dict[str, tuple[Case, ...]] = {
    "aclnnKlDiv": (Case(), STRETCHED),
    "aclnnL1Loss": (Case(), STRETCHED),
    # Where self is stretched the gradients of these two divide by its own elements, as torch's do.
    "aclnnMseLoss": (Case(), replace(STRETCHED, attributes={"reduction": [0, 2]})),
    "aclnnSmoothL1Loss": (
        Case(draws=SELF),
        replace(STRETCHED, attributes={"reduction": [0, 2]}, draws=SELF),
    ),
    "aclnnSoftMarginLoss": (Case(), STRETCHED),
    "aclnnBinaryCrossEntropy": (Case(draws={"self": INSIDE}),),
    "aclnnCrossEntropyLoss": (Case({"label_smoothing": [0.0]}),),
    "aclnnCtcLoss": (Case(draws={"log_probs": logarithms}, through=log_softmax),),
    "aclnnIm2col": (Case(backward={"input_size": (4, 5)}, shapes={"self": (2, 4, 5)}),),
    "aclnnUpsampleLinear1d": (Case(renamed={"scales": "scale"}),),
    "aclnnAddLayerNorm": (Case(draws={"bias": lambda r, s: np.zeros(s)}),),
    "aclnnAdaLayerNormV2": (
        Case(
            backward={"normalized_shape": (4,)},
            renamed={"input": "x"},
            variables={"grad_scale_out": "scale", "grad_shift_out": "shift"},
        ),
    ),
    "aclnnDeepNorm": (Case(result="y_out"),),
    "aclnnClippedSwiglu": (Case({"limit": [1.5]}, draws={"x": between(-3, 3)}),),
    "aclnnGeGlu": (Case(renamed=GATED),),
    "aclnnGeGluV3": (Case(renamed=GATED),),
    **{
        f"aclnnFlashAttention{name}": (
            Case(attributes, told, result="attention_out", renamed=OF_ATTENTION | shift),
        )
        for name, attributes, told, shift in (
            *((name, {}, {}, {"pse_shift": "real_shift"}) for name in ("Score", "ScoreV2")),
            *((name, {}, {}, {}) for name in ("VarLenScore", "VarLenScoreV2")),
            ("VarLenScoreV4", {"softmax_out_layout": [IN]}, {"softmax_in_layout": IN}, {}),
        )
    },
    "aclnnMoeTokenPermute": (
        Case(
            backward={"num_topk": 2},
            shapes={"tokens": (4, 3), "indices": (4, 2)},
            renamed={"permuted_output_grad": UPSTREAM[0], "sorted_indices": "sorted_indices_out"},
        ),
    ),
    "aclnnMoeTokenUnpermute": (
        Case(
            renamed={"unpermuted_tokens_grad": UPSTREAM[0]}, variables={"probs_grad_out": "probs"}
        ),
    ),
    "aclnnMoeInitRoutingV2": (
        Case(
            {"active_num": [0], "expert_capacity": [2]},
            {"top_k": 2},
            renamed={"grad_expanded_x": UPSTREAM[0], "expanded_row_idx": "expanded_row_idx_out"},
        ),
    ),
    "aclnnMoeFinalizeRoutingV2": (
        Case({"drop_pad_mode": [2]}, {"drop_pad_mode": 0}, variables={"grad_scales_out": "scales"}),
    ),
    "aclnnThnnFusedLstmCell": (
        Case(
            backward={"grad_c": np.zeros((3, 4)), "has_bias": True},
            shapes={
                **dict.fromkeys(("input_gates", "hidden_gates"), (3, 16)),
                **dict.fromkeys(("input_bias", "hidden_bias"), (16,)),
                "cx": (3, 4),
            },
            variables={"grad_cx_out": "cx", "grad_bias_out": "input_bias"},
        ),
    ),
    "aclnnCdist": (Case({"p": [2.0, 1.0, 3.0]}, renamed={"cdist": "out"}),),
    "aclnnDropoutDoMask": (Case({"prob": [0.5]}, {"scale": 2.0}),),
    "aclnnBatchNorm": (Case(result="output"),),
    "aclnnGroupNormSwish": (Case({"activate_swish": [True]}),),
    "aclnnGroupNorm": (Case(renamed={"input": "self"}),),
    **{
        f"aclnnAdaptiveMaxPool{axes}d": (Case(renamed={"indices": "indices_out"}),)
        for axes in (2, 3)
    },
    "aclnnGeluV2": (
        Case({"approximate": [0]}, {"approximate": "none"}),
        Case({"approximate": [1]}, {"approximate": "tanh"}),
    ),
    "aclnnElu": tuple(
        Case({name: [value] for name, value in ELU.items()}, {"is_result": known}, draws=SELF)
        for known in (False, True)
    ),
    "aclnnLeakyRelu": tuple(
        Case({"negative_slope": [0.125]}, {"self_is_result": known}, draws=SELF)
        for known in (False, True)
    ),
    "aclnnHardtanh": (
        Case(
            {"clip_value_min": [-0.5], "clip_value_max": [1.5]},
            {"min": -0.5, "max": 1.5},
            draws=SELF,
        ),
    ),
    "aclnnSelu": (Case(draws=SELF, renamed={"result": "out"}),),
    "aclnnLogSigmoid": (Case(backward={"buffer": np.zeros(())}),),
    "aclnnHardshrink": (Case(draws=SELF),),
    "aclnnSoftshrink": (Case(draws=SELF),),
    "aclnnThreshold": (Case({"threshold": [0.25], "value": [-1.5]}, draws=SELF),),
    "aclnnHardswish": (Case(draws=FAR),),
    "aclnnHardsigmoid": (Case(draws=FAR),),
    "aclnnLogit": (Case({"eps": [-1.0, 0.0, 0.4]}, draws={"input": between(0.2, 0.8)}),),
}
EXCEPT: dict[str, tuple[str, tuple[Any, ...]]] = {
    "aclnnKlDivTargetBackward (documented)": ("reduction", (1, 3)),
    "aclnnKlDivTargetBackward (community)": ("reduction", (3,)),
    "aclnnUpsampleBilinear2dBackward": ("scales_w", (1.75,)),
}
"""Values with which a gradient knows that it is not the function's: see their docstrings."""


def forward_of(gradient: Operator[..., Any]) -> Operator[..., Any]:
    """Its forward operator: of the same version if there is one."""
    parts = PARTS.fullmatch(gradient.name)
    assert parts is not None
    names = {operator.name for operator in CATALOGUE}
    versioned = f"{parts['of']}{parts['version'] or ''}"
    unpadded = versioned.replace("Unpadding", "VarLen")
    known = versioned, unpadded, parts["of"], f"{parts['of']}DoMask"
    found = next(name for name in known if name in names)
    return CATALOGUE.find(STATISTICS_OF.get(found, found))


def calls(
    forward: Operator[..., Any], case: Case
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Inputs in float64, every one of them, and attributes: as the operator's statement has them.

    Of many combinations of attributes some are taken.
    """
    statement = table_of(forward).statement
    statement = replace(statement, attributes={**statement.attributes, **case.attributes})
    make, random = Maker(statement, "derivatives"), np.random.default_rng(11)
    setup = Setup(shapes=case.shapes, absent=("",))
    for attributes in make.combinations[:: -(-len(make.combinations) // MOST)]:
        made = make.case(FLOAT, setup, attributes)
        tensors = drawn(made)[0]
        for name in forward.sample.without:
            tensors.pop(name, None)
        yield {n: _numbers(case, n, a, random) for n, a in tensors.items()}, dict(made.attributes)


def _numbers(case: Case, name: str, array: Any, random: np.random.Generator) -> Any:
    if name in case.draws:
        return np.asarray(case.draws[name](random, array.shape))
    return array.astype(np.float64) if array.dtype.kind == "f" else array


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
    shape = tensors[first].shape
    values = {
        "output": result,
        **dict.fromkeys(UPSTREAM, upstream),
        **dict.fromkeys(("input_shape", "input_size"), shape),
        "num_weights": shape[0] if shape else 1,
        **tensors,
        **attributes,
    }
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
    gradient: Operator[..., Any],
    case: Case,
    tensors: Mapping[str, Any],
    attributes: Mapping[str, Any],
) -> Iterator[tuple[str, Any, Any]]:
    """Of each output its variable, and a derivative along a direction: by it, by differences."""
    forward = forward_of(gradient)

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
    name, values = EXCEPT.get(gradient.title, ("", ()))
    for case in CASES.get(forward_of(gradient).name, (Case(),)):
        for tensors, attributes in calls(forward_of(gradient), case):
            if attributes.get(name) in values:
                continue
            for variable, found, expected in compared(gradient, case, tensors, attributes):
                if not np.allclose(found, expected, rtol=NEAR, atol=NEAR):
                    wrong.append((attributes, dict(case.backward), variable, found, expected))
    assert not wrong


def test_differences_tell_a_wrong_gradient() -> None:
    target = np.array([1.0, 2, 3])
    along, zeros = direction((3,)), np.zeros(3)
    found = by_differences(lambda x: np.sum((x - target) ** 2), zeros, np.asarray, along)
    right = -2 * target
    assert np.isclose(found, np.sum(right * along), rtol=NEAR, atol=NEAR)
    for wrong in right[::-1], right + np.array([0, 1e-5, 0]):
        assert not np.isclose(found, np.sum(wrong * along), rtol=NEAR, atol=NEAR)
