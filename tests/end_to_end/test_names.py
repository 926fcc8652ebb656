"""One word has one meaning: in the product no two classes, and no three modules, have one name.

A name that stands more often has a line here with its reason. A line whose name no longer does so
is deleted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TWO_CLIENTS = "the same for threads and for asyncio"
CLASSES = {
    "Client": TWO_CLIENTS,
    "PendingCall": TWO_CLIENTS,
    "Pipeline": TWO_CLIENTS,
    "Program": "the same for threads and for asyncio; the contract's is what it sends",
    "Remote": TWO_CLIENTS,
    "Reserved": TWO_CLIENTS,
    "Session": TWO_CLIENTS,
    "ExitCode": "each command has its own, and docs/exit-codes.md shows both",
}
"""Public classes of several modules, with the reason."""
MODULES = {
    "command": "what each of the smaller commands runs: npucall, npucall-pool, npucall-directory",
    "headers": "of messages on the wire; those of C, and the command that lists them",
    "places": "the contract's, on the wire, and the two kinds of places of the client",
    "reservations": "the device's on the server; on the client one server's and a pool's",
}
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


def classes(path: Path) -> list[str]:
    return re.findall(r"^class (?!_)(\w+)[(:]", path.read_text(encoding="utf-8"), re.MULTILINE)


def at_least(count: int, names: Iterable[str]) -> list[str]:
    return sorted(name for name, found in Counter(names).items() if found >= count)


def all_modules() -> list[Path]:
    return [path for package in PACKAGES for path in modules(package)]


def test_a_public_class_has_a_name_that_no_other_module_has() -> None:
    found = at_least(2, (name for path in all_modules() for name in set(classes(path))))
    assert found == sorted(CLASSES)


def test_no_three_modules_have_one_name() -> None:
    ordinary = (path.stem for path in all_modules() if not path.stem.startswith("__"))
    assert at_least(3, ordinary) == sorted(MODULES)


@pytest.mark.more
def test_no_rooms_need_each_other_in_a_circle_not_even_by_annotations() -> None:
    grimp = pytest.importorskip("grimp")  # it comes with import-linter
    every = grimp.build_graph(*PACKAGES, cache_dir=None)
    for package in PACKAGES:
        rooms = every.find_children(package)
        for room in rooms:
            every.squash_module(room)
        needs = {
            room: (every.find_modules_directly_imported_by(room) & rooms) - {room} for room in rooms
        }
        TopologicalSorter(needs).prepare()  # raises CycleError
