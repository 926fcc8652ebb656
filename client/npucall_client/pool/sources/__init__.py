"""Where the members of a pool come from: a module for each row of ``targets.SOURCES``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from npucall_client.targets import parse

if TYPE_CHECKING:
    from npucall_client.pool.members import Source
    from npucall_client.settings import ClientSettings


def source_of(settings: ClientSettings) -> Source:
    """The source that the target names, which begins with ``pool:``.

    Raises ValueError for a target that names no source, and for invalid credentials.
    """
    module, told = parse(settings.target)
    source: Source = import_module(f"{__name__}.{module}").opened(settings, told)
    return source
