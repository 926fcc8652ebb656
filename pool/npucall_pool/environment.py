"""The environment variables of a keeper, and those that its server gets."""

from __future__ import annotations

import os

VISIBLE_NPUS = "ASCEND_RT_VISIBLE_DEVICES"
"""Which NPUs a process sees, numbered from 0. Ray sets it in each actor that gets NPUs."""
_RAYS = ("RAY_", "PYTHON", "OMP_NUM_THREADS", "VIRTUAL_ENV")
"""Beginnings of the names that Ray and its Python set for themselves; OMP_NUM_THREADS is 1 then."""


def of_server() -> dict[str, str]:
    """All variables that the server gets: those of this process without Ray's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_RAYS)}


def visible_npus() -> str:
    """The value of the variable; empty if it is not set."""
    return os.environ.get(VISIBLE_NPUS, "")


def set_for_ray(name: str, value: str) -> None:
    """Sets a variable that Ray reads when it is imported, unless it is already set."""
    os.environ.setdefault(name, value)
