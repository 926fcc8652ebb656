"""Which shape tensors stretch to together, stated a second time [src:broadcasting]."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npucall.tensors import Shape


def common_shape(*shapes: Shape) -> Shape | None:
    """The shape that all of them stretch to; None where there is none.

    Dimensions are matched from the right. In one dimension, all extents other than 1 must be equal.
    An extent of 1 stretches to the others, also to 0.
    """
    found = []
    for extents in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        stretched = {extent for extent in extents if extent != 1}
        if len(stretched) > 1:
            return None
        found.append(stretched.pop() if stretched else 1)
    return tuple(reversed(found))
