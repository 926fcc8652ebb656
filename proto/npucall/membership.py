"""A pool's times and texts, which servers, directories and clients share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from npucall.limits import (
    MAX_LABEL_NAME_BYTES,
    MAX_LABEL_VALUE_BYTES,
    MAX_LABELS,
    MAX_NAME_BYTES,
)
from npucall.texts import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

BEAT_SECONDS = 1.0
"""Between two beats of a server."""
SUSPECT_SECONDS = 3.0
"""Of silence, after which a member is asked last: a beat is late on a host that is busy."""
REMOVED_SECONDS = 30.0
"""Of silence, after which a member is gone."""
COMPLETE_SECONDS = 3.0
"""After its start a directory knows all members; until then nobody removes one."""
QUIET_SECONDS = 10.0
"""Longest time without a message to those who watch."""
DIRECTORY_PORT = 50050
"""Of a directory, where none is said."""

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*)):([0-9]{1,5})")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_./-]*)")
_LONGEST_HOST = 253
_LAST_PORT = 65535


def split_address(address: str) -> tuple[str, int]:
    """Host, without brackets, and port of a member. Raises ValueError for what is no HOST:PORT."""
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None or len(found[1]) > _LONGEST_HOST or not 0 < int(found[2]) <= _LAST_PORT:
        raise ValueError(f"expected HOST:PORT, found {cut(address, MAX_NAME_BYTES)!r}")
    return found[1].strip("[]"), int(found[2])


def fault_of_labels(labels: Mapping[str, str]) -> str:
    """What is wrong with labels; empty where nothing is."""
    if len(labels) > MAX_LABELS:
        return f"expected at most {MAX_LABELS} labels, found {len(labels)}"
    for name, value in labels.items():
        if not _LABEL.fullmatch(name) or len(name) > MAX_LABEL_NAME_BYTES:
            return (
                f"expected a name of at most {MAX_LABEL_NAME_BYTES} of a-z, 0-9, _, ., / and -, "
                f"found {cut(name, MAX_NAME_BYTES)!r}"
            )
        if not value.isprintable() or len(value.encode()) > MAX_LABEL_VALUE_BYTES:
            return (
                f"expected for {name} at most {MAX_LABEL_VALUE_BYTES} bytes of printable "
                f"characters, found {cut(value, MAX_NAME_BYTES)!r}"
            )
    return ""
