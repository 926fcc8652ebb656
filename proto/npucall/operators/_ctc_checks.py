"""What the connectionist temporal classification loss and its gradient check alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from npucall.declare import Facts, rules
from npucall.declare.draft import Draft
from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, Array
from npucall.errors import AttributeValueError, DTypeError
from npucall.operators._ctc_states import MATRIX, ONE_ITEM
from npucall.operators._labels import check_labels
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_SHORT, WITHOUT_SHORT = (FLOAT, DOUBLE, FLOAT16, BF16), (FLOAT, DOUBLE)
PRODUCTS = {
    A2: WITH_SHORT,
    A3: WITH_SHORT,
    ASCEND_950: WITH_SHORT,
    ASCEND_910: WITHOUT_SHORT,
    ASCEND_310P: WITHOUT_SHORT,
}
LEGACY = {ASCEND_310B: WITHOUT_SHORT}


def longest(draft: Draft, lengths: str) -> int:
    """The longest of some lengths; 0 if there are none."""
    return max(draft.attribute(lengths), default=0)


def matrix(draft: Draft) -> bool:
    """Whether the targets have a row for each item, rather than one item after the other."""
    return len(draft.shape("targets")) == MATRIX


def items(draft: Draft) -> int:
    """The items of log_probs, which of rank 2 has one."""
    shape = draft.shape("log_probs")
    return 1 if len(shape) == ONE_ITEM else shape[1]


def one_for_each_item(lengths: str) -> rules.Rule:
    """There are as many lengths as items."""
    return rules.requires(
        "a length for each item of log_probs",
        lengths,
        holds=lambda draft: len(draft.attribute(lengths)) == items(draft),
        found=lambda draft: f"{len(draft.attribute(lengths))} for {items(draft)}",
        error=AttributeValueError,
    )


def lengths_not_negative(lengths: str) -> rules.Rule:
    """No length is below 0."""
    return rules.requires(
        "lengths of 0 or more",
        lengths,
        holds=lambda draft: min(draft.attribute(lengths), default=0) >= 0,
        found=lambda draft: min(draft.attribute(lengths)),
        error=AttributeValueError,
    )


def time_steps() -> rules.Rule:
    """There are time steps."""
    return rules.requires(
        "a first dimension, the time steps, of 1 or more",
        "log_probs",
        holds=lambda draft: draft.shape("log_probs")[:1] not in ((), (0,)),
        found=lambda draft: f"shape {draft.shape('log_probs')}",
    )


def blank_is_a_class() -> rules.Rule:
    """The class between labels is one of log_probs."""
    return rules.requires(
        "a class of log_probs",
        "blank",
        holds=lambda draft: 0 <= draft.attribute("blank") < draft.shape("log_probs")[-1],
        found=lambda draft: f"{draft.attribute('blank')} of {draft.shape('log_probs')[-1]}",
        error=AttributeValueError,
    )


def steps_within_log_probs() -> rules.Rule:
    """No item has more time steps than there are."""
    return rules.requires(
        "lengths of at most the time steps of log_probs",
        "input_lengths",
        "log_probs",
        holds=lambda draft: longest(draft, "input_lengths") <= draft.shape("log_probs")[0],
        found=lambda draft: f"{longest(draft, 'input_lengths')} of {draft.shape('log_probs')[0]}",
        error=AttributeValueError,
    )


def rows_for_the_longest() -> rules.Rule:
    """Rows of targets have room for all labels of an item."""
    return rules.when(
        matrix,
        rules.requires(
            "a second extent of at least the longest of target_lengths",
            "targets",
            "target_lengths",
            holds=lambda draft: draft.shape("targets")[1] >= longest(draft, "target_lengths"),
            found=lambda draft: (
                f"shape {draft.shape('targets')} for {longest(draft, 'target_lengths')}"
            ),
        ),
        "if targets have 2 dimensions",
    )


def labels_one_behind_the_other() -> rules.Rule:
    """Targets of rank 1 are as many as the items have labels."""
    return rules.requires(
        "as many labels as target_lengths say, if it has 1 dimension",
        "targets",
        "target_lengths",
        holds=lambda draft: (
            matrix(draft) or draft.shape("targets") == (sum(draft.attribute("target_lengths")),)
        ),
        found=lambda draft: (
            f"shape {draft.shape('targets')} for {sum(draft.attribute('target_lengths'))}"
        ),
    )


def room_for_short_floats(states: Callable[[Draft], int]) -> rules.Rule:
    """The kernels of Atlas A2 and A3 have room; ``states``: the last extent of log_alpha."""

    def holds(draft: Draft) -> bool:
        roomy = (
            draft.shape("log_probs")[-1] <= 200_000  # noqa: PLR2004
            and items(draft) <= 8180  # noqa: PLR2004
            and (states(draft) - 1) // 2 <= 1000  # noqa: PLR2004
        )
        return roomy or draft.dtype("log_probs") not in (FLOAT16, BF16)

    return rules.on(
        (A2, A3),
        rules.requires(
            "FLOAT or DOUBLE, since for FLOAT16 and BF16 there may be at most 200000 classes, "
            "8180 items and log_alpha for 1000 labels",
            "log_probs",
            holds=holds,
            found=lambda draft: draft.dtype("log_probs"),
            error=DTypeError,
        ),
    )


def check_labels_of_items(
    facts: Facts, targets: Array, lengths: Sequence[int], classes: int
) -> None:
    """The labels within the items' lengths are classes."""
    counts = np.array(lengths, np.int64)
    for index in facts.blocks(targets.shape):
        labels = np.asarray(facts.read(targets, index), np.int64)
        if len(index) == MATRIX:
            rows, places = index
            labels = labels[np.arange(places.start, places.stop) < counts[rows, np.newaxis]]
        check_labels("targets", labels, classes)
