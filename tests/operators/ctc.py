"""The truth of CTC: every path through the time steps, one by one. And tensors to call it with."""

import math
from collections.abc import Sequence
from itertools import groupby, product
from typing import Any

import numpy as np
from numpy.typing import NDArray


def labels_of(path: Sequence[int], blank: int) -> list[int]:
    """What a path says: repetitions once, without blanks."""
    return [label for label, _ in groupby(path) if label != blank]


def by_paths(log_probs: NDArray[Any], labels: Sequence[int], blank: int) -> tuple[float, Any]:
    """Loss of one item, and the gradient for 1: e^lp - P(class at the step | the labels)."""
    steps, classes = log_probs.shape
    passing = np.zeros((steps, classes))
    total = 0.0
    for path in product(range(classes), repeat=steps):
        if labels_of(path, blank) == list(labels):
            weight = math.exp(sum(log_probs[step, label] for step, label in enumerate(path)))
            total += weight
            for step, label in enumerate(path):
                passing[step, label] += weight
    with np.errstate(all="ignore"):
        return -np.log(total), np.exp(log_probs) - passing / total


def forward_variables(log_probs: NDArray[Any], labels: Sequence[int], blank: int) -> Any:
    """log_alpha of one item by the textbook: probabilities, summed state by state."""
    states = [blank]
    for label in labels:
        states += [label, blank]
    alpha = np.zeros((len(log_probs), len(states)))
    alpha[0, :2] = np.exp(log_probs[0, states[:2]])
    for step in range(1, len(log_probs)):
        for s, label in enumerate(states):
            total = sum(alpha[step - 1, max(s - 1, 0) : s + 1])
            if s > 1 and label != blank and label != states[s - 2]:
                total += alpha[step - 1, s - 2]
            alpha[step, s] = total * math.exp(log_probs[step, label])
    with np.errstate(divide="ignore"):
        return np.log(alpha)


def log_softmax(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float64]:
    logits = np.random.default_rng(seed).uniform(-2, 2, shape)
    result: NDArray[np.float64] = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return result


def call(
    log_probs: NDArray[Any],
    labels: Sequence[Sequence[int]],
    input_lengths: Sequence[int],
    blank: int = 0,
) -> dict[str, Any]:
    """All arguments in float64, with what the forward operator would give; targets (N, S)."""
    longest = max(map(len, labels))
    targets = np.full((len(labels), longest), 77)  # not looked at behind an item's labels
    log_alpha = np.full((len(labels), len(log_probs), 2 * longest + 1), np.nan)  # likewise
    loss = np.zeros(len(labels))
    for n, (item, steps) in enumerate(zip(labels, input_lengths, strict=True)):
        targets[n, : len(item)] = item
        alpha = forward_variables(log_probs[:steps, n], item, blank)
        log_alpha[n, :steps, : alpha.shape[1]] = alpha
        with np.errstate(divide="ignore"):
            loss[n] = -np.log(np.exp(alpha[-1, -2:]).sum())
    return {
        "grad_out": np.random.default_rng(1).uniform(-2, 2, len(labels)),
        "log_probs": log_probs,
        "targets": targets,
        "input_lengths": tuple(input_lengths),
        "target_lengths": tuple(map(len, labels)),
        "neg_log_likelihood": loss,
        "log_alpha": log_alpha,
        "blank": blank,
    }


def rounded(arguments: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The arguments with all float64 in another dtype."""
    return {
        name: value.astype(kind) if getattr(value, "dtype", None) == np.float64 else value
        for name, value in arguments.items()
    }


def in_a_row(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the targets of all items one behind the other."""
    rows = zip(arguments["targets"], arguments["target_lengths"], strict=True)
    return arguments | {"targets": np.concatenate([row[:length] for row, length in rows])}
