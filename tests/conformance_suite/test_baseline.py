"""A baseline hides exactly the deviations that it names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.rows import each

from npucall_conformance import conform_command as module
from npucall_conformance.reporting import baseline

from .servers import Altered, client_of, command

if TYPE_CHECKING:
    from click.testing import Result

CASE = "aclnnKlDivBackward/grid/f32-none-4x6-0001"
OTHER = "aclnnKlDivBackward/grid/f32-mean-4x6-0003"


def flipped(element: int, bits: int = 0x80) -> Callable[[bytearray], None]:
    """Gives one element of every output the other sign."""

    def change(storage: bytearray) -> None:
        storage[4 * element + 3] ^= bits

    return change


class FakeServer:
    """What ``npucall conform`` is asked about; ``change`` is what its server does wrong."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.change: Callable[[bytearray], None] = flipped(7)
        self.baseline, self._report = folder / "baseline.json", folder / "report.json"
        monkeypatch.setattr(module, "connect", lambda *_, **__: client_of(Altered(self.change)))

    def conform(self, *words: str, cases: tuple[str, ...] = (CASE,)) -> Result:
        asked = [word for case in cases for word in ("--case", case)]
        options = ["--baseline", str(self.baseline), "--json", str(self._report)]
        return command("conform", *asked, *options, *words)

    @property
    def report(self) -> Any:
        return json.loads(self._report.read_text())

    @property
    def deviations(self) -> Any:
        return json.loads(self.baseline.read_text())["deviations"]

    def says(self, **facts: str) -> None:
        """The baseline is of another server."""
        saved = json.loads(self.baseline.read_text())
        saved["server"].update(facts)
        self.baseline.write_text(json.dumps(saved))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeServer:
    """A server whose element 7 has the wrong sign, which its baseline says."""
    found = FakeServer(monkeypatch, tmp_path)
    assert found.conform("--write-baseline").exit_code == 0
    return found


def test_a_deviation_that_the_baseline_names_is_accepted_and_reported(server: FakeServer) -> None:
    result = server.conform()
    assert result.exit_code == 0
    assert "accepted 1 deviation that the baseline names" in result.output
    assert "0 of 1 case passed, 1 known deviation of the baseline" in result.output
    (outcome,) = server.report["outcomes"]
    assert (outcome["status"], server.report["verdict"]) == ("accepted", "conforms")
    assert outcome["problems"]


@each(
    ("change", "says"),
    [
        (flipped(8), "expected elements out [1, 1], 1 of 24 elements"),
        (flipped(7, 0xC0), ""),  # it grew
    ],
)
def test_another_deviation_of_the_same_case_is_not_accepted(
    server: FakeServer, change: Callable[[bytearray], None], says: str
) -> None:
    server.change = change
    result = server.conform()
    assert result.exit_code == 1
    last = server.report["outcomes"][0]["problems"][-1]
    assert last.startswith("not as the baseline says: ")
    assert says in last


def test_the_same_deviation_of_another_case_is_not_accepted(server: FakeServer) -> None:
    assert server.conform(cases=(CASE, OTHER)).exit_code == 1
    states = {each["case"]: each["status"] for each in server.report["outcomes"]}
    assert states == {CASE: "accepted", OTHER: "failed"}


def test_a_deviation_that_is_gone_is_named_and_a_new_baseline_drops_it(server: FakeServer) -> None:
    server.change = lambda _: None
    result = server.conform()
    assert result.exit_code == 0
    assert f"the baseline names {CASE}, which deviates no more: remove it" in result.output
    assert server.report["baseline"]["vanished"] == [CASE]
    server.conform("--write-baseline")
    assert server.deviations == {}


def test_a_filtered_run_leaves_what_is_known_of_other_cases(server: FakeServer) -> None:
    server.change = flipped(3)
    server.conform("--write-baseline", cases=(OTHER,))
    assert set(server.deviations) == {CASE, OTHER}


def test_a_baseline_that_is_missing_is_no_empty_one(server: FakeServer) -> None:
    server.baseline.unlink()
    result = server.conform()
    assert isinstance(result.exception, ValueError)
    assert "--write-baseline makes it" in str(result.exception)


@each(
    ("words", "says"),
    [
        (("--seed", "7"), "expected seed 7, found 0"),
        (("--profile", "cann-standard"), "expected profile cann-standard, found cpu-strict"),
    ],
)
def test_another_baseline_is_refused(server: FakeServer, words: tuple[str, ...], says: str) -> None:
    assert says in str(server.conform(*words).exception)


def test_another_version_of_the_server_is_told_and_another_product_refused(
    server: FakeServer,
) -> None:
    server.says(version="0.0.1")
    result = server.conform()
    assert result.exit_code == 0
    assert "the baseline is of version 0.0.1" in result.output
    server.says(soc="Ascend310P3")
    assert "expected soc Ascend910B1, found Ascend310P3" in str(server.conform().exception)


def test_rounding_of_the_worst_error_is_no_change() -> None:
    known, near, far, infinite = (
        {"findings": ["out: wrong numbers"], "answer": "", "elements": "out [3]", "ulp": worst}
        for worst in ("100.0", "104.0", "120.0", "inf")
    )
    assert baseline._change(known, near) == baseline._change(infinite, infinite) == ""
    assert baseline._change(known, far)
    assert baseline._change(known, infinite)
