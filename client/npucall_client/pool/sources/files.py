"""``pool:file:PATH``: a JSON file that lists members, or a folder with a file for each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from npucall.environment.watched_file import WatchedFile
from npucall.membership import check_address, fault_of_labels
from npucall.texts import cut, shown
from npucall_client.pool.members import Member
from npucall_client.pool.sources.poller import Lister, Poller
from npucall_client.settings import ClientSettings

T = TypeVar("T")

PAUSE_SECONDS = 1.0
"""Time between two looks."""
_TEXTS = ("address", "host", "server_name")
_KEYS = {*_TEXTS, "labels"}


def opened(_: ClientSettings, told: Path) -> Poller:
    """The members that a file lists, or the files of a folder."""
    return Poller(PathLister(told), PAUSE_SECONDS, "npucall-members")


class PathLister:
    """Lists members from the folder or the file that is at a path now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._folder = MembersFile(path), ReadyFolder(path)
        self._found: Lister = self._file

    def listed(self) -> Sequence[Member]:
        """The members. Raises OSError if the path cannot be read, ValueError for a bad file."""
        self._found = self._folder if self._path.is_dir() else self._file
        return self._found.listed()

    def why_not(self) -> str:
        """What is wrong with the folder or the file."""
        return self._found.why_not()


class MembersFile:
    """A file such as ``{"members": [{"address": "a:50051", "labels": {"rack": "3"}}]}``."""

    def __init__(self, path: Path) -> None:
        self._file = _ParsedFile(path, _members)

    def listed(self) -> list[Member]:
        """The members. Raises OSError if the file cannot be read, ValueError if it is bad."""
        self._file.look()
        if self._file.fault:
            raise ValueError(self._file.fault)
        return self._file.value or []

    def why_not(self) -> str:
        """Says if the file lists no members."""
        return "" if self._file.value else f"{self._file.path} lists no members"


class ReadyFolder:
    """A folder in which each file names a member: HOST:PORT, or JSON like an entry of a list.

    If a file is bad, or half written, what it said before still counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, _ParsedFile[Member]] = {}
        self._faults: list[str] = []

    def listed(self) -> list[Member]:
        """The members. Raises OSError if the folder cannot be read."""
        names = sorted(each.name for each in self._path.iterdir() if _is_ready(each.name))
        self._files = {
            name: self._files.get(name) or _ParsedFile(self._path / name, _ready) for name in names
        }
        self._faults = [fault for file in self._files.values() if (fault := file.look_anyway())]
        return _unique([file.value for file in self._files.values() if file.value is not None])

    def why_not(self) -> str:
        """Which files are bad, or that the folder has none."""
        if self._faults:
            return "; ".join(self._faults[:3])
        return "" if self._files else f"{self._path} has no ready file"


class _ParsedFile(Generic[T]):
    """What a file says; if its content is invalid, what it said before."""

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self.path = path
        self.value: T | None = None
        self.fault = ""
        """What is wrong with its content now."""
        self._file = WatchedFile(path)
        self._parse = parse

    def look(self) -> None:
        """Reads the file if it has changed. Raises OSError."""
        content = self._file.changed()
        if content is None:
            return
        try:
            self.value, self.fault = self._parse(content), ""
        except ValueError as error:
            self.fault = f"{self.path}: {error}"

    def look_anyway(self) -> str:
        """Reads the file if it has changed. Returns what is wrong with it."""
        try:
            self.look()
        except OSError as error:
            return str(error)
        return self.fault


def _is_ready(name: str) -> bool:
    """Whether a file is neither a draft nor hidden."""
    return not name.startswith(".") and not name.endswith((".part", ".tmp", "~"))


def _ready(content: bytes) -> Member:
    text = content.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        return _member(_json(content))
    return Member(check_address(text))


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON, found: {_short(str(error))}") from error


def _members(content: bytes) -> list[Member]:
    told = _json(content)
    entries = told.get("members") if isinstance(told, dict) else None
    if not isinstance(entries, list):
        raise ValueError('expected {"members": [...]}, found something else')  # noqa: TRY004
    return _unique([_member(entry) for entry in entries])


def _member(entry: Any) -> Member:
    if not isinstance(entry, dict):
        raise ValueError(f"members: expected objects, found {type(entry).__name__}")  # noqa: TRY004
    if unknown := sorted(entry.keys() - _KEYS):
        raise ValueError(
            f"members: expected only {', '.join(sorted(_KEYS))}, found {_short(unknown[0])}"
        )
    address, host, server_name = (_text(entry, key) for key in _TEXTS)
    labels = _labels(entry.get("labels", {}))
    return Member(check_address(address), server_name=server_name, host=host, labels=labels)


def _text(entry: Mapping[str, Any], key: str) -> str:
    told = entry.get(key, "")
    if not isinstance(told, str):
        raise ValueError(f"{key}: expected a text, found {type(told).__name__}")  # noqa: TRY004
    return told


def _labels(told: Any) -> Mapping[str, str]:
    if not isinstance(told, dict) or not all(isinstance(each, str) for each in told.values()):
        raise ValueError("labels: expected texts by name, found something else")
    if fault := fault_of_labels(told):
        raise ValueError(f"labels: {fault}")
    return told


def _short(text: str) -> str:
    return cut(shown(text), 100)


def _unique(members: Sequence[Member]) -> list[Member]:
    """One member for each address: the last one."""
    return [*{member.address: member for member in members}.values()]
