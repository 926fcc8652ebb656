"""The TOML file that says which servers a pool has."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from npucall_pool.plan import PlannedDirectory, PoolPlan, Servers
from npucall_pool.ports import Ports

T = TypeVar("T", PoolPlan, PlannedDirectory, Servers)

_KINDS: dict[str, tuple[tuple[type, ...], type, str]] = {
    "str": ((str,), object, "a text"),
    "Ports": ((str,), object, "a text"),
    "int": ((int,), object, "a whole number"),
    "int | None": ((int,), object, "a whole number"),
    "float": ((int, float), object, "a number"),
    "tuple[str, ...]": ((list,), str, "a list of texts"),
    "tuple[Servers, ...]": ((list,), dict, "tables, each below [[servers]]"),
    "Settings": ((dict,), object, "a table"),
    "PlannedDirectory": ((dict,), object, "a table"),
}
"""What a value in the file may be, and the items of a list, by the annotation of its field."""


def read(path: Path) -> PoolPlan:
    """The plan in a file. Raises ValueError with a sentence."""
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a TOML file, found: {error}") from None
    try:
        return _plan(_checked(PoolPlan, table, ""))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _plan(table: dict[str, Any]) -> PoolPlan:
    if not table.get("servers"):
        raise ValueError("servers: expected [[servers]], a table for each kind, found none")
    servers = []
    for number, each in enumerate(table["servers"]):
        given = _checked(Servers, each, f"servers[{number}].")
        servers.append(Servers(**{**given, "hosts": tuple(given.get("hosts", ()))}))
    given = {**table, "servers": tuple(servers)}
    if "ports" in table:
        given["ports"] = Ports.parse(table["ports"])
    if "directory" in table:
        given["directory"] = PlannedDirectory(
            **_checked(PlannedDirectory, table["directory"], "directory.")
        )
    return PoolPlan(**given)


def _checked(kind: type[T], table: dict[str, Any], place: str) -> dict[str, Any]:
    """The table, if it has nothing but what its kind has. Raises ValueError."""
    known = {each.name: str(each.type) for each in fields(kind)}
    for name, value in table.items():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            instead = f"did you mean {close[0]}?" if close else f"it may have {', '.join(known)}"
            raise ValueError(f"{place}{name}: expected a name that this table has; {instead}")
        types, items, words = _KINDS[known[name]]
        is_right = isinstance(value, types) and not isinstance(value, bool)
        if not is_right or not all(isinstance(each, items) for each in _items(value)):
            raise ValueError(f"{place}{name}: expected {words}, found {value!r}")
        if isinstance(value, (int, float)) and value < 0:
            raise ValueError(f"{place}{name}: expected 0 or more, found {value!r}")
    return table


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []
