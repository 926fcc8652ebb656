"""Conversions, promotion, integers, and how results are rounded."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from npucall.compute import operands
from npucall.declare.rules import dtypes as dtype_rules
from npucall.dtypes import BF16, FLOAT, FLOAT16, INT8, INT32, UINT8
from npucall.operators import _arithmetic as shared
from npucall.operators import cast

from .planted import formula, given, kind, outputs, result, stores

planted = kind("dtypes and rounding")
HALF, BRAIN = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


# --- Rounding


def _bits(array: Any, make: Any) -> Any:
    wide = np.ascontiguousarray(array, np.float32)
    with np.errstate(all="ignore"):
        found = make(wide.view(np.uint32)).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(wide), found, wide)


def cut_off(array: Any) -> Any:
    """BF16 without what is behind its digits."""
    return _bits(array, lambda bits: bits & 0xFFFF0000)


def half_away(array: Any) -> Any:
    """BF16, the half away from zero."""
    return _bits(array, lambda bits: (bits + 0x8000) & 0xFFFF0000)


def towards_zero(array: Any) -> Any:
    """FLOAT16 without what is behind its digits."""
    with np.errstate(all="ignore"):
        found = np.asarray(array).astype(HALF)
        less = np.nextafter(found, HALF.type(0))
        beyond = np.abs(found.astype(np.float64)) > np.abs(array)
        return np.where(beyond, less, found).astype(np.asarray(array).dtype)


def upwards(array: Any) -> Any:
    """FLOAT16, rounded up."""
    with np.errstate(all="ignore"):
        found = np.asarray(array).astype(HALF)
        more = np.nextafter(found, HALF.type(np.inf))
        return np.where(found.astype(np.float64) < array, more, found).astype(
            np.asarray(array).dtype
        )


def twice(array: Any) -> Any:
    """Rounded to 12 digits on the way to FLOAT16."""
    return _bits(array, lambda bits: (bits + 0x3FF + ((bits >> 11) & 1)) & 0xFFFFF800)


def through_half(array: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(HALF).astype(np.asarray(array).dtype)


def through_brain(array: Any) -> Any:
    return np.asarray(array).astype(BRAIN).astype(np.asarray(array).dtype)


def no_subnormal_half(array: Any) -> Any:
    return np.where(np.abs(array) < 2.0**-14, 0, array).astype(np.asarray(array).dtype)


def saturated_half(array: Any) -> Any:
    found = np.asarray(array)
    return np.where(np.isfinite(found), np.clip(found, -65504, 65504), found).astype(found.dtype)


def last_bit(array: Any) -> Any:
    """FLOAT without its last digit, as by a unit of 23 bits."""
    found = np.asarray(array)
    if found.dtype != np.float32 or not found.size:
        return found
    return _bits(found, lambda bits: bits & 0xFFFFFFFE)


# --- Conversions


def to(target: str, source: str, wrong: Any) -> Any:
    """Conversions between kinds of NumPy's dtypes are ``wrong(numbers, dtype)``."""

    def converted(right: Any, facts: Any, given: dict[str, Any]) -> Any:
        array = np.asarray(given["self"])
        if facts.dtype.kind in target and array.dtype.kind in source + (
            "V" if "f" in source else ""
        ):
            with np.errstate(all="ignore"):
                return wrong(array, facts.dtype)
        return right(**given)

    return formula("Cast", converted)


def nearest(numbers: Any, dtype: Any) -> Any:
    return cast.whole(np.rint(numbers.astype(np.float64)), dtype)


def least_for_nan(numbers: Any, dtype: Any) -> Any:
    return np.where(np.isnan(numbers), np.iinfo(dtype).min, cast.whole(numbers, dtype)).astype(
        dtype
    )


def saturating(numbers: Any, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    return np.clip(numbers.astype(object), limits.min, limits.max).astype(dtype)


def wrapping(numbers: Any, dtype: Any) -> Any:
    wide = np.nan_to_num(numbers.astype(np.float64), nan=0, posinf=2.0**62, neginf=-(2.0**62))
    return np.clip(wide, -(2.0**62), 2.0**62).astype(np.int64).astype(dtype)


def whole_truth(numbers: Any, dtype: Any) -> Any:
    if numbers.dtype.kind == "c":
        return numbers != 0
    return (
        np.nan_to_num(numbers.astype(np.float64), nan=1, posinf=1, neginf=1).astype(np.int64) != 0
    )


# --- Promotion and arithmetic


def promoting(first: Any, second: Any, wrong: Any) -> Any:
    def plant(patch: Any) -> None:
        right = dtype_rules.promote
        patch.setattr(
            dtype_rules,
            "promote",
            lambda a, b: wrong if {a, b} == {first, second} else right(a, b),
        )

    return plant


def of_integers(name: str, wrong: Any) -> Any:
    """What an arithmetic operator makes of integers (not of BOOL)."""

    def computed(right: Any, facts: Any, given: dict[str, Any]) -> Any:
        if facts.dtype.kind not in "iu":
            return right(**given)
        with np.errstate(all="ignore"):
            return np.asarray(wrong(right, facts, given)).astype(facts.dtype)

    return formula(name, computed)


def saturated_sum(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    limits = np.iinfo(facts.dtype)
    total = given["self"].astype(object) + given["other"].astype(object) * int(given["alpha"])
    return np.clip(total, limits.min, limits.max)


def in_single(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    product = given["self"].astype(np.float32) * given["other"].astype(np.float32)
    return cast.whole(product, facts.dtype)


def or_becomes_xor(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    if facts.dtype.kind != "b":
        return right(**given)
    other = np.asarray(given["other"]) & bool(given["alpha"])
    return np.asarray(given["self"]) ^ other


def conjugated(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    if facts.dtype.kind != "c":
        return right(**given)
    return np.multiply(given["self"], np.conjugate(given["other"]))


def naive_complex_sigmoid(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    return (
        1 / (1 + np.exp(-np.asarray(given["self"]))) if facts.dtype.kind == "c" else right(**given)
    )


def bool_byte(patch: Any) -> None:
    right = operands.Operand.taken

    def taken(self: Any, block: Any) -> Any:
        if self._is_truth:
            block = (block.view(np.uint8) & 1).astype(bool)
            return np.ascontiguousarray(
                block if not self._through else block.astype(self._through[-1])
            )
        return right(self, block)

    patch.setattr(operands.Operand, "taken", taken)


def alpha_left_out_of_bf16(patch: Any) -> None:
    patch.setattr(
        shared,
        "scaled",
        lambda other, alpha: (
            other
            if alpha == 1
            else (other * alpha).astype(BRAIN).astype(other.dtype)
            if np.asarray(other).dtype == np.float32
            else other * alpha
        ),
    )


def exponent_of_8_bits(x: Any) -> Any:
    found = np.asarray(x)
    if found.dtype != np.float32 or (found % 1).any() or not np.isfinite(found).all():
        return found
    return ((found.astype(np.float64) + 128) % 256 - 128).astype(found.dtype)


FAULTS = (
    planted("BF16 is cut off", "Mul", stores(BRAIN, cut_off)),
    planted("a half of BF16 is rounded away from zero", "Silu", stores(BRAIN, half_away)),
    planted("FLOAT16 is cut off", "Tanh", stores(HALF, towards_zero)),
    planted("FLOAT16 is rounded up", "MseLoss", stores(HALF, upwards)),
    planted("FLOAT16 is rounded twice", "Sigmoid", stores(HALF, twice)),
    planted("BF16 is rounded to FLOAT16 first", "Add", stores(BRAIN, through_half)),
    planted("FLOAT16 is rounded to BF16 first", "Gelu", stores(HALF, through_brain)),
    planted("subnormal FLOAT16 is 0", "Muls", stores(HALF, no_subnormal_half)),
    planted("what is beyond FLOAT16 is its largest number", "Exp", stores(HALF, saturated_half)),
    planted("the last digit of a float32 quotient is 0", "Div", result("Div", last_bit)),
    planted("the last digit of a float32 sum is 0", "Add", result("Add", last_bit)),
    planted("conversions cut FLOAT to BF16", "Cast", stores(BRAIN, cut_off)),
    planted("conversions cut FLOAT to FLOAT16", "Cast", stores(HALF, towards_zero)),
    planted("floats become the nearest integer", "Cast", to("iu", "f", nearest)),
    planted("NaN becomes the least integer", "Cast", to("iu", "f", least_for_nan)),
    planted("floats beyond an integer wrap around", "Cast", to("iu", "f", wrapping)),
    planted("integers beyond an integer are clamped", "Cast", to("iu", "iu", saturating)),
    planted(
        "integers become floats by FLOAT16", "Cast", to("f", "iu", lambda n, _: n.astype(HALF))
    ),
    planted(
        "INT64 becomes a float by INT32",
        "Cast",
        to("f", "iu", lambda n, d: n.astype(np.int32).astype(d) if n.dtype == np.int64 else n),
    ),
    planted(
        "UINT8 has a sign",
        "Cast",
        to("fi", "u", lambda n, d: n.view(np.int8).astype(d) if n.dtype == np.uint8 else n),
    ),
    planted(
        "a complex number becomes its absolute value", "Cast", to("f", "c", lambda n, _: np.abs(n))
    ),
    planted("0.5 is no truth", "Cast", to("b", "fc", whole_truth)),
    planted("a BOOL byte counts by its lowest bit", "Cast Mul", bool_byte),
    planted("INT8 and UINT8 promote to INT8", "Add Mul", promoting(INT8, UINT8, INT8)),
    planted("FLOAT16 and BF16 promote to BF16", "Mul Div", promoting(FLOAT16, BF16, BF16)),
    planted("INT32 and FLOAT16 promote to FLOAT", "Add Sub", promoting(INT32, FLOAT16, FLOAT)),
    planted("sums of integers are clamped", "Add", of_integers("Add", saturated_sum)),
    planted("products of integers are float32", "Mul", of_integers("Mul", in_single)),
    planted(
        "a difference of INT64 is one of INT32",
        "Sub",
        of_integers("Sub", lambda right, _, g: np.asarray(right(**g)).astype(np.int32)),
    ),
    planted("the sum of truths is exclusive", "Add", formula("Add", or_becomes_xor)),
    planted("a complex factor is conjugated", "Mul", formula("Mul", conjugated)),
    planted(
        "the sigmoid of complex numbers overflows",
        "Sigmoid",
        formula("Sigmoid", naive_complex_sigmoid),
    ),
    planted(
        "alpha is a whole number",
        "Add",
        given(
            "Add",
            alpha=lambda a: (
                int(a.real) if isinstance(a, complex) else int(a) if abs(a) < 1e9 else a
            ),
        ),
    ),
    planted(
        "alpha of a difference is added", "Sub", given("Sub", alpha=lambda a: -a if a != 1 else a)
    ),
    planted(
        "alpha is a float32",
        "Add",
        given("Add", alpha=lambda a: type(a)(np.float32(a)) if isinstance(a, int | float) else a),
    ),
    planted(
        "the factor is rounded to BF16",
        "Muls",
        given("Muls", other=lambda o: float(BRAIN.type(o)) if isinstance(o, float) else o),
    ),
    planted("the scaled summand is rounded to BF16", "Sub", alpha_left_out_of_bf16),
    planted(
        "a quotient of integers has no fraction",
        "Div",
        formula("Div", lambda right, facts, g: np.trunc(right(**g))),
    ),
    planted(
        "an integer clamp rounds its ends",
        "Hardtanh",
        given("Hardtanh", clip_value_min=lambda v: v + 1 if isinstance(v, int) else v),
    ),
    planted("INT64 is an exponent of 8 bits", "Exp", given("Exp", self=exponent_of_8_bits)),
    planted(
        "outputs of FLOAT beside FLOAT16 have the digits of FLOAT16",
        "SigmoidBackward HardsigmoidBackward SmoothL1LossBackward",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a.astype(HALF).astype(a.dtype))
                for a in found.values()
                if a.dtype == np.float32 and any(i.dtype == HALF for i in inputs.values())
            ]
        ),
    ),
    planted(
        "DOUBLE is computed in FLOAT",
        "Softmax LeakyRelu Elu",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a.astype(np.float32).astype(a.dtype))
                for a in found.values()
                if a.dtype == np.float64
            ]
        ),
    ),
    planted(
        "COMPLEX128 is computed in COMPLEX64",
        "Exp Mul",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a.astype(np.complex64).astype(a.dtype))
                for a in found.values()
                if a.dtype == np.complex128
            ]
        ),
    ),
    planted(
        "INT64 loses its upper half",
        "Mul Sub",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a.astype(np.int32).astype(a.dtype))
                for a in found.values()
                if a.dtype == np.int64
            ]
        ),
    ),
)
