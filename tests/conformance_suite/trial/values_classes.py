"""Losses of classes, CTC, and PReLU: labels, weights, what counts and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.errors import ArgumentError
from npucall.operators import (
    _cross_entropy,
    _ctc_states,
    _prelu,
    ctc_loss,
    ctc_loss_backward,
)

from .planted import both, formula, given, kind, outputs

planted = kind("classes, CTC, PReLU")


def labels(name: str, wrong: Any, parameter: str = "target") -> Any:
    """The formula reads other labels."""

    class Read:
        def __init__(self, array: Any) -> None:
            self._array, self.shape, self.dtype = array, array.shape, array.dtype

        def __getitem__(self, index: Any) -> Any:
            return wrong(np.array(self._array[index]))

    return given(name, **{parameter: Read})


def signed(array: Any) -> Any:
    return array.view(np.int8).astype(np.int64) if array.dtype == np.uint8 else array


def in_32_bits(array: Any) -> Any:
    return array.astype(np.int32).astype(array.dtype) if array.dtype == np.int64 else array


def no_class_of_0_is_ignored(name: str) -> Any:
    return given(name, ignore_index=lambda i: i or -1)


def scaled_total(name: str, factor: float) -> Any:
    def change(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
        total = found["total_weight_out"]
        if call.attributes["reduction"]:
            total[...] = total * total.dtype.type(factor)

    return outputs(change)


def rows_counted(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    """The mean is divided by the number of rows, not by their weights."""
    if call.attributes["reduction"] != 1 or not inputs["target"].size:
        return
    target = inputs["target"].astype(np.int64)
    here = (
        (target != call.attributes["ignore_index"])
        & (target >= 0)
        & (target < inputs["weight"].size)
    )
    if here.any():
        total = inputs["weight"].astype(np.float64)[np.where(here, target, 0)][here].sum()
        out = found["out"]
        with np.errstate(all="ignore"):
            out[...] = out.astype(np.float64) * total / here.sum()


def ignored_weights_count(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    target = inputs["target"].astype(np.int64)
    ignored = (
        (target == call.attributes["ignore_index"])
        & (target >= 0)
        & (target < inputs["weight"].size)
    )
    if call.attributes["reduction"] and ignored.any():
        total = found["total_weight_out"]
        total[...] = total + inputs["weight"][target[ignored]].astype(np.float64).sum()


def unwritten_rows(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    """Rows whose label does not count keep what was in memory."""
    if call.operator.name != "aclnnNLLLossBackward" or inputs["target"].ndim != 1:
        return
    target = inputs["target"].astype(np.int64)
    if found["out"].ndim == 2:
        found["out"][target == call.attributes["ignore_index"]] = 3.25


def index_of_16_bits(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    """Where a pixel stands is counted in 16 bits."""
    out = found["out"]
    if out.ndim and out.size > 1 << 15:
        flat = out.reshape(-1).copy()
        out[...] = flat[np.arange(out.size) % (1 << 15)].reshape(out.shape)


def zeros_for_ignored(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    ignored = inputs["target"] == call.attributes["ignore_index"]
    found["log_prob_out"][ignored] = 0


def weights_left_out_of_the_rest(patch: Any) -> None:
    right = _cross_entropy.Rows.weights

    def weights(self: Any, classes: Any) -> Any:
        found = right(self, classes)
        return (
            np.ones_like(found) if isinstance(classes, slice) and self.weight is not None else found
        )

    patch.setattr(_cross_entropy.Rows, "weights", weights)


def not_refused(name: str) -> Any:
    """A label that is no class counts as class 0."""

    def plant(patch: Any) -> None:
        def labels(facts: Any, target: Any, ignore_index: int, classes: int, rows: slice) -> Any:
            found = np.asarray(facts.read(target, (rows,)), np.int64)
            counted = found != ignore_index
            return np.where(counted & ((found < 0) | (found >= classes)), 0, found), counted

        patch.setattr(_cross_entropy, "_labels", labels)

    return plant


def any_label_of_items(patch: Any) -> None:
    for module in (ctc_loss, ctc_loss_backward):
        patch.setattr(module.shared, "check_labels_of_items", lambda *_: None)
    right = _ctc_states.Labels.some

    def some(self: Any, item: int, first: int, end: int) -> Any:
        return np.clip(right(self, item, first, end), 0, 2)

    patch.setattr(_ctc_states.Labels, "some", some)


def another_status(patch: Any) -> None:
    right = _cross_entropy.check_labels

    def check(*labels: Any) -> None:
        try:
            right(*labels)
        except ArgumentError as error:
            error.aclnn_status = 561002
            raise

    patch.setattr(_cross_entropy, "check_labels", check)


def rows_apart_by_longest(patch: Any) -> None:
    """Labels one behind the other are looked for as if every item had as many as the longest."""
    right = _ctc_states.Labels.of

    def of(*given: Any) -> Any:
        found = right(*given)
        longest = max(found.lengths, default=0)
        starts = [
            min(n * longest, found.starts[-1] - length) for n, length in enumerate(found.lengths)
        ]
        return found._replace(starts=np.array([*starts, found.starts[-1]]))

    patch.setattr(_ctc_states.Labels, "of", of)


def repeated_labels_skipped(patch: Any) -> None:
    """A path may go from a label to the same one without a blank."""
    right = _ctc_states.States._piece

    def piece(self: Any, states: slice) -> Any:
        found = right(self, states)
        odd = (found.numbers % 2 == 1) & (found.numbers > 1)
        return found._replace(entered=found.entered | odd)

    patch.setattr(_ctc_states.States, "_piece", piece)


def behind_the_steps(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    for item, length in enumerate(call.attributes["input_lengths"]):
        found["log_alpha_out"][item, length:] = 0


def late_gradients(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    for item, length in enumerate(call.attributes["input_lengths"]):
        found["out"][length:, item] = np.exp(inputs["log_probs"][length:, item].astype(np.float64))


def first_two_items(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    losses = found["neg_log_likelihood_out"]
    if losses.ndim and losses.size > 2:
        losses[2:] = losses[2:] * losses.dtype.type(1.01)


def channel_last(patch: Any) -> None:
    """Slopes belong to the last dimension, where that is as long as the channels."""

    def slopes_of(facts: Any, weight: Any, shape: Any, index: Any) -> Any:
        found = _RIGHT_SLOPES(facts, weight, shape, index)
        if len(shape) > 2 and shape[-1] == shape[1] and np.ndim(found):
            own = np.arange(index[-1].start, index[-1].stop)
            return _prelu.numbered(facts, weight, own)
        return found

    for module in _with_slopes():
        patch.setattr(module, "slopes_of", slopes_of)


def slope_of_first_eight(patch: Any) -> None:
    """Slopes behind the 8th are the 8th's: a register holds as many."""

    def slopes_of(facts: Any, weight: Any, shape: Any, index: Any) -> Any:
        found = np.array(_RIGHT_SLOPES(facts, weight, shape, index))
        if found.ndim and len(found) > 8:
            found[8:] = found[7]
        return found

    for module in _with_slopes():
        patch.setattr(module, "slopes_of", slopes_of)


_RIGHT_SLOPES = _prelu.slopes_of


def _with_slopes() -> list[Any]:
    from npucall.operators import prelu, prelu_backward

    return [prelu, prelu_backward]


def last_of_batch(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    """The gradient of the slopes is that of the last element of the batch."""
    x, g = inputs["self"], inputs["grad_output"]
    if x.ndim < 2 or x.shape[0] < 2 or found["grad_weight"].size < 2:
        return
    g = np.broadcast_to(g, x.shape)
    part = np.where(x[-1:] > 0, 0, g[-1:].astype(np.float64) * x[-1:])
    found["grad_weight"][...] = part.sum(tuple(a for a in range(x.ndim) if a != 1)).reshape(
        found["grad_weight"].shape
    )


def slopes_in_half(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    if call.kernel_dtype.numpy == np.float16:
        x, g = inputs["self"], np.broadcast_to(inputs["grad_output"], inputs["self"].shape)
        if x.ndim == 2 and x.size and found["grad_weight"].size == x.shape[1]:
            terms = np.where(x > 0, np.float16(0), g * x).astype(np.float16)
            found["grad_weight"][...] = np.cumsum(terms, 0, dtype=np.float16)[-1].reshape(
                found["grad_weight"].shape
            )


FAULTS = (
    planted("an ignore_index of 0 is none", "NLLLoss", no_class_of_0_is_ignored("NLLLoss")),
    planted(
        "an ignore_index of 0 is none in the gradient",
        "NLLLoss2dBackward",
        no_class_of_0_is_ignored("NLLLoss2dBackward"),
    ),
    planted("UINT8 labels have a sign", "NLLLoss", labels("NLLLoss", signed)),
    planted(
        "UINT8 labels have a sign in the gradient",
        "NLLLossBackward",
        labels("NLLLossBackward", signed),
    ),
    planted(
        "labels are cut to 32 bits",
        "NLLLoss NLLLoss2d",
        both(labels("NLLLoss", in_32_bits), labels("NLLLoss2d", in_32_bits)),
    ),
    planted("the total weight is doubled", "NLLLoss2d", scaled_total("NLLLoss2d", 2)),
    planted("ignored rows count in the total weight", "NLLLoss", outputs(ignored_weights_count)),
    planted("a weighted mean is divided by the rows", "NLLLoss", outputs(rows_counted)),
    planted(
        "ignored rows of a gradient are not written", "NLLLossBackward", outputs(unwritten_rows)
    ),
    planted("pixels are counted in 16 bits", "NLLLoss2d", outputs(index_of_16_bits)),
    planted(
        "the total weight of a gradient is not used",
        "NLLLoss2dBackward",
        given("NLLLoss2dBackward", total_weight=lambda t: np.ones((1,), t.dtype)),
    ),
    planted(
        "smoothing is shared by C - 1 classes",
        "CrossEntropyLoss",
        formula(
            "CrossEntropyLoss",
            lambda right, facts, g: right(
                **{
                    **g,
                    "label_smoothing": g["label_smoothing"]
                    * g["input"].shape[1]
                    / max(1, g["input"].shape[1] - 1),
                }
            ),
        ),
    ),
    planted(
        "labels are not smoothed",
        "CrossEntropyLoss",
        given("CrossEntropyLoss", label_smoothing=lambda _: 0.0),
    ),
    planted("the smoothed rest has no weights", "CrossEntropyLoss", weights_left_out_of_the_rest),
    planted("ignored rows have no log-softmax", "CrossEntropyLoss", outputs(zeros_for_ignored)),
    planted(
        "a label that is no class counts as 0", "CrossEntropyLoss", not_refused("CrossEntropyLoss")
    ),
    planted("a label that is no class is another error", "CrossEntropyLossGrad", another_status),
    planted(
        "the gradient of cross entropy has no mean",
        "CrossEntropyLossGrad",
        given("CrossEntropyLossGrad", reduction=lambda r: "sum" if r in ("mean", None) else r),
    ),
    planted(
        "smoothing is left out of the gradient",
        "CrossEntropyLossGrad",
        given("CrossEntropyLossGrad", label_smoothing=lambda s: s / 2),
        soc="Ascend950PR_9599",
    ),
    planted("blank is 0", "CtcLoss", given("CtcLoss", blank=lambda _: 0)),
    planted(
        "blank is 0 in the gradient", "CtcLossBackward", given("CtcLossBackward", blank=lambda _: 0)
    ),
    planted("infinite losses stay", "CtcLoss", given("CtcLoss", zero_infinity=lambda _: False)),
    planted(
        "infinite losses have a gradient",
        "CtcLossBackward",
        given("CtcLossBackward", zero_infinity=lambda _: False),
    ),
    planted(
        "zero_infinity counts on Ascend 950",
        "CtcLoss",
        formula("CtcLoss", lambda right, facts, g: right.func(_without_product(facts), **g)),
        soc="Ascend950PR_9599",
    ),
    planted(
        "labels that are no class of CTC are clamped", "CtcLoss CtcLossBackward", any_label_of_items
    ),
    planted("labels are found by the longest item", "CtcLoss", rows_apart_by_longest),
    planted("a label may follow itself without a blank", "CtcLoss", repeated_labels_skipped),
    planted("what is behind the steps is 0", "CtcLoss", outputs(behind_the_steps)),
    planted("late steps have a gradient", "CtcLossBackward", outputs(late_gradients)),
    planted("items from the third on are a percent off", "CtcLoss", outputs(first_two_items)),
    planted("slopes belong to the last dimension", "Prelu", channel_last),
    planted("there are 8 slopes", "Prelu PreluBackward", slope_of_first_eight),
    planted(
        "the slopes' gradient is that of the last of the batch",
        "PreluBackward",
        outputs(last_of_batch),
    ),
    planted(
        "the slopes' gradient is added up in FLOAT16", "PreluBackward", outputs(slopes_in_half)
    ),
)


def _without_product(facts: Any) -> Any:
    from dataclasses import replace

    return replace(facts, product=None)
