"""One word has one meaning: in a distribution no two classes, and no three modules, have one name.

A name that stands more often has a line here with its reason. A line whose name no longer does so
is deleted.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TWO_CLIENTS = "the same for threads and for asyncio"
RENAMED = "since before the rooms; one of them gets a name of its own"
CLASSES: dict[str, dict[str, str]] = {
    "npucall_client": {
        "Client": TWO_CLIENTS,
        "PendingCall": TWO_CLIENTS,
        "Pipeline": TWO_CLIENTS,
        "Program": TWO_CLIENTS,
        "Remote": TWO_CLIENTS,
        "Reserved": TWO_CLIENTS,
        "Session": TWO_CLIENTS,
    },
    "npucall_pool": {
        "Keeper": RENAMED,
    },
    "npucall_server": {},
}
"""Public classes of several modules, by distribution, with the reason."""
MODULES: dict[str, dict[str, str]] = {}
"""Names of three modules or more."""
PACKAGES = {
    package.name: package
    for project in ROOT.glob("*/pyproject.toml")
    for package in project.parent.glob("npucall*")
    if (package / "__init__.py").is_file()
}


def modules(package: str) -> Iterator[Path]:
    for path in sorted(PACKAGES[package].rglob("*.py")):
        if "_pb2" not in path.name:
            yield path


def classes(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def at_least(count: int, names: Iterable[str]) -> list[str]:
    return sorted(name for name, found in Counter(names).items() if found >= count)


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_public_class_has_a_name_that_no_other_module_has(package: str) -> None:
    found = at_least(2, (name for path in modules(package) for name in set(classes(path))))
    assert found == sorted(CLASSES.get(package, {}))


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_no_three_modules_have_one_name(package: str) -> None:
    ordinary = (path.stem for path in modules(package) if not path.stem.startswith("__"))
    assert at_least(3, ordinary) == sorted(MODULES.get(package, {}))
