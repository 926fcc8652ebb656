"""The arithmetic of the benchmarks, and that goals, measurements and JSON belong together."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from cases import IN_PLACE, Case, Quantity, Sample, quantities
from figures import MIB, Figure, Series, compared, noise_of, size_text
from goals import FULL_GOALS, GOALS, Goal, Row, faults, rows_of
from page import page
from plan import Plan, full, quick
from report import as_json, summary
from service import in_turn
from tests.rows import each

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    figure = compared(SPEED, ours=[6.0, 8.0, 9.0], theirs=[1.0, 2.0, 1.0])
    assert figure.ratio == 6.0


def test_the_absolute_figure_is_the_median_of_ours() -> None:
    assert compared(SPEED, ours=[6.0, 8.0, 9.0], theirs=[1.0, 2.0, 1.0]).absolute == 8.0


def test_noise_is_half_the_distance_between_the_quartiles() -> None:
    assert noise_of([1.0, 2.0, 3.0, 4.0, 105.0]) == 1.0


def test_a_single_round_has_no_noise() -> None:
    assert noise_of([7.0]) == 0.0


@each(
    ("ratio", "must", "aim", "verdict"),
    [
        (0.9, 1.0, 2.0, "missed"),
        (1.0, 1.0, 2.0, "reached, aim missed"),
        (2.0, 1.0, 2.0, "aim reached"),
        (1.0, 1.0, None, "reached"),
        (1.9, None, 2.0, "aim missed"),
        (None, 1.0, 2.0, "not available"),
    ],
)
def test_where_more_is_better_a_goal_is_a_lower_bound(
    ratio: float | None, must: float | None, aim: float | None, verdict: str
) -> None:
    assert row(ratio, must, aim).verdict == verdict


@each(
    ("ratio", "verdict"),
    [(1.2, "missed"), (1.15, "reached, aim missed"), (1.0, "aim reached")],
)
def test_where_less_is_better_a_goal_is_an_upper_bound(ratio: float, verdict: str) -> None:
    assert row(ratio, 1.15, 1.0, LATENCY).verdict == verdict


def test_what_is_not_available_misses_its_must() -> None:
    assert row(None, 1.0, None).must_missed


def test_a_missed_aim_misses_no_must() -> None:
    assert not row(1.0, None, 2.0).must_missed


def test_the_summary_counts_and_names_what_is_missed() -> None:
    rows = [row(0.5, 1.0, 2.0), row(3.0, 1.0, 2.0), row(1.0, 1.0, None)]
    assert summary(rows) == "must: 2 of 3 reached; aim: 1 of 2 reached; missed: speed"


@each(("plan", "goals"), [(quick(), GOALS), (full(), FULL_GOALS)])
def test_every_goal_has_a_measurement_of_its_unit_direction_and_client(
    plan: Plan, goals: Sequence[Goal]
) -> None:
    assert faults(list(plan.series()), goals) == []


def test_a_goal_that_nothing_measures_is_a_fault() -> None:
    series = [each for each in quick().series() if each.name != "1 KiB, 1 caller, p50"]
    assert faults(series) == ["1 KiB, 1 caller, p50: nothing measures it"]


def test_a_series_that_is_measured_twice_is_a_fault() -> None:
    planned = list(quick().series())
    twice = replace(planned[0])
    assert faults([twice, *planned]) == [f"{twice.name}: measured twice"]


def test_a_goal_measured_with_another_client_is_a_fault() -> None:
    name = "16 MiB, 1 caller, throughput, kept memory"
    planned = [
        replace(each, way="as it comes") if each.name == name else each for each in quick().series()
    ]
    assert faults(planned) == [f"{name}: measured with another client"]


def test_a_goal_measured_in_another_unit_is_a_fault() -> None:
    name = "1 MiB, 1 caller, throughput"
    planned = [replace(each, unit="ms") if each.name == name else each for each in quick().series()]
    assert faults(planned) == [f"{name}: measured in ms, higher is better"]


def test_json_has_exactly_the_keys_that_were_agreed() -> None:
    objects = json.loads(as_json(rows_of([*figures_of_all_goals(5.0), Figure(SPEED)])))
    keys = ["name", "ratio", "better", "must", "aim", "absolute", "unit", "noise"]
    assert all(list(each) == keys for each in objects)


def test_json_has_the_goals_in_their_order_and_then_the_others() -> None:
    objects = json.loads(as_json(rows_of([Figure(SPEED, 2.0), *figures_of_all_goals(5.0)])))
    assert [each["name"] for each in objects] == [*(goal.name for goal in GOALS), "speed"]


def test_a_figure_without_a_goal_has_neither_must_nor_aim() -> None:
    (only,) = json.loads(as_json(rows_of([Figure(SPEED, 2.0, 0.1, 3.0)])))
    assert (only["must"], only["aim"]) == (None, None)


def test_the_page_names_every_goal_and_loads_nothing() -> None:
    text = page(rows_of(figures_of_all_goals(5.0)))
    assert all(goal.name in text for goal in GOALS)
    assert not any(tag in text for tag in ("<script", "<link", "<img", "@import", "src="))


def test_whoever_is_first_in_one_round_is_last_in_the_next() -> None:
    assert [list(in_turn("abc", index)) for index in range(2)] == [list("abc"), list("cba")]


@each(("size", "text"), [(1024, "1 KiB"), (65536, "64 KiB"), (MIB, "1 MiB")])
def test_sizes_are_named_in_their_own_unit(size: int, text: str) -> None:
    assert size_text(size) == text


def of_sample(name: str) -> float:
    """Four calls in 2 s, tensors of 16 MiB, 0.5 s of CPU in the client and 1.5 s in the server."""
    case = Case(16 * MIB, 1, (IN_PLACE,))
    sample = Sample(4, 2.0, [0.4, 0.5, 0.5, 0.6], client_cpu=0.5, server_cpu=1.5)
    found: dict[str, Quantity] = {quantity.name: quantity for quantity in quantities(case)}
    return found[name].of(case, sample)


def test_throughput_counts_three_inputs_and_an_output() -> None:
    assert of_sample("throughput") == 4 * 4 * 16 * MIB / 2.0 / 1e9


def test_cpu_seconds_a_gigabyte_are_those_of_client_and_server() -> None:
    assert of_sample("CPU seconds a GB") == 2.0 / (4 * 4 * 16 * MIB / 1e9)
