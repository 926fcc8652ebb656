"""The target of a pool: from its text to what it says. No I/O."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from npucall.membership import DIRECTORY_PORT, check_address
from npucall_client.settings import POOL

_NAMES = ("dns", "file", "directory")


class Listed(NamedTuple):
    """Members that the target names itself."""

    addresses: tuple[str, ...]


class Resolved(NamedTuple):
    """A name; each of its addresses is a member."""

    name: str
    port: int


class Written(NamedTuple):
    """A file that lists members, or a folder with a file for each of them."""

    path: Path


class Announced(NamedTuple):
    """Directories, of which one at a time is watched."""

    directories: tuple[str, ...]


def parse(target: str) -> Listed | Resolved | Written | Announced:
    """What a target says. Raises ValueError for what is no target of a pool."""
    text = target.removeprefix(POOL)
    kind, _, rest = text.partition(":")
    try:
        if kind not in _NAMES:
            return Listed(_addresses(text))
        if kind == "dns":
            return _resolved(rest)
        if kind == "file":
            return _written(rest)
        return Announced(_addresses(rest, DIRECTORY_PORT))
    except ValueError as error:
        raise ValueError(f"target: {error} in {target!r} (NPUCALL_TARGET)") from error


def _addresses(text: str, usual_port: int | None = None) -> tuple[str, ...]:
    """Of a list with commas between; one without a port has the usual one."""
    given = [each.strip() for each in text.split(",")]
    if usual_port is not None:
        given = [each if _has_port(each) else f"{each}:{usual_port}" for each in given]
    return tuple(dict.fromkeys(map(check_address, given)))


def _has_port(text: str) -> bool:
    return ":" in text.rpartition("]")[2]


def _resolved(text: str) -> Resolved:
    name, _, port = check_address(text).rpartition(":")
    if name.startswith("["):
        raise ValueError(f"expected a name after dns:, found {name}")
    return Resolved(name, int(port))


def _written(text: str) -> Written:
    if not text:
        raise ValueError("expected a path after file:, found none")
    return Written(Path(text))
