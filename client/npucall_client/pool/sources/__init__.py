"""Where the members of a pool come from, by the text of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_client.pool.sources import targets
from npucall_client.pool.sources.fixed import FixedSource

if TYPE_CHECKING:
    from npucall_client.pool.members import Source
    from npucall_client.settings import ClientSettings


def source_of(settings: ClientSettings) -> Source:
    """The source that the target names, which begins with ``pool:``.

    Raises ValueError for a target that is none, and for credentials that cannot be.
    """
    told = targets.parse(settings.target)
    if isinstance(told, targets.Listed):
        return FixedSource(told.addresses)
    raise ValueError("not yet")
