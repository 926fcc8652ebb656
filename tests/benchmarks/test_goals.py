"""The arithmetic of the benchmarks, and that goals, measurements and JSON belong together."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from cases import IN_PLACE, Case, Quantity, Sample, quantities
from figures import MIB, Figure, Series, compared, noise_of, size_text
from goals import FULL_GOALS, GOALS, Goal, Row, faults, rows_of
from page import page
from plan import Plan, full, quick
from report import as_json, summary
from service import in_turn
from tests.rows import each

SPEED = Series("speed", "higher", "GB/s")
LATENCY = Series("latency", "lower", "ms")


def row(ratio: float | None, must: float | None, aim: float | None, series: Series = SPEED) -> Row:
    goal = Goal(series.name, series.better, must, aim, series.unit)
    return Row(Figure(series, ratio, 0.1, 3.0), goal)


def figures_of_all_goals(ratio: float) -> list[Figure]:
    return [
        Figure(Series(goal.name, goal.better, goal.unit), ratio, 0.1, 3.0)
        for goal in reversed(GOALS)
    ]


def test_figures_are_medians_of_rounds_and_noise_half_the_distance_of_quartiles() -> None:
    figure = compared(SPEED, ours=[6.0, 8.0, 9.0], theirs=[1.0, 2.0, 1.0])
    assert (figure.ratio, figure.absolute) == (6.0, 8.0)
    assert noise_of([1.0, 2.0, 3.0, 4.0, 105.0]) == 1.0
    assert noise_of([7.0]) == 0.0


VERDICTS = [
    (SPEED, 0.9, 1.0, 2.0, "missed"),
    (SPEED, 1.0, 1.0, 2.0, "reached, aim missed"),
    (SPEED, 2.0, 1.0, 2.0, "aim reached"),
    (SPEED, 1.0, 1.0, None, "reached"),
    (SPEED, 1.9, None, 2.0, "aim missed"),
    (SPEED, None, 1.0, 2.0, "not available"),
    (LATENCY, 1.2, 1.15, 1.0, "missed"),
    (LATENCY, 1.15, 1.15, 1.0, "reached, aim missed"),
    (LATENCY, 1.0, 1.15, 1.0, "aim reached"),
]


@each(("series", "ratio", "must", "aim", "verdict"), VERDICTS)
def test_a_goal_is_a_bound_in_the_direction_of_its_series(
    series: Series, ratio: float | None, must: float | None, aim: float | None, verdict: str
) -> None:
    judged = row(ratio, must, aim, series)
    assert judged.verdict == verdict
    assert judged.must_missed == (verdict in ("missed", "not available"))


def test_the_summary_counts_and_names_what_is_missed() -> None:
    rows = [row(0.5, 1.0, 2.0), row(3.0, 1.0, 2.0), row(1.0, 1.0, None)]
    assert summary(rows) == "must: 2 of 3 reached; aim: 1 of 2 reached; missed: speed"


@each(("plan", "goals"), [(quick(), GOALS), (full(), FULL_GOALS)])
def test_every_goal_has_a_measurement_of_its_unit_direction_and_client(
    plan: Plan, goals: Sequence[Goal]
) -> None:
    assert faults(list(plan.series()), goals) == []


KEPT = "16 MiB, 1 caller, throughput, kept memory"
FAULTY = [
    ("1 KiB, 1 caller, p50", lambda _: [], "nothing measures it"),
    ("1 KiB, 1 caller, p50", lambda one: [one, replace(one)], "measured twice"),
    (KEPT, lambda one: [replace(one, way="as it comes")], "measured with another client"),
    (
        "1 MiB, 1 caller, throughput",
        lambda one: [replace(one, unit="ms")],
        "measured in ms, higher is better",
    ),
]


@each(("name", "changed", "fault"), FAULTY)
def test_a_goal_that_is_not_measured_as_it_says_is_a_fault(
    name: str, changed: object, fault: str
) -> None:
    planned: list[Series] = []
    for series in quick().series():
        planned += changed(series) if series.name == name else [series]  # type: ignore[operator]
    assert faults(planned) == [f"{name}: {fault}"]


def test_json_has_the_keys_that_were_agreed_and_the_goals_in_their_order() -> None:
    told = json.loads(as_json(rows_of([Figure(SPEED, 2.0), *figures_of_all_goals(5.0)])))
    keys = ["name", "ratio", "better", "must", "aim", "absolute", "unit", "noise"]
    assert all(list(one) == keys for one in told)
    assert [one["name"] for one in told] == [*(goal.name for goal in GOALS), "speed"]
    assert (told[-1]["must"], told[-1]["aim"]) == (None, None)  # it has no goal


@pytest.mark.more  # draws by matplotlib, which make test does not install
def test_the_page_names_every_goal_and_loads_nothing() -> None:
    text = page(rows_of(figures_of_all_goals(5.0)))
    assert all(goal.name in text for goal in GOALS)
    assert not any(tag in text for tag in ("<script", "<link", "<img", "@import", "src="))


def test_whoever_is_first_in_one_round_is_last_in_the_next() -> None:
    assert [list(in_turn("abc", index)) for index in range(2)] == [list("abc"), list("cba")]


@each(("size", "text"), [(1024, "1 KiB"), (65536, "64 KiB"), (MIB, "1 MiB")])
def test_sizes_are_named_in_their_own_unit(size: int, text: str) -> None:
    assert size_text(size) == text


def test_quantities_count_three_inputs_and_an_output_and_the_time_of_both_processes() -> None:
    """Four calls in 2 s, tensors of 16 MiB, 0.5 s of CPU in the client and 1.5 s in the server."""
    case = Case(16 * MIB, 1, (IN_PLACE,))
    sample = Sample(4, 2.0, [0.4, 0.5, 0.5, 0.6], client_cpu=0.5, server_cpu=1.5)
    found: dict[str, Quantity] = {quantity.name: quantity for quantity in quantities(case)}
    assert found["throughput"].of(case, sample) == 4 * 4 * 16 * MIB / 2.0 / 1e9
    assert found["CPU seconds a GB"].of(case, sample) == 2.0 / (4 * 4 * 16 * MIB / 1e9)
