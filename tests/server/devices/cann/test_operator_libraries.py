"""Where an operator's functions are found: custom packages first, in CANN's own order."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from npucall.declare.declaration import prototype_only
from npucall_server.devices.cann.operators import CUSTOM_LIBRARY, OpApi, load_priority
from npucall_server.npu_settings import AscendPaths

from .compiled import PHASES, compiled, library

if TYPE_CHECKING:
    from collections.abc import Sequence

X = prototype_only("aclnnX", (), "")
STRANGER = 4321


class StatusError(Exception):
    """A function answered this status: the number of its library."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function} {status}")
        self.status = status


def package(folder: Path, *functions: str, answer: int = 0) -> Path:
    """A custom package whose library has these functions."""
    return library(folder / CUSTOM_LIBRARY, *functions, answer=answer).parents[2]


def host(custom: Sequence[Path] = (), opp: Path | None = None, home: Path | None = None) -> OpApi:
    return OpApi(AscendPaths(home, opp, tuple(custom)), StatusError, lambda: None)


def found(libraries: OpApi, name: str = "aclnnX") -> Path | None:
    where = libraries.find(name)
    return None if where is None else Path(where[0].path)


def configure(opp: Path, text: str) -> Path:
    (opp / "vendors").mkdir(parents=True, exist_ok=True)
    (opp / "vendors/config.ini").write_bytes(text.encode())
    return opp


def test_the_first_package_of_the_environment_wins(tmp_path: Path) -> None:
    first, second = package(tmp_path / "b"), package(tmp_path / "a")
    assert found(host([first, second])) == first / CUSTOM_LIBRARY
    assert found(host([second, first])) == second / CUSTOM_LIBRARY


def test_a_package_without_library_or_operator_is_passed_over(tmp_path: Path) -> None:
    other, has = package(tmp_path / "other", "aclnnY"), package(tmp_path / "has")
    assert found(host([tmp_path / "missing", other, has])) == has / CUSTOM_LIBRARY


def test_packages_of_the_environment_come_before_those_of_the_configuration(
    tmp_path: Path,
) -> None:
    vendor = package(tmp_path / "opp/vendors/a")
    opp = configure(tmp_path / "opp", "load_priority=a\n")
    own = package(tmp_path / "own")
    assert found(host([own], opp)) == own / CUSTOM_LIBRARY
    assert found(host([], opp)) == vendor / CUSTOM_LIBRARY


def test_vendors_count_in_the_order_of_the_configuration(tmp_path: Path) -> None:
    vendors = {name: package(tmp_path / "vendors" / name) for name in ("a", "b", " b")}
    for order, first in {"b,a": "b", "a,b": "a", " b,a": " b", "missing,,a": "a"}.items():
        opp = configure(tmp_path, f"load_priority={order}\n")
        assert found(host([], opp)) == vendors[first] / CUSTOM_LIBRARY


def test_a_vendor_that_the_configuration_does_not_name_is_not_looked_at(tmp_path: Path) -> None:
    package(tmp_path / "vendors/a")
    assert found(host([], configure(tmp_path, ""))) is None
    assert found(host([], tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("text", "vendors"),
    [
        ("load_priority=a,b\n", ["a", "b"]),
        ("# text\nload_priority=a", ["a"]),
        ("load_priority=a\nload_priority=b\n", ["a"]),
        (" load_priority=a\n", []),
        ("load_priority =a\n", []),
        ("LOAD_PRIORITY=a\n", []),
        ("xload_priority=a\n", []),
        ("load_priority= a, b \n", [" a", " b "]),
        ("load_priority=\nload_priority=b\n", []),
        ("load_priority=a\r\n", ["a\r"]),
        ("# text\x0bload_priority=a\n", []),
        ("load_priority=a=b\n", ["a=b"]),
        ("", []),
    ],
)
def test_the_configuration_counts_to_the_letter(
    tmp_path: Path, text: str, vendors: list[str]
) -> None:
    assert load_priority(configure(tmp_path, text) / "vendors") == vendors


def test_types_of_an_operator_are_not_those_of_whoever_uses_its_library_too(
    tmp_path: Path,
) -> None:
    libraries = host([package(tmp_path)])
    where = libraries.find("aclnnX")
    assert where is not None
    mine = where[0].find("aclnnX")
    mine.argtypes = ()
    function = libraries.function(X)
    assert function is not None
    function.execute(None, 0, None, None)
    assert mine.argtypes == ()


@pytest.mark.parametrize("half", PHASES)
def test_both_phases_come_from_the_first_library_that_has_both(tmp_path: Path, half: str) -> None:
    one = package(tmp_path / "half", half, answer=1)
    both = package(tmp_path / "both", answer=2)
    function = host([one, both]).function(X)
    assert function is not None
    assert (function.library, function.custom) == (str(both / CUSTOM_LIBRARY), True)
    for phase in (
        lambda: function.get_workspace_size(None, None),
        lambda: function.execute(0, 0, 0, 0),
    ):
        with pytest.raises(StatusError) as caught:
            phase()
        assert caught.value.status == 2


def test_an_operator_of_which_no_library_has_both_phases_is_not_there(tmp_path: Path) -> None:
    halves = [package(tmp_path / half, half) for half in PHASES]
    assert host(halves).function(X) is None


def test_what_a_package_is_linked_with_is_not_its_own(tmp_path: Path) -> None:
    built_in = library(tmp_path / "home/lib64/libopapi_linked.so")
    compiled(tmp_path / "custom" / CUSTOM_LIBRARY, "int aclnnY(void) { return 0; }", built_in)
    libraries = host([tmp_path / "custom"], home=tmp_path / "home")
    where = libraries.find("aclnnX")
    assert where is not None
    assert (Path(where[0].path).name, where[1]) == ("libopapi_linked.so", False)


def test_a_library_that_cannot_be_opened_is_noted_and_passed_over(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / CUSTOM_LIBRARY
    broken.parent.mkdir(parents=True)
    broken.write_text("no library")
    has = package(tmp_path / "has")
    libraries = host([tmp_path / "broken", has])
    assert found(libraries) == has / CUSTOM_LIBRARY
    (note,) = libraries.notes
    assert note.startswith(f"{broken}: cannot be opened: ")


@pytest.mark.parametrize(
    ("process", "owner", "taken", "note"),
    [
        (0, 0, True, ""),
        (0, STRANGER, False, "passed over, as CANN does"),
        (1000, 1000, True, ""),
        (1000, 0, True, "taken all the same"),
        (1000, STRANGER, False, "passed over, as CANN does"),
    ],
)
def test_the_owner_of_a_package_decides(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    process: int,
    owner: int,
    taken: bool,
    note: str,
) -> None:
    libraries = host([package(tmp_path)])
    own(monkeypatch, process, {tmp_path / CUSTOM_LIBRARY: owner})
    assert found(libraries) == (tmp_path / CUSTOM_LIBRARY if taken else None)
    assert found(libraries, "aclnnX") == (tmp_path / CUSTOM_LIBRARY if taken else None)
    said = f"{tmp_path / CUSTOM_LIBRARY}: owned by user {owner}, this process runs as {process}"
    assert libraries.notes == ([f"{said}; {note}"] if note else [])


def test_the_next_package_is_taken_where_the_owner_of_the_first_is_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange, good = package(tmp_path / "strange"), package(tmp_path / "good")
    own(monkeypatch, 1000, {strange / CUSTOM_LIBRARY: STRANGER, good / CUSTOM_LIBRARY: 1000})
    assert found(host([strange, good])) == good / CUSTOM_LIBRARY


def test_owners_do_not_matter_where_the_operator_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = host([package(tmp_path)])
    own(monkeypatch, 1000, {tmp_path / CUSTOM_LIBRARY: STRANGER})
    assert found(libraries, "aclnnZ") is None
    assert libraries.notes == []


def own(monkeypatch: pytest.MonkeyPatch, process: int, owners: dict[Path, int]) -> None:
    """Lets this process and some files belong to others."""
    stat = os.stat

    def told(path: str | os.PathLike[str], **options: object) -> object:
        if isinstance(path, (str, Path)) and Path(path) in owners:
            real = stat(path, **options)
            return SimpleNamespace(
                st_uid=owners[Path(path)],
                st_mode=real.st_mode,
                st_ino=real.st_ino,
                st_dev=real.st_dev,
            )
        return stat(path, **options)

    monkeypatch.setattr(os, "geteuid", lambda: process)
    monkeypatch.setattr(os, "stat", told)
