"""How each operator is called through torch: by a function that ends in the same kernel.

torch_npu registers the device ``npu`` and gives torch's operators kernels that call ``aclnn*``; its
repository op-plugin says which. Operators of ``torch.ops.aten`` are called directly. If torch has a
gradient only in autograd, the forward function is called and differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from npucall_conformance.running.not_judged import NotJudgedError

REDUCTIONS = (0, 1, 2)
"""The codes that torch knows: none, mean, sum."""


@dataclass(frozen=True)
class TorchArguments:
    """A call's arguments as torch takes them; ``given["self"]``; None for what is absent."""

    torch: Any
    npu: Any
    """The module torch_npu."""
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def aten(self) -> Any:
        """The operators of torch."""
        return self.torch.ops.aten


Way: TypeAlias = Callable[[TorchArguments], Any]
"""Calls an operator; answers its outputs in their order, or the only one."""


def aten(name: str, *arguments: str, **named: str) -> Way:
    """An operator of torch, such as ``silu_backward`` or ``mean.dim``, with these arguments."""
    operator, _, overload = name.partition(".")

    def call(given: TorchArguments) -> Any:
        function = getattr(given.aten, operator)
        function = getattr(function, overload or "default")
        more = {key: given[value] for key, value in named.items()}
        return function(*(given[argument] for argument in arguments), **more)

    return call


def gradient(forward: Way, of: tuple[str, ...], upstream: str) -> Way:
    """The gradient of a function with respect to inputs, by autograd.

    The given gradient must have the shape and dtype of the function's result. The returned gradient
    has the input's own shape.
    """

    def call(given: TorchArguments) -> Any:
        inputs = {name: given[name].detach().requires_grad_() for name in of}
        with given.torch.enable_grad():
            result = forward(TorchArguments(given.torch, given.npu, {**given.values, **inputs}))
        grad = given[upstream]
        if (grad.shape, grad.dtype) != (result.shape, result.dtype):
            raise cannot(f"autograd takes no {upstream} but of the result's shape and dtype")
        return given.torch.autograd.grad(result, tuple(inputs.values()), grad)

    return call


def within(way: Way, name: str, known: tuple[Any, ...] = REDUCTIONS) -> Way:
    """The way, only for these values of an attribute; torch has no others."""

    def call(given: TorchArguments) -> Any:
        if given[name] not in known:
            raise cannot(f"torch has no {name} {given[name]}")
        return way(given)

    return call


def of_one_shape(way: Way, *names: str) -> Way:
    """The way, only for inputs of one shape, since autograd sums over stretched dimensions."""

    def call(given: TorchArguments) -> Any:
        if len({tuple(given[name].shape) for name in names}) > 1:
            raise cannot("autograd sums the gradient of an input that is stretched")
        return way(given)

    return call


def cannot(why: str) -> NotJudgedError:
    """The error for a call that torch cannot make."""
    return NotJudgedError(why, lowers=False)


_FORMS = ("none", "tanh")
"""The forms of GELU, by the code in ``approximate``."""
_HF32 = {0: False, 1: True}
"""``allow_hf32`` by ``cube_math_type``."""
_AS_IT_IS = False
"""``half_to_float`` of softmax."""
_LOSS = ("self", "target", "reduction")
_LOSS_GRADIENT = ("grad_output", *_LOSS)
_CLASSES = ("target", "weight", "reduction", "ignore_index")
_LENGTHS = ("input_lengths", "target_lengths")


def _cast(given: TorchArguments) -> Any:
    return given.npu.npu_dtype_cast(given["self"], given["dtype"])


def _npu_gelu(given: TorchArguments) -> Any:
    """aclnnGeluV2: its attribute is a code, while that of its gradient is a word."""
    approximate = given["approximate"]
    if approximate not in (*_FORMS, 0, 1):
        raise cannot(f"npu_gelu has no approximate {approximate}")
    word = approximate if approximate in _FORMS else _FORMS[approximate]
    return given.npu.npu_gelu(given["self" if "self" in given.values else "x"], approximate=word)


def _cross_entropy(given: TorchArguments) -> Any:
    names = ("reduction", "ignore_index", "label_smoothing", "return_zloss")
    more = {name: given[name] for name in names}
    more["lse_square_scale_for_zloss"] = given["lse_square_scale_for_zloss"]
    return given.npu.npu_cross_entropy_loss(
        given["input"], given["target"], weight=given["weight"], **more
    )


def _matmul(given: TorchArguments) -> Any:
    if given["cube_math_type"] not in _HF32:
        raise cannot(f"torch_npu never passes cube_math_type {given['cube_math_type']}")
    given.npu.npu.matmul.allow_hf32 = _HF32[given["cube_math_type"]]
    return given.torch.matmul(given["self"], given["mat2"])


def _softmax(name: str) -> Way:
    def call(given: TorchArguments) -> Any:
        return getattr(given.aten, name)(given["self"], given["dim"], _AS_IT_IS)

    return call


def _softmax_gradient(name: str) -> Way:
    def call(given: TorchArguments) -> Any:
        grad = given["grad_output"]
        return getattr(given.aten, name)(grad, given["output"], given["dim"], grad.dtype)

    return call


def _gradient_of(name: str, loss: Way) -> Way:
    """The gradient of a loss with respect to one of its two tensors."""
    way = of_one_shape(gradient(loss, (name,), "grad_output"), "self", "target")
    return within(way, "reduction")


def _prelu(given: TorchArguments) -> Any:
    return given.torch.prelu(given["self"], given["weight"])


_KL_DIV = aten("kl_div", *_LOSS, log_target="log_target")
_WITH_LOGITS = aten(
    "binary_cross_entropy_with_logits", "self", "target", "weight", "pos_weight", "reduction"
)
_BOTH = ("grad_output", "self")

WAYS: Mapping[str, Way] = {
    "aclnnAdd": aten("add.Tensor", "self", "other", alpha="alpha"),
    "aclnnBinaryCrossEntropy": aten(
        "binary_cross_entropy", "self", "target", "weight", "reduction"
    ),
    "aclnnBinaryCrossEntropyBackward": aten(
        "binary_cross_entropy_backward", *_BOTH, "target", "weight", "reduction"
    ),
    "aclnnBinaryCrossEntropyWithLogits": _WITH_LOGITS,
    "aclnnBinaryCrossEntropyWithLogitsBackward": _gradient_of("self", _WITH_LOGITS),
    "aclnnCast": _cast,
    "aclnnCrossEntropyLoss": _cross_entropy,
    "aclnnCtcLoss": aten("_ctc_loss", "log_probs", "targets", *_LENGTHS, "blank", "zero_infinity"),
    "aclnnCtcLossBackward": aten(
        "_ctc_loss_backward", "grad_out", "log_probs", "targets", *_LENGTHS,
        "neg_log_likelihood", "log_alpha", "blank", "zero_infinity",
    ),
    "aclnnDiv": aten("div.Tensor", "self", "other"),
    "aclnnElu": aten("elu", "self", "alpha", "scale", "input_scale"),
    "aclnnEluBackward": aten(
        "elu_backward", "grad_output", "alpha", "scale", "input_scale", "is_result",
        "self_or_result",
    ),
    "aclnnExp": aten("exp", "self"),
    "aclnnGelu": lambda given: given.aten.gelu(given["self"], approximate="tanh"),
    "aclnnGeluBackward": lambda given: given.aten.gelu_backward(
        given["grad_output"], given["self"], approximate="tanh"
    ),
    "aclnnGeluBackwardV2": gradient(_npu_gelu, ("self",), "grad_output"),
    "aclnnGeluV2": _npu_gelu,
    "aclnnGlu": aten("glu", "self", "dim"),
    "aclnnGluBackward": aten("glu_backward", "grad_out", "self", "dim"),
    "aclnnHardsigmoid": aten("hardsigmoid", "self"),
    "aclnnHardsigmoidBackward": aten("hardsigmoid_backward", *_BOTH),
    "aclnnHardswish": aten("hardswish", "self"),
    "aclnnHardswishBackwardV2": aten("hardswish_backward", *_BOTH),
    "aclnnHardtanh": aten("hardtanh", "self", "clip_value_min", "clip_value_max"),
    "aclnnHardtanhBackward": aten("hardtanh_backward", *_BOTH, "min", "max"),
    "aclnnKlDiv": within(_KL_DIV, "reduction"),
    "aclnnKlDivBackward": _gradient_of("self", _KL_DIV),
    "aclnnKlDivTargetBackward.builtin": _gradient_of("target", _KL_DIV),
    "aclnnL1Loss": aten("l1_loss", *_LOSS),
    "aclnnL1LossBackward": _gradient_of("self", aten("l1_loss", *_LOSS)),
    "aclnnLeakyRelu": aten("leaky_relu", "self", "negative_slope"),
    "aclnnLeakyReluBackward": aten(
        "leaky_relu_backward", *_BOTH, "negative_slope", "self_is_result"
    ),
    "aclnnLog": aten("log", "self"),
    "aclnnLogSoftmax": _softmax("_log_softmax"),
    "aclnnLogSoftmaxBackward": _softmax_gradient("_log_softmax_backward_data"),
    "aclnnLogit": aten("logit", "input", "eps"),
    "aclnnLogitGrad": aten("logit_backward", "dy", "x", "eps"),
    "aclnnMatmul": _matmul,
    "aclnnMean": aten("mean.dim", "self", "dim", "keep_dim", dtype="dtype"),
    "aclnnMseLoss": aten("mse_loss", *_LOSS),
    "aclnnMseLossBackward": aten("mse_loss_backward", *_LOSS_GRADIENT),
    "aclnnMul": aten("mul.Tensor", "self", "other"),
    "aclnnMuls": aten("mul.Scalar", "self", "other"),
    "aclnnNLLLoss": aten("nll_loss_forward", "self", *_CLASSES),
    "aclnnNLLLoss2d": aten("nll_loss2d_forward", "self", *_CLASSES),
    "aclnnNLLLoss2dBackward": aten("nll_loss2d_backward", *_BOTH, *_CLASSES, "total_weight"),
    "aclnnNLLLossBackward": aten("nll_loss_backward", *_BOTH, *_CLASSES, "total_weight"),
    "aclnnPrelu": _prelu,
    "aclnnPreluBackward": gradient(_prelu, ("self", "weight"), "grad_output"),
    "aclnnReduceSum": aten("sum.dim_IntList", "self", "dims", "keep_dims", dtype="dtype"),
    "aclnnSigmoid": aten("sigmoid", "self"),
    "aclnnSigmoidBackward": aten("sigmoid_backward", "grad_output", "output"),
    "aclnnSilu": aten("silu", "self"),
    "aclnnSiluBackward": aten("silu_backward", *_BOTH),
    "aclnnSmoothL1Loss": aten("smooth_l1_loss", *_LOSS, "beta"),
    "aclnnSmoothL1LossBackward": aten(
        "smooth_l1_loss_backward", "grad_out", *_LOSS, "beta"
    ),
    "aclnnSoftMarginLoss": aten("soft_margin_loss", *_LOSS),
    "aclnnSoftMarginLossBackward": aten("soft_margin_loss_backward", *_LOSS_GRADIENT),
    "aclnnSoftmax": _softmax("_softmax"),
    "aclnnSoftmaxBackward": _softmax_gradient("_softmax_backward_data"),
    "aclnnSoftplus": aten("softplus", "self", "beta", "threshold"),
    "aclnnSoftplusBackward": aten("softplus_backward", *_BOTH, "beta", "threshold"),
    "aclnnSub": aten("sub.Tensor", "self", "other", alpha="alpha"),
    "aclnnTanh": aten("tanh", "self"),
    "aclnnTanhBackward": aten("tanh_backward", "grad_output", "output"),
    "aclnnThreshold": aten("threshold", "self", "threshold", "value"),
    "aclnnThresholdBackward": aten("threshold_backward", *_BOTH, "threshold"),
}  # fmt: skip

WITHOUT: Mapping[str, str] = {
    "aclnnBinaryCrossEntropyWithLogitsTargetBackward": "torch_npu has no gradient of the target",
    "aclnnCrossEntropyLossGrad": "torch_npu computes log_prob itself and takes none",
    "aclnnHardswishBackward": "torch_npu calls aclnnHardswishBackwardV2 in its place",
    "aclnnKlDivTargetBackward.community": "torch_npu does not say which variant it runs",
    "aclnnKlDivTargetBackward.documented": "no NPU has it",
}
"""Operators that cannot be called, and why."""
