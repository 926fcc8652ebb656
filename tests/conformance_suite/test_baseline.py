"""A baseline hides exactly the deviations that it names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import typer
from servers import Altered, client_of
from typer.testing import CliRunner

from npucall_client.conformance import command
from npucall_client.conformance.reporting.baseline import Deviation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

CASE = "aclnnKlDivBackward/grid/f32-none-4x6-0001"
OTHER = "aclnnKlDivBackward/grid/f32-mean-4x6-0003"


def flipped(element: int) -> Callable[[bytearray], None]:
    """Gives one element of every output the other sign."""

    def change(storage: bytearray) -> None:
        storage[4 * element + 3] ^= 0x80

    return change


def right(_: bytearray) -> None:
    """Changes nothing."""


class Server:
    """What ``npucall conform`` is asked about; ``change`` is what its server does wrong."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.change: Callable[[bytearray], None] = flipped(7)
        self.baseline = folder / "baseline.json"
        self._report = folder / "report.json"
        monkeypatch.setattr(command, "connect", self._connect)

    def _connect(self, *_: Any, **__: Any) -> Any:
        return client_of(Altered(self.change))

    def conform(self, *words: str, cases: tuple[str, ...] = (CASE,)) -> Result:
        app = typer.Typer()
        app.command("conform")(command.conform)
        asked = [word for case in cases for word in ("--case", case)]
        options = ["--baseline", str(self.baseline), "--json", str(self._report)]
        runner = CliRunner()
        return runner.invoke(app, [*asked, *options, *words], env={"COLUMNS": "200"})

    @property
    def report(self) -> Any:
        return json.loads(self._report.read_text())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """A server whose element 7 has the wrong sign, which its baseline says."""
    found = Server(monkeypatch, tmp_path)
    assert found.conform("--write-baseline").exit_code == 0
    return found


def test_a_deviation_that_the_baseline_names_is_accepted_and_reported(server: Server) -> None:
    result = server.conform()
    assert result.exit_code == 0
    assert "accepted 1 deviation that the baseline names" in result.output
    assert "0 of 1 case passed, 1 known deviation of the baseline" in result.output
    (outcome,) = server.report["outcomes"]
    assert (outcome["status"], server.report["verdict"]) == ("accepted", "conforms")
    assert outcome["problems"]


def test_another_element_of_the_same_case_is_not_accepted(server: Server) -> None:
    server.change = flipped(8)
    result = server.conform()
    assert result.exit_code == 1
    assert "not as the baseline says: expected elements [1, 1], 1 of 24 elements" in result.output


def test_the_same_deviation_of_another_case_is_not_accepted(server: Server) -> None:
    result = server.conform(cases=(CASE, OTHER))
    assert result.exit_code == 1
    states = {each["case"]: each["status"] for each in server.report["outcomes"]}
    assert states == {CASE: "accepted", OTHER: "failed"}


def test_a_deviation_that_grew_is_not_accepted(server: Server) -> None:
    def grown(storage: bytearray) -> None:
        storage[4 * 7 + 3] ^= 0xC0

    server.change = grown
    assert server.conform().exit_code == 1
    assert server.report["outcomes"][0]["problems"][-1].startswith("not as the baseline says")


def test_a_deviation_that_is_gone_is_to_be_removed(server: Server) -> None:
    server.change = right
    result = server.conform()
    assert result.exit_code == 0
    assert f"the baseline names {CASE}, which deviates no more: remove it" in result.output
    assert server.report["baseline"]["vanished"] == [CASE]


def test_a_baseline_that_is_written_anew_drops_what_is_gone(server: Server) -> None:
    server.change = right
    server.conform("--write-baseline")
    assert json.loads(server.baseline.read_text())["deviations"] == {}


def test_a_filtered_run_leaves_what_is_known_of_other_cases(server: Server) -> None:
    server.change = flipped(3)
    server.conform("--write-baseline", cases=(OTHER,))
    assert set(json.loads(server.baseline.read_text())["deviations"]) == {CASE, OTHER}


def test_a_baseline_that_is_missing_is_no_empty_one(server: Server) -> None:
    server.baseline.unlink()
    result = server.conform()
    assert isinstance(result.exception, ValueError)
    assert "--write-baseline makes it" in str(result.exception)


def test_a_baseline_cannot_be_written_nowhere() -> None:
    app = typer.Typer()
    app.command("conform")(command.conform)
    result = CliRunner().invoke(app, ["local:", "--case", CASE, "--write-baseline"])
    assert "expected --baseline FILE" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--seed", "7"), "expected seed 7, found 0"),
        (("--profile", "cann-standard"), "expected profile cann-standard, found cpu-strict"),
    ],
)
def test_a_baseline_of_other_data_is_refused(
    server: Server, words: tuple[str, ...], says: str
) -> None:
    assert says in str(server.conform(*words).exception)


def test_a_baseline_of_another_product_is_refused(server: Server) -> None:
    saved = json.loads(server.baseline.read_text())
    saved["server"]["soc"] = "Ascend310P3"
    server.baseline.write_text(json.dumps(saved))
    assert "expected soc Ascend910B1, found Ascend310P3" in str(server.conform().exception)


def test_another_version_of_the_server_is_told(server: Server) -> None:
    saved = json.loads(server.baseline.read_text())
    saved["server"]["version"] = "0.0.1"
    server.baseline.write_text(json.dumps(saved))
    result = server.conform()
    assert result.exit_code == 0
    assert "the baseline is of version 0.0.1" in result.output


def test_rounding_of_the_worst_error_is_no_change() -> None:
    known = Deviation(("out: wrong numbers",), "out", "[3]", 1.0, 2.0, 100.0)
    assert known.differs(Deviation(("out: wrong numbers",), "out", "[3]", 1.0, 2.0, 104.0)) == ""
    assert known.differs(Deviation(("out: wrong numbers",), "out", "[3]", 1.0, 2.0, 120.0))
