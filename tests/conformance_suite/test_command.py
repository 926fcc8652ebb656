"""``npucall conform`` and ``npucall replay`` as commands."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import pytest
import typer
from servers import Altered, client_of
from typer.testing import CliRunner

from npucall_client.conformance import command

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

CASE = "aclnnKlDivBackward/grid/f32-none-4x6-0001"


def call(*words: str) -> Result:
    app = typer.Typer()
    app.command("conform")(command.conform)
    app.command("replay")(command.replay)
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def flip(storage: bytearray) -> None:
    storage[-1] ^= 0x80


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the target is, a server that answers wrongly."""

    def connect(*_: Any, **__: Any) -> Any:
        return client_of(Altered(flip))

    monkeypatch.setattr(command, "connect", connect)


@pytest.mark.parametrize("name", ["conform", "replay"])
def test_the_subcommands_are_entry_points(name: str) -> None:
    (point,) = entry_points(group="npucall.commands", name=name)
    assert point.load() is getattr(command, name)


def test_a_case_that_passes_ends_with_0() -> None:
    result = call("conform", "local:", "--case", CASE)
    assert (result.exit_code, result.exception) == (0, None)
    assert "1/1" in result.output


def test_a_case_that_fails_ends_with_1_and_is_named(wrong: None) -> None:
    result = call("conform", "local:", "--case", CASE)
    assert result.exit_code == 1
    assert f"failed {CASE}" in result.output


def test_list_prints_ids_and_runs_nothing(wrong: None) -> None:
    result = call("conform", "--list", "--operator", "KlDivBackward", "--block", "grid")
    assert (result.exit_code, result.exception) == (0, None)
    assert CASE in result.output.splitlines()
    assert len(result.output.splitlines()) == 96  # 4 shapes, 3 dtypes, 4 reductions, 2 log_target


def test_reports_are_written_beside_each_other(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"report.{name}" for name in ("json", "junit")}
    options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    assert call("conform", "local:", "--case", CASE, *options).exit_code == 0
    assert json.loads(paths["json"].read_text())["outcomes"][0]["case"] == CASE
    assert CASE in paths["junit"].read_text()


def test_a_failing_case_is_saved_and_replayed(tmp_path: Path, wrong: None) -> None:
    assert call("conform", "--case", CASE, "--save", str(tmp_path)).exit_code == 1
    (folder,) = tmp_path.iterdir()
    replayed = call("replay", str(folder))
    assert replayed.exit_code == 1
    assert f"{CASE}: failed" in replayed.output


def test_a_mended_server_passes_the_bundle(
    tmp_path: Path, wrong: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("conform", "--case", CASE, "--save", str(tmp_path))
    monkeypatch.undo()
    (folder,) = tmp_path.iterdir()
    assert call("replay", str(folder), "local:").exit_code == 0


def test_two_servers_are_compared() -> None:
    result = call("conform", "local:", "--against", "local:", "--case", CASE)
    assert (result.exit_code, result.exception) == (0, None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--block", "nonsense"), "block"),
        (("--dtype", "f99"), "dtype"),
        (("--profile", "none"), "profile"),
        (("--case", "aclnnNothing/grid/0"), "filters"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(words: tuple[str, ...], says: str) -> None:
    result = call("conform", "local:", *words)
    assert isinstance(result.exception, ValueError)
    assert says in str(result.exception)
