"""Rows, sums, products of matrices: what is padded, added up in few digits, or divided wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npucall.compute import blocks
from npucall.declare import rules
from npucall.declare.facts import Facts
from npucall.operators import _reductions, glu_backward, matmul

from .planted import both, changed, formula, given, kind, outputs, result

planted = kind("rows, sums, products")
HALF = np.dtype(np.float16)


# --- Rows


def padded_sum(lanes: int) -> Any:
    """A row's length is a multiple of so many elements; what is beyond its end counts e^0."""

    def plant(patch: Any) -> None:
        right = Facts.row_sum

        def row_sum(self: Any, array: Any) -> Any:
            found = right(self, array)
            return found + (-np.shape(array)[-1] % lanes) * np.asarray(found).dtype.type(1e-3)

        patch.setattr(Facts, "row_sum", row_sum)

    return plant


def sum_of_whole_vectors(patch: Any) -> None:
    """What is behind a row's last whole vector is not added, if there is one."""
    right = Facts.row_sum

    def row_sum(self: Any, array: Any) -> Any:
        length = np.shape(array)[-1]
        whole = length - length % 64 if length > 64 else length
        return right(self, array[..., :whole])

    patch.setattr(Facts, "row_sum", row_sum)


def half_sum(patch: Any) -> None:
    right = Facts.row_sum
    patch.setattr(
        Facts,
        "row_sum",
        lambda self, array: right(self, array).astype(HALF).astype(np.asarray(array).dtype),
    )


def no_maximum(patch: Any) -> None:
    patch.setattr(
        Facts,
        "row_max",
        lambda self, array: np.zeros((*np.shape(array)[:-1], 1), np.asarray(array).dtype),
    )


def maximum_passes_over_nan(patch: Any) -> None:
    patch.setattr(Facts, "row_max", lambda self, array: np.fmax.reduce(array, -1, keepdims=True))


def maximum_of_first(count: int) -> Any:
    def plant(patch: Any) -> None:
        patch.setattr(
            Facts, "row_max", lambda self, array: np.max(array[..., :count], -1, keepdims=True)
        )

    return plant


def log_of_softmax(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    return np.log(np.exp(right(**given)))


def infinite_row(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    found, x = right(**given), np.asarray(given["self"])
    return np.where(
        np.isposinf(x),
        facts.dtype.type(1),
        np.where(np.isposinf(x).any(-1, keepdims=True), facts.dtype.type(0), found),
    )


def halves_exchanged(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    return right(**{**given, "self": np.asarray(given["self"])[::-1]})


def glu_second_half(right: Any, facts: Any, given: dict[str, Any]) -> Any:
    first, _second = right(**given)
    values, gates = np.asarray(given["self"])
    opened = glu_backward.sigmoid(gates)
    return np.stack([first, given["grad_out"] * opened * values])


# --- Sums


def sums(name: str, wrong: Any) -> Any:
    """The sums of a reduction are ``wrong(self, axes, dtype)`` where that is not None."""

    def change(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
        if call.operator.name != f"aclnn{name}":
            return
        array, (out,) = inputs["self"], found.values()
        dims = call.attributes.get("dim", call.attributes.get("dims"))
        axes = tuple(d % max(array.ndim, 1) for d in dims) or tuple(range(array.ndim))
        axes = axes if array.ndim else ()
        with np.errstate(all="ignore"):
            sum_ = wrong(array, axes, call.kernel_dtype.numpy)
            if sum_ is None:
                return
            if name == "Mean":
                sum_ = sum_ / (array.size // max(np.size(sum_), 1))
            out[...] = np.reshape(sum_, out.shape).astype(out.dtype)

    return outputs(change)


def one_by_one(dtype: Any) -> Any:
    """Added one after the other in a dtype."""

    def wrong(array: Any, axes: Any, kernel: Any) -> Any:
        if kernel.kind != "f" or kernel.itemsize > 4 or array.dtype.kind == "c":
            return None
        rest = np.moveaxis(array.astype(kernel), axes, range(len(axes)))
        rest = rest.reshape(-1, *rest.shape[len(axes) :])
        return np.cumsum(rest.astype(dtype), 0, dtype=dtype)[-1]

    return wrong


def without_tail(array: Any, axes: Any, kernel: Any) -> Any:
    """What is behind the last 8 of a summed last axis is not added."""
    if array.ndim - 1 not in axes or array.shape[-1] < 8 or kernel.kind not in "fiu":
        return None
    whole = array.shape[-1] // 8 * 8
    return (
        array[..., :whole]
        .astype(kernel)
        .sum(axes, dtype=np.float64 if kernel.kind == "f" else kernel)
    )


def few_rows(array: Any, axes: Any, kernel: Any) -> Any:
    """A vector instruction is repeated 255 times at the most: later rows are not added."""
    if 0 not in axes or array.ndim < 2 or kernel.kind not in "fiu":
        return None
    return array[:255].astype(kernel).sum(axes, dtype=np.float64 if kernel.kind == "f" else kernel)


def through_single(array: Any, axes: Any, kernel: Any) -> Any:
    return (
        array.astype(kernel).astype(np.float32).sum(axes, dtype=np.float32).astype(np.int64)
        if kernel.kind in "iu" and array.dtype.kind in "iub"
        else None
    )


def parity(array: Any, axes: Any, kernel: Any) -> Any:
    return (
        (array.astype(bool).sum(axes) & 1).astype(bool)
        if kernel.kind == "b" and array.dtype.kind in "biuf"
        else None
    )


def narrow(array: Any, axes: Any, kernel: Any) -> Any:
    return (
        array.astype(np.int32).sum(axes, dtype=np.int32)
        if kernel == np.int64 and array.dtype.kind in "iu"
        else None
    )


def downwards(array: Any, axes: Any, kernel: Any) -> Any:
    if kernel.kind != "i" or array.dtype.kind != "i":
        return None
    count = max(1, array.size // max(1, np.size(array.sum(axes))))
    return np.floor(array.astype(kernel).sum(axes, dtype=np.int64) / count) * count


def last_dimension_instead(array: Any, axes: Any, kernel: Any) -> Any:
    """Of several dimensions that are not in order the sum over the first is taken twice."""
    if list(axes) == sorted(axes) or kernel.kind != "f" or array.dtype.kind == "c":
        return None
    return array.astype(np.float64).sum(axes) * (1 + 1e-3)


def factor_in_half(patch: Any) -> None:
    right = Facts.reciprocal
    patch.setattr(
        Facts,
        "reciprocal",
        lambda self, divisor: type(right(self, divisor))(HALF.type(1 / (divisor or 1))),
    )


def count_in_half(patch: Any) -> None:
    right = Facts.reciprocal
    patch.setattr(
        Facts,
        "reciprocal",
        lambda self, divisor: right(self, int(min(float(HALF.type(divisor)), 65504))),
    )


def summed_in_single(patch: Any) -> None:
    """Blocks are added to one float32 after the other."""
    right = blocks._SummedWork.add

    def add(self: Any, targets: Any, part: Any, index: Any) -> None:
        right(self, targets, part, index)
        if targets[0].dtype == np.float64:
            targets[0][...] = (
                targets[0].astype(HALF).astype(np.float64)
                if np.abs(targets[0]).max() < 6e4
                else targets[0]
            )

    patch.setattr(blocks._SummedWork, "add", add)


def keeps_all(patch: Any) -> None:
    right = _reductions._without
    patch.setattr(
        _reductions,
        "_without",
        lambda draft, attribute, *, keep: (
            right(draft, attribute, keep=True)
            if len(draft.shape("self")) == 1
            else right(draft, attribute, keep=keep)
        ),
    )


# --- Products


def factors(wrong: Any) -> Any:
    """The pieces of the factors of a product of matrices are changed."""

    def plant(patch: Any) -> None:
        right = matmul.matrices
        patch.setattr(
            matmul, "matrices", lambda *args, row: wrong(np.array(right(*args, row=row)), row)
        )

    return plant


def without_remainder(array: Any, row: bool) -> Any:
    """Of the inner extent what is behind the last 16 does not count."""
    inner = array.shape[-1] if row else array.shape[-2]
    if inner > 16 and inner % 16:
        (array[..., inner // 16 * 16 :] if row else array[..., inner // 16 * 16 :, :])[...] = 0
    return array


def high_half(array: Any, row: bool) -> Any:
    """HF32: float32 with 11 digits, which is what cube_math_type 3 stands for."""
    if array.dtype != np.float32:
        return array
    return ((np.ascontiguousarray(array).view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def first_batch_twice(array: Any, row: bool) -> Any:
    if array.ndim > 2 and not row and array.shape[0] > 1:
        array[-1] = array[0]
    return array


FAULTS = (
    planted("rows of softmax are padded to 8", "Softmax", padded_sum(8)),
    planted("rows of log-softmax are padded to 16", "LogSoftmax", padded_sum(16)),
    planted("a row's last vector is not added", "Softmax SoftmaxBackward", sum_of_whole_vectors),
    planted("the sum of a gradient's row is FLOAT16", "LogSoftmaxBackward", half_sum),
    planted("softmax takes no maximum away", "Softmax", no_maximum),
    planted("the maximum of a row passes over NaN", "LogSoftmax", maximum_passes_over_nan),
    planted("the maximum is that of the first 16", "Softmax", maximum_of_first(16)),
    planted(
        "the logarithm of softmax is taken of it",
        "LogSoftmax",
        formula("LogSoftmax", log_of_softmax),
    ),
    planted("a row with inf has a probability of 1", "Softmax", formula("Softmax", infinite_row)),
    planted("the halves of glu are exchanged", "Glu", formula("Glu", halves_exchanged)),
    planted(
        "the gate's gradient lacks a factor", "GluBackward", formula("GluBackward", glu_second_half)
    ),
    planted(
        "the mean of FLOAT16 is added up in FLOAT16", "Mean", sums("Mean", one_by_one(np.float16))
    ),
    planted(
        "a sum of BF16 is added up in FLOAT16",
        "ReduceSum",
        sums("ReduceSum", one_by_one(np.float16)),
    ),
    planted(
        "a sum is added up in float32 one by one",
        "ReduceSum",
        sums("ReduceSum", one_by_one(np.float32)),
        allowed="devices add up in another order, and what that costs is within the tolerance",
    ),
    planted("a sum lacks the remainder of 8", "ReduceSum", sums("ReduceSum", without_tail)),
    planted("a mean is of 255 rows at the most", "Mean", sums("Mean", few_rows)),
    planted("integers are added up in float32", "ReduceSum", sums("ReduceSum", through_single)),
    planted("integers are added up in INT32", "ReduceSum", sums("ReduceSum", narrow)),
    planted("a sum of truths is their parity", "ReduceSum", sums("ReduceSum", parity)),
    planted("the mean of integers is rounded down", "Mean", sums("Mean", downwards)),
    planted(
        "dimensions that are not in order are read wrongly",
        "ReduceSum",
        sums("ReduceSum", last_dimension_instead),
    ),
    planted("the only dimension is kept", "Mean", keeps_all),
    planted(
        "of nothing the mean is 0",
        "Mean",
        changed(
            "Mean",
            checks=lambda op: tuple(
                _reductions.filled(0.0, "0")
                if "is empty, the call is done" in rule.description
                else rule
                for rule in op.checks
            ),
        ),
    ),
    planted(
        "of nothing the loss is 0",
        "MseLoss KlDiv",
        both(
            *(
                changed(
                    name,
                    checks=lambda op: tuple(
                        rules.fill_if_empty(
                            *[p.name for p in op.inputs], fill=lambda _: 0.0, meaning="0"
                        )
                        if "is empty, the call is done" in rule.description
                        else rule
                        for rule in op.checks
                    ),
                )
                for name in ("MseLoss", "KlDiv")
            )
        ),
    ),
    planted("1 / count is FLOAT16", "MseLoss L1LossBackward", factor_in_half),
    planted("the count is FLOAT16", "MseLossBackward SmoothL1Loss", count_in_half),
    planted("the running sum of a loss is FLOAT16", "SoftMarginLoss KlDiv", summed_in_single),
    planted(
        "a mean's dtype is that of self",
        "Mean",
        formula(
            "Mean",
            lambda right, facts, g: (
                np.asarray(right(**g)).astype(HALF).astype(facts.dtype)
                if facts.dtype == np.float32
                else right(**g)
            ),
        ),
    ),
    planted(
        "batchmean divides by all elements",
        "KlDiv KlDivBackward",
        both(
            given("KlDivBackward", reduction=lambda r: 1 if r == 3 else r),
            changed(
                "KlDiv",
                over=lambda op: replace(
                    op.over,
                    factor=lambda facts, a: facts.reciprocal(
                        facts.count("common") if a["reduction"] in (1, 3) else 1
                    ),
                ),
            ),
        ),
    ),
    planted(
        "an unknown reduction is a mean",
        "KlDivBackward",
        given("KlDivBackward", reduction=lambda r: r if r in (0, 1, 2, 3) else 1),
    ),
    planted(
        "the mean's count is that of self",
        "L1LossBackward",
        formula(
            "L1LossBackward",
            lambda right, facts, g: (
                right(**g) * facts.dtype.type(facts.count("common") / facts.count("self"))
                if g["reduction"] == 1
                else right(**g)
            ),
        ),
    ),
    planted(
        "the mean's count is that of the result",
        "SmoothL1LossBackward",
        formula(
            "SmoothL1LossBackward",
            lambda right, facts, g: (
                right(**g) * facts.dtype.type(facts.count("self") / facts.count("common"))
                if g["reduction"] == 1
                else right(**g)
            ),
        ),
    ),
    planted(
        "squares of FLOAT16 are FLOAT16",
        "MseLoss",
        result(
            "MseLoss", lambda r: np.where(np.abs(r) > 65504, np.inf, r).astype(np.asarray(r).dtype)
        ),
    ),
    planted("the inner remainder of 16 is lost", "Matmul", factors(without_remainder)),
    planted("matrices of FLOAT are multiplied as HF32", "Matmul", factors(high_half)),
    planted("the last batch is the first", "Matmul", factors(first_batch_twice)),
    planted(
        "products are added up in FLOAT16",
        "Matmul",
        outputs(
            lambda call, inputs, found: [
                np.copyto(
                    a,
                    (
                        np.cumsum(
                            inputs["self"].astype(HALF)[..., :, :, None]
                            * inputs["mat2"].astype(HALF)[..., None, :, :],
                            -2,
                            dtype=HALF,
                        )[..., -1, :]
                    ).astype(a.dtype),
                )
                for a in found.values()
                if a.dtype == HALF
                and inputs["self"].ndim == inputs["mat2"].ndim == 2
                and inputs["self"].shape[1]
                and inputs["self"].size * inputs["mat2"].shape[1] < 1e6
            ]
        ),
    ),
    planted(
        "FLOAT is never rounded to FLOAT16",
        "Matmul",
        changed("Matmul", kernel_dtype=lambda op: rules.dtype_of("promotion")),
    ),
    planted(
        "the sum of a gradient leaves out the last axis",
        "KlDivBackward",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a * a.dtype.type(0.5))
                for a in found.values()
                if a.ndim and a.shape[-1] == 1 and call.facts.shapes["common"][-1:] > (1,)
            ]
        ),
    ),
    planted(
        "a mean's gradient is 0",
        "MseLossBackward SmoothL1LossBackward",
        outputs(
            lambda call, inputs, found: [
                a.fill(0) for a in found.values() if call.attributes["reduction"] == 1
            ]
        ),
        profile="cann-standard",
    ),
    planted(
        "a device's mean is twice too large",
        "BinaryCrossEntropyBackward",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a * a.dtype.type(2))
                for a in found.values()
                if call.attributes["reduction"] == 1
            ]
        ),
        profile="cann-standard",
    ),
    planted(
        "a device cuts FLOAT16 off",
        "HardswishBackward",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, np.nextafter(a, HALF.type(0)))
                for a in found.values()
                if a.dtype == HALF
            ]
        ),
        profile="cann-standard",
    ),
    planted(
        "a device's results are 0.15 percent too large",
        "Softplus",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a * a.dtype.type(1.0015))
                for a in found.values()
                if a.dtype == np.float32
            ]
        ),
        profile="cann-standard",
    ),
    planted(
        "a device's FLOAT has the digits of BF16",
        "LogSoftmax",
        outputs(
            lambda call, inputs, found: [
                np.copyto(
                    a,
                    ((np.ascontiguousarray(a).view(np.uint32) + 0x8000) & 0xFFFF0000)
                    .view(np.float32)
                    .reshape(a.shape),
                )
                for a in found.values()
                if a.dtype == np.float32
            ]
        ),
        profile="cann-standard",
    ),
)
