"""What the cross entropy and its gradient have in common: labels, weights, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from npucall.declare import Facts, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import AnyArray, Array
from npucall.errors import TILING_ERROR, AttributeValueError
from npucall.operators._labels import check_labels

REDUCTION = '"none", "mean" or "sum"; absent means "mean"'


def smoothing(draft: Draft) -> object:
    """The value of label_smoothing."""
    return draft.attribute("label_smoothing")


def reduction_and_smoothing() -> tuple[rules.Rule, ...]:
    """Values that the kernel knows, which it finds late, when it cuts the work into tiles."""
    return rules.with_status(
        TILING_ERROR,
        rules.one_of("reduction", "none", "mean", "sum"),
        rules.requires(
            "0 to 1",
            "label_smoothing",
            holds=lambda draft: 0 <= draft.attribute("label_smoothing") <= 1,
            found=smoothing,
            error=AttributeValueError,
        ),
    )


def without_zloss(name: str, value: object) -> rules.Rule:
    """An attribute of the z-loss has the value that asks for none."""
    expected = f"{value}, since the kernels compute no z-loss"
    return rules.value_fits(expected, name, lambda found: found == value)


def check_labels_of_rows(facts: Facts, target: Array, ignore_index: int, classes: int) -> None:
    """The labels that count are classes."""
    for (rows,) in facts.blocks(target.shape):
        _labels(facts, target, ignore_index, classes, rows)


def _labels(
    facts: Facts, target: Array, ignore_index: int, classes: int, rows: slice
) -> tuple[AnyArray, AnyArray]:
    """A block of the labels, and which of them count; each that does is a class."""
    labels = np.asarray(facts.read(target, (rows,)), np.int64)
    counted = labels != ignore_index
    check_labels("target", labels[counted], classes)
    return labels, counted


class LabelledRows(NamedTuple):
    """Labels and weights of a call, a block at a time."""

    facts: Facts
    target: Array
    weight: Array | None
    ignore_index: int
    classes: int

    def labels(self, rows: slice) -> tuple[AnyArray, AnyArray]:
        """The label of each row, 0 if it does not count, and whether it does."""
        labels, counted = _labels(self.facts, self.target, self.ignore_index, self.classes, rows)
        return np.where(counted, labels, 0), counted

    def weights(self, classes: AnyArray | slice) -> AnyArray:
        """The weight of each of some classes, or a one for all of them."""
        if self.weight is None:
            return np.ones(1, self.facts.dtype)
        return np.asarray(self.facts.read(self.weight, classes), self.facts.dtype)

    def sum_of_own(self, count: int) -> float:
        """The sum of the weights of the labels that count."""
        total = 0.0
        for (rows,) in self.facts.blocks((count,)):
            labels, counted = self.labels(rows)
            own = np.broadcast_to(self.weights(labels), labels.shape)
            total += float(np.sum(own[counted], dtype=np.float64))
        return total

    def sum_of_all(self) -> float:
        """The sum of the weights of all classes."""
        if self.weight is None:
            return self.classes
        blocks = self.facts.blocks((self.classes,))
        return sum(float(np.sum(self.weights(part), dtype=np.float64)) for (part,) in blocks)


def groups_of_rows(count: int, classes: int) -> Iterator[slice]:
    """As many rows as fill a block, or one."""
    size = max(BLOCK // classes, 1)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def log_softmax(facts: Facts, logits: Array, rows: slice) -> Iterator[tuple[slice, AnyArray]]:
    """The log-softmax of some rows, as many of their columns at a time as fill a block."""
    pieces = [columns for (columns,) in cut(logits.shape[1:], BLOCK)]
    whole = facts.read(logits, (rows, pieces[0])) if len(pieces) == 1 else None

    def read(columns: slice) -> AnyArray:
        facts.pause()
        return facts.read(logits, (rows, columns)) if whole is None else whole

    top = np.full((rows.stop - rows.start, 1), -np.inf, facts.dtype)
    for columns in pieces:
        np.maximum(top, read(columns).max(1, keepdims=True), out=top)
    total = np.zeros(top.shape)
    for columns in pieces:
        total += np.exp(read(columns) - top).sum(1, np.float64, keepdims=True)
    logarithm = np.log(total).astype(facts.dtype)
    for columns in pieces:
        yield columns, read(columns) - top - logarithm
