"""aclnnCtcLoss: the dtypes of targets, and how large tensors of short floats may be."""

from __future__ import annotations

from typing import Any

import pytest

from npucall.dtypes import BF16, BOOL, DTYPES, FLOAT, FLOAT16, INT32, INT64
from npucall.errors import DTypeError

from .arrangements import NEWER
from .ctc_table import FORWARD, given
from .faults import Fault


def test_targets_have_one_of_five_dtypes() -> None:
    faults = {kind: Fault({"targets": {"dtype": kind}}, DTypeError, ()) for kind in DTYPES}
    taken = {kind for kind, fault in faults.items() if FORWARD.refusal(fault) is None}
    assert taken == {INT32, INT64, BOOL, FLOAT, FLOAT16}


# C, N, the most labels: padded, 999 of them have 2000 states, 1000 have 2008.
LIMITS = [
    ((200_000, 8180, 999), True),
    ((200_001, 8180, 999), False),
    ((200_000, 8181, 999), False),
    ((200_000, 8180, 1000), False),
]


@pytest.mark.parametrize("kind", [FLOAT, FLOAT16, BF16])
@pytest.mark.parametrize("soc", NEWER)
@pytest.mark.parametrize(("extents", "small"), LIMITS)
def test_short_floats_have_limits_on_atlas_a2_and_a3(
    extents: tuple[int, int, int], small: bool, soc: str, kind: Any
) -> None:
    classes, items, labels = extents
    states = 2 * labels + 1
    changes = {
        "log_probs": given((5, items, classes), kind),
        "neg_log_likelihood_out": given((items,), kind),
        "log_alpha_out": given((items, 5, states if "950" in soc else -(-states // 8) * 8), kind),
        "targets": {"shape": (items, labels)},
        "input_lengths": (1,) * items,
        "target_lengths": (labels,) * items,
    }
    fault = Fault(changes, DTypeError, ("log_probs",))
    passes = small or kind is FLOAT or "950" in soc
    assert FORWARD.refusal(fault, soc=soc) == (None if passes else fault.answer)
