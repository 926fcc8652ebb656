"""``make bench``: what it writes, and its exit code."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import run
from figures import Figure
from goals import GOALS
from plan import Plan, quick

GOAL = GOALS[0]
MISSED, REACHED = 99.0, 0.1


class Given(Plan):
    """The quick plan, of which only the first goal is measured: with this ratio."""

    def __init__(self, ratio: float) -> None:
        super().__init__(**vars(quick()))
        object.__setattr__(self, "ratio", ratio)

    def shortened(self, rounds: int | None, seconds: float | None) -> Plan:
        return self

    def only(self, text: str) -> Plan:
        return self

    def figures(self, say: Callable[[str], object]) -> Iterator[Figure]:
        first = next(series for series in self.series() if series.name == GOAL.name)
        yield Figure(first, self.ratio, 0.1, 3.0)


@pytest.fixture
def exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs it with a ratio and flags, in an empty folder."""

    def of(ratio: float, *flags: str) -> int:
        monkeypatch.setattr(run, "quick", lambda: Given(ratio))
        return run.main(["--folder", str(tmp_path), *flags])

    return of


@pytest.mark.more  # draws by matplotlib, which make test does not install
def test_a_missed_must_is_printed_and_a_failure_with_check_alone(
    exit_code: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert [exit_code(MISSED), exit_code(MISSED, "--check")] == [0, 1]
    assert f"missed: {GOAL.name}" in capsys.readouterr().out
    assert exit_code(REACHED, "--check") == 0
    (written,) = json.loads((tmp_path / "bench.json").read_text())
    assert (written["name"], written["ratio"]) == (GOAL.name, REACHED)
    assert GOAL.name in (tmp_path / "bench.html").read_text()


def test_a_goal_without_a_measurement_ends_it_before_it_measures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unmeasured = dataclasses.replace(quick(), operators=())
    monkeypatch.setattr(run, "quick", lambda: unmeasured)
    assert run.main(["--folder", str(tmp_path)]) == 2
    assert "nothing measures it" in capsys.readouterr().out
