"""Kernels that compute other numbers: approximations, special values, ends of intervals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from npucall.operators import _numerics

from .planted import formula, given, kind, result

planted = kind("values of elementwise kernels")
BF16 = np.dtype(ml_dtypes.bfloat16)


def wobbling(size: float) -> Any:
    """A relative error of about ``size``, as a table or a polynomial has it: of either sign."""

    def wrong(array: Any) -> Any:
        found = np.asarray(array)
        if found.dtype.kind != "f":
            return found
        return (found * (1 + size * np.cos(found.astype(np.float64) * 37))).astype(found.dtype)

    return wrong


def single(value: Any) -> Any:
    return np.asarray(value, np.float32)


def gelu_by_sigmoid(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = np.asarray(given["self"])
    return (x / (1 + np.exp(-1.702 * x))).astype(facts.dtype)


def small_tanh(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    power = np.exp(2 * np.asarray(given["self"]))
    return np.where(np.isinf(power), 1, (power - 1) / (power + 1)).astype(facts.dtype)


def softplus_without_log1p(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = np.asarray(given["self"])
    bent = np.log(1 + np.exp(x * given["beta"])) / given["beta"]
    return np.where(x * given["beta"] > min(20, given["threshold"]), x, bent).astype(facts.dtype)


def elu_without_expm1(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = np.asarray(given["self"])
    bent = (np.exp(x * given["input_scale"]) - 1) * given["alpha"] * given["scale"]
    return np.where(x <= 0, bent, x * given["scale"]).astype(facts.dtype)


def bce_with_overflow(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x, t = np.asarray(given["self"]), np.asarray(given["target"])
    loss = (1 - t) * x + np.log(1 + np.exp(-x)) * (
        1 + ((given["pos_weight"] - 1) * t if given["pos_weight"] is not None else 0)
    )
    return loss if given["weight"] is None else loss * given["weight"]


def by_reciprocal(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    if facts.dtype.kind != "f":
        return right(**given)
    return np.multiply(given["self"], (1 / np.asarray(given["other"])).astype(facts.dtype))


def silu_flushed(array: Any) -> Any:
    return np.where(np.abs(array) < 1e-9, 0, array).astype(array.dtype)


def nan_to(number: float, name: str) -> Any:
    """NaN of an input counts as a number, as of hardware whose maximum passes over NaN."""
    return {
        name: lambda x: (
            np.where(np.isnan(x), np.asarray(x).dtype.type(number), x)
            if np.asarray(x).dtype.kind == "f"
            else x
        )
    }


def sign_of_equal(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    sign = np.where(np.asarray(given["self"]) >= np.asarray(given["target"]), 1, -1).astype(
        np.float32
    )
    factor = facts.reciprocal(facts.count("common") if given["reduction"] == 1 else 1)
    return (sign * (given["grad_output"] * factor)).astype(facts.dtype)


def keras_hardsigmoid(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    if facts.dtype.kind == "i":
        return right(**given)
    return np.clip(given["self"] * facts.dtype.type(0.2) + facts.dtype.type(0.5), 0, 1)


def hardswish_open(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = np.asarray(given["self"])
    return np.where(x == 3, given["grad_output"], right(**given))


def hardtanh_gradient_closed(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = np.asarray(given["self"])
    return np.where((x >= given["min"]) & (x <= given["max"]), given["grad_output"], 0).astype(
        facts.dtype
    )


def threshold_below(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    return np.where(np.asarray(given["self"]) == given["threshold"], given["self"], right(**given))


def threshold_nan(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = np.asarray(given["self"])
    return np.where(~(x > given["threshold"]), facts.dtype.type(given["value"]), x)


def elu_gradient_at_zero(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    at = np.asarray(given["self_or_result"]) == 0
    return np.where(at, given["grad_output"] * given["scale"], right(**given))


def one_less_square(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    y = np.asarray(given["output"])
    return given["grad_output"] * (1 - y * y) if facts.dtype == np.float32 else right(**given)


def square_taken_away(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    y = np.asarray(given["output"])
    return given["grad_output"] * (y - y * y) if facts.dtype == np.float32 else right(**given)


def silu_gradient_in_single(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = single(given["self"])
    s = 1 / (1 + np.exp(-x))
    return (given["grad_output"] * (s * (1 + x * (1 - s)))).astype(facts.dtype)


def gelu_gradient_without_slope(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = np.asarray(given["self"], np.float64)
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    slope = np.sqrt(2 / np.pi) * (1 + 0.044715 * x**2)
    t = np.tanh(u)
    return (given["grad_output"] * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)).astype(
        facts.dtype
    )


def kl_of_zero_target(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    if given["log_target"]:
        return right(**given)
    t = np.asarray(given["target"])
    return t * (np.log(t) - given["self"])


def logit_margin_in_double(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x, eps = np.asarray(given["x"], np.float64), given["eps"]
    low, outside = (eps, 0) if eps >= 0 else (0.0, np.nan)
    gradient = given["dy"] / (given["x"] * np.subtract(1, given["x"]))
    return np.where((x >= low) & (x <= 1 - low), gradient, outside).astype(facts.dtype)


def logit_margin_open(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x, margin = np.asarray(given["x"]), facts.dtype.type(np.float32(given["eps"]))
    found = right(**given)
    return np.where((margin >= 0) & ((x == margin) | (x == 1 - margin)), 0, found).astype(
        facts.dtype
    )


def bounded_sigmoid(x: Any, out: Any = None) -> Any:
    return 1 / (1 + np.exp(-np.clip(x, -20, 20)))


def sigmoid_planted(patch: Any) -> None:
    patch.setattr(_numerics, "sigmoid", bounded_sigmoid)


def smooth_at_nothing(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    distance = np.abs(np.subtract(given["self"], given["target"]))
    near = 0.5 * distance * distance / np.asarray(distance).dtype.type(given["beta"])
    return np.where(distance <= given["beta"], near, distance - 0.5 * given["beta"])


def soft_margin_plain(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    return np.log(1 + np.exp(-np.multiply(given["target"], given["self"])))


def bce_unclamped(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x, t = np.asarray(given["self"]), np.asarray(given["target"])
    loss = -(np.log(x) * t + np.log1p(-x) * (1 - t))
    return loss if given["weight"] is None else loss * given["weight"]


def bce_other_epsilon(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    x = np.asarray(given["self"])
    found, variance = right(**given), x * np.subtract(1, x)
    return (found * (np.maximum(variance, 1e-12) / np.maximum(variance, 1e-7))).astype(
        np.asarray(found).dtype
    )


def positive_weight_on_both(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    loss = right(**{**given, "pos_weight": None})
    return loss if given["pos_weight"] is None else loss * given["pos_weight"]


def subnormal_gone(array: Any) -> Any:
    found = np.asarray(array)
    if found.dtype != np.float32:
        return found
    return np.where(np.abs(found) < np.finfo(np.float32).tiny, np.float32(0), found)


def quotient_of_zero(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    found = right(**given)
    return np.where(np.asarray(given["other"]) == 0, 0, found).astype(np.asarray(found).dtype)


def quotient_never_infinite(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    found = np.asarray(right(**given))
    if found.dtype.kind != "f":
        return found
    return np.where(np.isinf(found), np.copysign(np.finfo(found.dtype).max, found), found).astype(
        found.dtype
    )


def log_near_one(array: Any) -> Any:
    found = np.asarray(array)
    return np.round(found * 2**20) / 2**20 if found.dtype == np.float32 else found


FAULTS = (
    planted("the exponential is off by 1e-3", "Exp", result("Exp", wobbling(1e-3))),
    planted("the exponential is off by 1e-5", "Exp", result("Exp", wobbling(1e-5))),
    planted("the sigmoid is off by 1e-6", "Sigmoid", result("Sigmoid", wobbling(1e-6))),
    planted("tanh is off by 3e-4", "Tanh", result("Tanh", wobbling(3e-4))),
    planted("tanh of small numbers cancels", "Tanh", formula("Tanh", small_tanh)),
    planted("logarithms near 1 have few digits", "Log", result("Log", log_near_one)),
    planted("gelu is x times sigmoid of 1.702 x", "Gelu", formula("Gelu", gelu_by_sigmoid)),
    planted(
        "approximate of gelu is passed over", "GeluV2", given("GeluV2", approximate=lambda _: 0)
    ),
    planted(
        "the derivative of gelu lacks a factor 3",
        "GeluBackward",
        formula("GeluBackward", gelu_gradient_without_slope),
    ),
    planted(
        "the forms of the derivative of gelu are exchanged",
        "GeluBackwardV2",
        given("GeluBackwardV2", approximate=lambda a: "none" if a == "tanh" else "tanh"),
    ),
    planted("the sigmoid saturates at 20", "Sigmoid", sigmoid_planted),
    planted("softplus has no log1p", "Softplus", formula("Softplus", softplus_without_log1p)),
    planted("elu has no expm1", "Elu", formula("Elu", elu_without_expm1)),
    planted(
        "scale of elu does not count below 0",
        "Elu",
        formula(
            "Elu",
            lambda right, _, g: np.where(
                np.asarray(g["self"]) <= 0, right(**{**g, "scale": 1.0}), right(**g)
            ),
        ),
    ),
    planted(
        "the loss of large logits overflows",
        "BinaryCrossEntropyWithLogits",
        formula("BinaryCrossEntropyWithLogits", bce_with_overflow),
    ),
    planted(
        "the positive weight counts for both labels",
        "BinaryCrossEntropyWithLogits",
        formula("BinaryCrossEntropyWithLogits", positive_weight_on_both),
    ),
    planted("a quotient is a product with the reciprocal", "Div", formula("Div", by_reciprocal)),
    planted("what is divided by 0 is 0", "Div", formula("Div", quotient_of_zero)),
    planted("a quotient is never infinite", "Div", formula("Div", quotient_never_infinite)),
    planted("small results of silu are 0", "Silu", result("Silu", silu_flushed)),
    planted("subnormal products are 0", "Mul", result("Mul", subnormal_gone)),
    planted(
        "NaN is clamped to the lower end", "Hardtanh", given("Hardtanh", **nan_to(-1e30, "self"))
    ),
    planted("NaN is clamped to 0", "Hardsigmoid", given("Hardsigmoid", **nan_to(-9, "self"))),
    planted(
        "NaN becomes 0 below a leaky slope", "LeakyRelu", given("LeakyRelu", **nan_to(0, "self"))
    ),
    planted("a threshold replaces NaN", "Threshold", formula("Threshold", threshold_nan)),
    planted(
        "a number at the threshold is kept", "Threshold", formula("Threshold", threshold_below)
    ),
    planted(
        "a gradient at the threshold passes",
        "ThresholdBackward",
        formula(
            "ThresholdBackward",
            lambda right, _, g: np.where(
                np.asarray(g["self"]) == g["threshold"], g["grad_output"], right(**g)
            ),
        ),
    ),
    planted("the sign of nothing is 1", "L1LossBackward", formula("L1LossBackward", sign_of_equal)),
    planted(
        "hardsigmoid has a slope of 0.2", "Hardsigmoid", formula("Hardsigmoid", keras_hardsigmoid)
    ),
    planted(
        "the slope of hardswish at 3 is 1",
        "HardswishBackward",
        formula("HardswishBackward", hardswish_open),
    ),
    planted(
        "the gradient of hardtanh passes at the ends",
        "HardtanhBackward",
        formula("HardtanhBackward", hardtanh_gradient_closed),
    ),
    planted(
        "the gradient of elu at 0 is that above",
        "EluBackward",
        formula("EluBackward", elu_gradient_at_zero),
    ),
    planted(
        "is_result of elu is passed over",
        "EluBackward",
        given("EluBackward", is_result=lambda _: False),
    ),
    planted("1 - y * y cancels near 1", "TanhBackward", formula("TanhBackward", one_less_square)),
    planted(
        "the gradient of silu is float32 throughout",
        "SiluBackward",
        formula("SiluBackward", silu_gradient_in_single),
    ),
    planted("the divergence at a target of 0 is NaN", "KlDiv", formula("KlDiv", kl_of_zero_target)),
    planted(
        "a margin counts as float64", "LogitGrad", formula("LogitGrad", logit_margin_in_double)
    ),
    planted(
        "a margin does not count as inside", "LogitGrad", formula("LogitGrad", logit_margin_open)
    ),
    planted(
        "beta of 0 makes NaN of equal numbers",
        "SmoothL1Loss",
        formula("SmoothL1Loss", smooth_at_nothing),
    ),
    planted(
        "the soft margin overflows", "SoftMarginLoss", formula("SoftMarginLoss", soft_margin_plain)
    ),
    planted(
        "logarithms are not held at -100",
        "BinaryCrossEntropy",
        formula("BinaryCrossEntropy", bce_unclamped),
    ),
    planted(
        "the least variance is 1e-7",
        "BinaryCrossEntropyBackward",
        formula("BinaryCrossEntropyBackward", bce_other_epsilon),
    ),
    planted(
        "the threshold of softplus is closed",
        "SoftplusBackward",
        formula(
            "SoftplusBackward",
            lambda right, _, g: np.where(
                np.asarray(g["self"]) * g["beta"] == g["threshold"], g["grad_output"], right(**g)
            ),
        ),
    ),
    planted(
        "a slope is rounded to BF16",
        "LeakyReluBackward",
        given("LeakyReluBackward", negative_slope=lambda s: float(BF16.type(s))),
    ),
    planted(
        "-0 becomes 0",
        "Muls",
        result(
            "Muls",
            lambda r: (
                np.asarray(r) + np.asarray(r).dtype.type(0)
                if np.asarray(r).dtype.kind == "f"
                else r
            ),
        ),
        allowed="no source promises the sign of a zero",
    ),
    planted(
        "y - y * y cancels near 1", "SigmoidBackward", formula("SigmoidBackward", square_taken_away)
    ),
    planted(
        "hardswish divides by 6 in FLOAT16",
        "HardswishBackwardV2",
        result("HardswishBackwardV2", wobbling(2e-4)),
    ),
)
