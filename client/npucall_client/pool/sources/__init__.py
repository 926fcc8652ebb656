"""Where the members of a pool come from, by the text of the target.

Its modules, from the top::

    directories          watches a directory, and the next one if it fails
    poller               asks again and again
    known_members        the members while a directory starts again
    changes              reads the messages of a directory
    files, fixed, names  a file or folder; members in the target; addresses of a name
    targets              the target's text
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_client import targets
from npucall_client.pool.sources.directories import DirectorySource
from npucall_client.pool.sources.files import PAUSE_SECONDS as FILE_PAUSE
from npucall_client.pool.sources.files import PathLister
from npucall_client.pool.sources.fixed import FixedSource
from npucall_client.pool.sources.names import PAUSE_SECONDS as NAME_PAUSE
from npucall_client.pool.sources.names import Resolver
from npucall_client.pool.sources.poller import LookingSource
from npucall_client.sending.credentials import credential_of

if TYPE_CHECKING:
    from npucall_client.pool.members import Source
    from npucall_client.settings import ClientSettings


def source_of(settings: ClientSettings) -> Source:
    """The source that the target names, which begins with ``pool:``.

    Raises ValueError for a target that names no source, and for invalid credentials.
    """
    told = targets.parse(settings.target)
    if isinstance(told, targets.Listed):
        return FixedSource(told.addresses)
    if isinstance(told, targets.Resolved):
        credential_of(settings)  # raises for a token without TLS: a name may lead anywhere
        return LookingSource(Resolver(told.name, told.port), NAME_PAUSE, "npucall-dns")
    if isinstance(told, targets.Written):
        return LookingSource(PathLister(told.path), FILE_PAUSE, "npucall-members")
    return DirectorySource(settings, told.directories)
