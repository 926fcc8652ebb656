"""The subjects of all test modules here: found, not listed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from .subject import Subject


def subjects() -> list[Subject]:
    """Every ``Subject`` that a test module has under a name of its own, in the modules' order."""
    paths = sorted(Path(__file__).parent.glob("test_*.py"))
    names = [path.stem for path in paths if " = Subject(" in path.read_text()]
    modules = [import_module(f".{name}", __package__) for name in names]
    values = (value for module in modules for value in vars(module).values())
    return list(dict.fromkeys(value for value in values if isinstance(value, Subject)))


SUBJECTS = subjects()
