"""The environment variables that a keeper has, and those that its server gets."""

from __future__ import annotations

import os

VISIBLE_NPUS = "ASCEND_RT_VISIBLE_DEVICES"
"""Which NPUs a process sees, numbered from 0. Ray sets it in each actor that it gives some."""
_RAYS = ("RAY_", "PYTHON", "OMP_NUM_THREADS", "VIRTUAL_ENV")
"""Beginnings of names that Ray and its Python set for themselves; OMP_NUM_THREADS is 1 there."""


def of_server() -> dict[str, str]:
    """All that the server gets: this process's, without what is Ray's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_RAYS)}


def visible_npus() -> str:
    """What the variable says; empty where it is not set."""
    return os.environ.get(VISIBLE_NPUS, "")


def set_for_ray(name: str, value: str) -> None:
    """Sets a variable that Ray reads when it is imported, unless somebody has set it."""
    os.environ.setdefault(name, value)
