"""The environment variables that npucall reads, so that others can be told. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from npucall.environment.known_variables import SETTINGS

T = TypeVar("T")

PREFIX = "NPUCALL_"
DEFAULT = "DEFAULT_"
"""What stands between the prefix and a setting that counts only if nothing else gives it."""
SERVER, DIRECTORY = PREFIX, f"{PREFIX}DIRECTORY_"
"""What the variables of a server's settings begin with, and those of a directory's."""
_STORE = (
    "directories share nothing any longer: servers announce to all of them (--announce a,b), and "
    "clients name all of them (pool:directory:a,b)"
)
_LISTENER = {
    "print_settings": "the command `settings` of npucall-server and npucall-directory prints them",
    "idle_timeout": "a connection without calls is closed after 300 s",
    "slow_call": "a call counts as slow from 1 s on (log_calls)",
}
REMOVED: dict[str, dict[str, str]] = {
    SERVER: {
        **_LISTENER,
        "reservation_gap": "a tenant waits a minute at most between two of its reservations",
        "session_memory": "handle_memory limits a session too, and a tenant's quota handle_memory "
        "all of its sessions",
        "stream_window": "a stream has 32 calls without a complete answer at most",
    },
    DIRECTORY: {
        **_LISTENER,
        **dict.fromkeys(("store", "store_ca", "store_certificate", "store_key"), _STORE),
    },
}
"""Settings that version 0.2 no longer has, and what to do instead, by the prefix of their
variables. As an option, a variable or a line of a file they are ignored, with a warning."""
_TOOLS = frozenset(
    {"NPUCALL_DIRECTORY", "NPUCALL_LISTEN_HOST", "NPUCALL_REF", "NPUCALL_REPOSITORY"}
)
"""Of the files in ``deploy/`` and ``examples/``: units, compose files and CI jobs read them."""
_SIMULATOR = "NPUCALL_SIM_"
"""What those of the simulator of this repository's tests begin with."""
_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_[0-9]+_[A-Z]+.*)?$")
"""In what Kubernetes sets in every pod next to a service that is called npucall."""


def faults_of(names: Iterable[str]) -> dict[str, str]:
    """The variables of an environment that nothing of npucall reads, each with a sentence on it."""
    return {
        name: _fault(name)
        for name in sorted(names)
        if name.startswith(PREFIX) and _is_unknown(name)
    }


def without_removed(prefix: str, given: Mapping[str, T]) -> tuple[dict[str, T], list[str]]:
    """The settings without those that are no longer there, and a sentence on each of these."""
    removed = REMOVED[prefix]
    kept = {name: value for name, value in given.items() if name not in removed}
    return kept, [
        _no_longer(f"the setting {name}", removed[name]) for name in given.keys() & removed
    ]


def removed_of(prefix: str, names: Iterable[str]) -> list[str]:
    """A sentence on each of these variables whose setting is no longer there."""
    removed = {f"{prefix}{name.upper()}": instead for name, instead in REMOVED[prefix].items()}
    return [
        _no_longer(f"the environment variable {name}", instead)
        for name in sorted(names)
        if (instead := removed.get(name.replace(DEFAULT, "", 1)))
    ]


def _no_longer(what: str, instead: str) -> str:
    return f"{what} is no longer there, and is ignored; {instead}"


def _is_unknown(name: str) -> bool:
    if name.replace(DEFAULT, "", 1) in SETTINGS or name in _TOOLS or name.startswith(_SIMULATOR):
        return False
    if any(removed_of(prefix, [name]) for prefix in REMOVED):
        return False  # what read it says so
    return _KUBERNETES.search(name) is None


def _fault(name: str) -> str:
    close = get_close_matches(name, sorted(SETTINGS), n=1, cutoff=0.75)
    instead = f"did you mean {close[0]}?" if close else "docs/settings.md lists all of them"
    return f"the environment variable {name} is not one of npucall, and is ignored; {instead}"
