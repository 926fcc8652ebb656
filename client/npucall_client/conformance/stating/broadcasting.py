"""Which shape tensors stretch to together, stated a second time [src:broadcasting]."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npucall.tensors import Shape


def common_shape(*shapes: Shape) -> Shape | None:
    """The shape that all of them stretch to; None where there is none.

    From the right, extents of one dimension must be equal but for ones, which become what the
    others are: also 0.
    """
    found = []
    for extents in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        stretched = {extent for extent in extents if extent != 1}
        if len(stretched) > 1:
            return None
        found.append(stretched.pop() if stretched else 1)
    return tuple(reversed(found))
