"""``npucall bench``: what is called, in which order, and what is said of the times."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

typer = pytest.importorskip("typer", reason="the extra cli is not installed")
from typer.testing import CliRunner  # noqa: E402  # as typer

from npucall.operators import CATALOGUE  # noqa: E402
from npucall.products import ASCEND_950  # noqa: E402
from npucall.wire.replies import ServerIdentity, Timings  # noqa: E402
from npucall_client.client import connect  # noqa: E402
from npucall_client.commands.bench import _arguments, bench, measured, rank_test  # noqa: E402

if TYPE_CHECKING:
    from typer.testing import Result


def run(*words: str) -> Result:
    app = typer.Typer()
    app.command("bench")(bench)
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def test_the_rank_test_says_how_likely_a_difference_is_by_chance() -> None:
    """The exact value of the first, over all 126 ways to choose four of nine, is 0.040."""
    assert rank_test([1, 2, 3, 4.5], [3, 5, 6, 7, 8]) == pytest.approx(0.0491, abs=1e-4)
    assert rank_test([3, 5, 6, 7, 8], [1, 2, 3, 4.5]) == pytest.approx(0.0491, abs=1e-4)
    assert rank_test(range(100), range(100, 200)) < 1e-30
    assert rank_test([1, 2, 3], [1, 2, 3]) == rank_test([5, 5], [5, 5]) == 1.0


class Fake:
    """A client whose calls take as long as its list says; it notes who is called."""

    def __init__(self, target: str, called: list[str], times: list[int]) -> None:
        self.target, self._called, self._times = target, called, iter(times)
        self._calls = SimpleNamespace(exclusive=SimpleNamespace(key="k" if target == "a" else ""))

    def carrier(self) -> str:
        return "grpc"

    def execute(self, operator: str, /, **given: Any) -> Any:
        assert (operator, given) == ("Exp", {"variant": "", "self": 1})
        self._called.append(self.target)
        timings = Timings(queue_ns=7, run_ns=next(self._times))
        server = ServerIdentity("i", "cann:0", "Ascend910B1")
        return SimpleNamespace(timings=timings, server=server, variant="")


def test_targets_are_called_in_turns_and_the_first_calls_do_not_count() -> None:
    called: list[str] = []
    clients: Any = [
        Fake("a", called, [90, 91, 1, 2, 3, 0]),
        Fake("b", called, [92, 93, 4, 5, 6, 0]),
    ]
    first, second = measured(clients, "Exp", "", {"self": 1}, 2, 3)
    assert "".join(called) == "baab" + "baabba" + "ab"
    assert (first.times, second.times) == ([1, 2, 3], [4, 5, 6])
    assert (first.quantile(0.5), first.quantile(0.5, "queue_ns")) == (2, 7)
    assert (first.reserved, second.reserved) == (True, False)


def test_times_are_told_as_text_as_json_and_as_a_picture(tmp_path: Path) -> None:
    svg = tmp_path / "runs.svg"
    call = ("Softmax", "dim=1", "--shape", "4x8", "--dtype", "f16", "-t", "local:", "--count", "5")
    both = run(*call, "--against", "local:", "--svg", str(svg), "--json")
    told = json.loads(both.stdout)
    assert (both.exit_code, both.stderr) == (0, "")
    assert told["operator"] == "aclnnSoftmax FLOAT16 4x8"
    assert 0 <= told["p_value"] <= 1
    for each in told["runs"]:
        assert len(each["run_ns"]) == 5
        assert min(each["run_ns"]) == each["min_ns"] <= each["median_ns"] <= each["p90_ns"]
        assert each["medians"]["run_ns"] == each["median_ns"]
    circles = ET.parse(svg).getroot().findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 10
    shown = run(*call, "--against", "local:").stdout.splitlines()
    assert shown[0] == "aclnnSoftmax FLOAT16 4x8, 5 calls"
    assert shown[1].split() == ["target", "device", "min", "median", "p90"]
    assert " times as long; p = " in shown[-1]


def test_a_device_that_others_may_use_meanwhile_is_said(npucall_server: str) -> None:
    call = ("Exp", "--shape", "4x8", "-t", npucall_server, "--count", "2")
    assert "the device is not reserved" in run(*call).stderr
    assert run(*call, "--reserve", "30").stderr == ""


def test_every_operator_has_arguments_to_be_measured_with(subtests: pytest.Subtests) -> None:
    with connect("local:") as usual, connect("local:", soc="Ascend950PR_9589") as newest:
        for operator in CATALOGUE:
            with subtests.test(operator.title):
                product, dtypes = next(iter(operator.products.items()))
                client = newest if product is ASCEND_950 else usual
                variant = operator.variant
                given = _arguments(client, operator.name, variant, [], dtypes[0].short, "2x3")
                assert client.execute(operator.name, variant=variant, **given).outputs
