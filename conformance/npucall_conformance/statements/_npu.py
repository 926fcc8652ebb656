"""How torch_npu is called where that takes more than a name and arguments."""

from __future__ import annotations

from typing import Any

from npucall_conformance.stating.npu import (
    InexpressibleError,
    TorchArguments,
    Way,
    aten,
    autograd,
    of_one_shape,
    within,
)

_FORMS = ("none", "tanh")
"""The forms of GELU, by the code in ``approximate``."""
_HF32 = {0: False, 1: True}
"""``allow_hf32`` by ``cube_math_type``."""
_AS_IT_IS = False
"""``half_to_float`` of softmax."""
LOSS = ("self", "target", "reduction")
LOSS_GRADIENT = ("grad_output", *LOSS)
CLASSES = ("target", "weight", "reduction", "ignore_index")
LENGTHS = ("input_lengths", "target_lengths")


def cast(given: TorchArguments) -> Any:
    return given.npu.npu_dtype_cast(given["self"], given["dtype"])


def npu_gelu(given: TorchArguments) -> Any:
    """aclnnGeluV2: its attribute is a code, while that of its gradient is a word."""
    approximate = given["approximate"]
    if approximate not in (*_FORMS, 0, 1):
        raise InexpressibleError(f"npu_gelu has no approximate {approximate}")
    word = approximate if approximate in _FORMS else _FORMS[approximate]
    return given.npu.npu_gelu(given["self" if "self" in given.values else "x"], approximate=word)


def cross_entropy(given: TorchArguments) -> Any:
    names = ("reduction", "ignore_index", "label_smoothing", "return_zloss")
    more = {name: given[name] for name in names}
    more["lse_square_scale_for_zloss"] = given["lse_square_scale_for_zloss"]
    return given.npu.npu_cross_entropy_loss(
        given["input"], given["target"], weight=given["weight"], **more
    )


def matmul(given: TorchArguments) -> Any:
    if given["cube_math_type"] not in _HF32:
        raise InexpressibleError(f"torch_npu never passes cube_math_type {given['cube_math_type']}")
    given.npu.npu.matmul.allow_hf32 = _HF32[given["cube_math_type"]]
    return given.torch.matmul(given["self"], given["mat2"])


def softmax(name: str) -> Way:
    def call(given: TorchArguments) -> Any:
        return getattr(given.aten, name)(given["self"], given["dim"], _AS_IT_IS)

    return call


def softmax_gradient(name: str) -> Way:
    def call(given: TorchArguments) -> Any:
        grad = given["grad_output"]
        return getattr(given.aten, name)(grad, given["output"], given["dim"], grad.dtype)

    return call


def gradient_of(name: str, loss: Way) -> Way:
    """The gradient of a loss with respect to one of its two tensors."""
    way = of_one_shape(autograd(loss, (name,), "grad_output"), "self", "target")
    return within(way, "reduction")


def prelu(given: TorchArguments) -> Any:
    return given.torch.prelu(given["self"], given["weight"])


KL_DIV = aten("kl_div", *LOSS, log_target="log_target")
WITH_LOGITS = aten(
    "binary_cross_entropy_with_logits", "self", "target", "weight", "pos_weight", "reduction"
)
BOTH = ("grad_output", "self")
