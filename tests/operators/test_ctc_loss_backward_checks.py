"""aclnnCtcLossBackward: what is refused, in order, and the products' dtypes."""

from __future__ import annotations

from typing import Any

import pytest

from npucall.dtypes import BF16, BOOL, DTYPES, FLOAT, FLOAT16, INT32, INT64
from npucall.errors import AttributeValueError, DTypeError

from .arrangements import NEWER
from .ctc_table import TABLE, given
from .faults import Fault


def test_targets_have_one_of_five_dtypes() -> None:
    faults = {kind: Fault({"targets": {"dtype": kind}}, DTypeError, ()) for kind in DTYPES}
    taken = {kind for kind, fault in faults.items() if TABLE.refusal(fault) is None}
    assert taken == {INT32, INT64, BOOL, FLOAT, FLOAT16}


# C, N, A: the most that there may be, and one more of each.
LIMITS = [
    ((200_000, 8180, 2002), True),
    ((200_001, 8180, 2002), False),
    ((200_000, 8181, 2002), False),
    ((200_000, 8180, 2003), False),
]


@pytest.mark.parametrize("kind", [FLOAT, FLOAT16, BF16])
@pytest.mark.parametrize("soc", NEWER)
@pytest.mark.parametrize(("extents", "small"), LIMITS)
def test_short_floats_have_limits_on_atlas_a2_and_a3(
    extents: tuple[int, int, int], small: bool, soc: str, kind: Any
) -> None:
    classes, items, states = extents
    changes = {
        **dict.fromkeys(("log_probs", "out"), given((5, items, classes), kind)),
        **dict.fromkeys(("grad_out", "neg_log_likelihood"), given((items,), kind)),
        "log_alpha": given((items, 5, states), kind),
        "targets": {"shape": (items, 3)},
        **dict.fromkeys(("input_lengths", "target_lengths"), (1,) * items),
    }
    fault = Fault(changes, DTypeError, ("log_probs",))
    passes = small or kind is FLOAT or "950" in soc
    assert TABLE.refusal(fault, soc=soc) == (None if passes else fault.answer)


@pytest.mark.parametrize(
    ("states", "longest", "passes"), [(7, 3, True), (8, 3, True), (6, 3, False), (0, 0, False)]
)
def test_log_alpha_has_room_for_the_longest_labels(states: int, longest: int, passes: bool) -> None:
    changes = {"log_alpha": {"shape": (2, 5, states)}, "target_lengths": (longest, 0)}
    fault = Fault(changes, AttributeValueError, ("target_lengths", "log_alpha"))
    assert TABLE.refusal(fault) == (None if passes else fault.answer)
