"""What the wrong elements of an output have in common, in words.

Each pattern is a pure function of the wrong output, the expected output, and the inputs. It says
what all wrong elements have in common, and whether there are enough of them that this is no chance.
"""

from __future__ import annotations

import numpy as np

from npucall_conformance.reporting.patterns.difference import Difference, Kind, Pattern, near
from npucall_conformance.reporting.patterns.locations import PLACES, elements, ranges
from npucall_conformance.reporting.patterns.values import VALUES, rounded

__all__ = ["Difference", "Kind", "Pattern", "elements", "patterns", "ranges"]


def patterns(seen: Difference) -> tuple[Pattern, ...]:
    """All that hold; those that say most come first."""
    if not seen.wrong.any():
        return ()
    with np.errstate(all="ignore"):
        values = (rounded,) if near(seen.was, seen.should).all() else VALUES
        return tuple(found for look in (*values, *PLACES) for found in look(seen))
