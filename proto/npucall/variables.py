"""The environment variables that npucall reads, so that a misspelt one can be told. Pure."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from npucall.known_variables import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "NPUCALL_"
DEFAULT = "DEFAULT_"
"""What stands between the prefix and a setting that counts only if nothing else gives it."""
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


def _is_unknown(name: str) -> bool:
    if name.replace(DEFAULT, "", 1) in SETTINGS or name in _TOOLS or name.startswith(_SIMULATOR):
        return False
    return _KUBERNETES.search(name) is None


def _fault(name: str) -> str:
    close = get_close_matches(name, sorted(SETTINGS), n=1, cutoff=0.75)
    instead = f"did you mean {close[0]}?" if close else "docs/settings.md lists all of them"
    return f"the environment variable {name} is not one of npucall, and is ignored; {instead}"
