"""``npucall conform`` and ``npucall replay`` as commands."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import pytest
import typer
from servers import Altered, Failing, client_of
from typer.testing import CliRunner

from npucall.errors import QueueFullError
from npucall_client.conformance import command

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

CASE = "aclnnKlDivBackward/grid/f32-none-4x6-0001"
OTHER = "aclnnKlDivBackward/grid/f32-mean-4x6-0003"


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


@pytest.fixture
def wrong_on_310p(monkeypatch: pytest.MonkeyPatch) -> None:
    """``local:`` answers wrongly where its SoC is an Ascend310P3."""

    def connect(*_: Any, soc: str = "Ascend910B1", **__: Any) -> Any:
        return client_of(Altered(flip if soc == "Ascend310P3" else lambda _: None, soc))

    monkeypatch.setattr(command, "connect", connect)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has no time after its first answer."""
    server = Failing(lambda asked: QueueFullError("queue: full") if asked else None)
    monkeypatch.setattr(command, "connect", lambda *_, **__: client_of(server))


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
    assert f"such as {CASE}" in result.output


def test_a_case_that_could_not_be_judged_lowers_the_verdict_and_ends_with_1(busy: None) -> None:
    result = call("conform", "--case", CASE, "--case", OTHER)
    assert result.exit_code == 1
    assert "Conforms in part" in result.output
    assert "1 case passed, 1 case not judged" in result.output
    assert "1 case should have been judged: " in result.output


def test_a_case_that_could_not_be_judged_is_no_matter_if_it_is_allowed(busy: None) -> None:
    result = call("conform", "--case", CASE, "--case", OTHER, "--allow-skipped")
    assert (result.exit_code, result.exception) == (0, None)
    assert "1 case not judged, as allowed" in result.output


def test_a_run_of_which_no_case_could_be_judged_fails_whatever_is_allowed(busy: None) -> None:
    assert call("conform", "--case", OTHER, "--allow-skipped").exit_code == 0
    assert call("conform", "--case", OTHER, "--allow-skipped").exit_code == 1  # busy from now on


def test_an_interrupted_run_reports_what_it_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Failing(lambda asked: KeyboardInterrupt() if asked else None)
    monkeypatch.setattr(command, "connect", lambda *_, **__: client_of(server))
    path, known = tmp_path / "report.json", tmp_path / "known.json"
    cases = ("--case", CASE, "--case", OTHER)
    kept = ("--json", str(path), "--baseline", str(known), "--write-baseline")
    result = call("conform", *cases, *kept, "--allow-skipped")
    assert result.exit_code == 1
    assert "interrupted" in result.output
    assert "1 case passed, 1 case not judged" in result.output
    assert [each["case"] for each in json.loads(path.read_text())["outcomes"]] == [CASE]
    assert not known.exists()


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


def test_local_has_the_rules_of_the_soc_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    words = ("--soc", "Ascend310P3", "--operator", "Silu", "--block", "grid", "--json", str(path))
    result = call("conform", "local:", *words)
    report = json.loads(path.read_text())
    assert (result.exit_code, report["server"]["product"]) == (0, "Ascend310P")
    assert "bf16" not in {o["dtype"] for o in report["outcomes"] if o["status"] == "passed"}


def test_a_case_that_failed_on_another_soc_is_run_again_there(wrong_on_310p: None) -> None:
    words = ("--soc", "Ascend310P3", "--operator", "KlDivBackward", "--block", "grid", "--quick")
    result = call("conform", "local:", *words)
    assert result.exit_code == 1
    assert "npucall conform local: --soc Ascend310P3 --profile cpu-strict" in result.output


def test_a_bundle_of_another_soc_is_replayed_there(tmp_path: Path, wrong_on_310p: None) -> None:
    case = "aclnnKlDivBackward/grid/f32-none-4x6-0001"
    words = ("--soc", "Ascend310P3", "--case", case, "--save", str(tmp_path))
    assert call("conform", "local:", *words).exit_code == 1
    (folder,) = tmp_path.iterdir()
    assert call("replay", str(folder), "local:", "--soc", "Ascend310P3").exit_code == 1
    assert call("replay", str(folder), "local:").exit_code == 0


def test_local_beside_a_host_has_the_hosts_soc(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    words = ("--soc", "Ascend910A", "--against", "local:", "--operator", "Silu", "--block", "grid")
    assert call("conform", "local:", *words, "--json", str(path)).exit_code == 0
    assert json.loads(path.read_text())["against"]["soc"] == "Ascend910A"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("local:", "--adapter", "torch_npu"), "target: expected none beside an adapter"),
        (("--adapter", "torch"), "adapter: expected one of torch_npu"),
        (("--adapter", "torch_npu", "--soc", "Ascend910A"), "soc: expected none"),
    ],
)
def test_an_adapter_stands_in_place_of_a_target(words: tuple[str, ...], says: str) -> None:
    result = call("conform", *words, "--case", CASE)
    assert says in str(result.exception)
