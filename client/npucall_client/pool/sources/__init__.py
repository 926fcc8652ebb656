"""Where the members of a pool come from: a module for each row of ``targets.SOURCES``.

Its modules, from the top::

    directories          watches a directory, and the next one if it fails
    files, fixed, names  a file or folder; members in the target; addresses of a name
    poller               asks again and again
    known_members        the members while a directory starts again
    changes              reads the messages of a directory
"""

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
