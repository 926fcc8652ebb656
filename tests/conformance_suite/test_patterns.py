"""Patterns: each is found where a fault of its kind was put in, and nowhere by chance."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.rows import each

from npucall_conformance.reporting.patterns import elements, patterns

FORMS: list[tuple[int, ...]] = [(24,), (40,), (4, 6), (7, 9), (3, 5, 7), (2, 3, 4, 5)]


def drawn(shape: tuple[int, ...], seed: int) -> Any:
    """Numbers of both signs, none near zero, all different."""
    random = np.random.default_rng(seed)
    return random.uniform(0.1, 2.0, shape) * random.choice([-1.0, 1.0], shape)


def words(
    expected: Any, found: Any, inputs: dict[str, Any] | None = None, *, fraction: int = 23
) -> tuple[str, ...]:
    """What is said of an output."""
    found = np.asarray(found, np.float64)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return patterns(expected, found, ~same, inputs or {}, fraction)


def coarse(expected: Any) -> Any:
    """What BF16 holds of it."""
    bits = expected.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def of_first(number: float) -> Callable[[Any], Any]:
    """Some elements are this number."""
    return lambda e: np.where(np.arange(e.size).reshape(e.shape) < 5, number, e)


CHANGES: list[tuple[str, Callable[[Any], Any]]] = [
    *((f"{n:g} times too large", lambda e, n=n: e * n) for n in (2, 3, 10, 24, 1.25)),
    *((f"{n:g} times too small", lambda e, n=n: e / n) for n in (2, 3, 10, 24, 1.25)),
    ("3 times too large, sign flipped", lambda e: e * -3),
    ("sign flipped", lambda e: -e),
    ("sign flipped", lambda e: np.concatenate([-e[:1], e[1:]])),
    ("rounded towards zero", lambda e: e * (1 - 2.0**-9)),
    ("rounded away from zero", lambda e: e * (1 + 2.0**-9)),
    ("no more digits than BF16 has", coarse),
    ("zeros instead of numbers", of_first(0.0)),
    ("NaN instead of numbers", of_first(np.nan)),
    ("infinities instead of numbers", of_first(np.inf)),
]


@each("shape", FORMS)
@each(("said", "change"), CHANGES)
def test_what_was_done_to_elements_is_told(
    shape: tuple[int, ...], said: str, change: Callable[[Any], Any]
) -> None:
    expected = drawn(shape, 3)
    assert said in words(expected, change(expected))


def test_numbers_in_place_of_others_and_digits_that_a_dtype_has_anyway() -> None:
    truth = drawn((4, 6), 1)
    assert "numbers instead of NaN" in words(of_first(np.nan)(truth), truth)
    assert "numbers instead of zeros" in words(of_first(0.0)(truth), truth)
    assert "no more digits than BF16 has" not in words(truth, coarse(truth), fraction=7)


def test_what_inputs_explain_is_told_by_their_names() -> None:
    expected, grad, other = (drawn((3, 5, 7), seed) for seed in range(3))
    text = "as many times too large as self has elements"
    assert text in words(expected, expected * expected.size, {"self": expected})
    told = words(expected, other, {"grad_output": grad, "self": other})
    assert "the input self unchanged" in told
    assert "the input grad_output unchanged" not in told


@each(
    ("said", "place"),
    [
        ("is NaN", np.nan),
        ("is infinite", np.inf),
        ("is zero", 0.0),
        ("is 4", 4.0),
        ("is large", 9.0),
        ("is small", -9.0),
    ],
)
def test_an_input_that_the_wrong_elements_share_is_told(said: str, place: float) -> None:
    expected, other = drawn((7, 9), 1), drawn((7, 9), 2)
    row = drawn((9,), 3)
    row[-1] = place
    found = np.where(np.arange(9) == 8, drawn((7, 9), 5) * 31, expected)
    told = words(expected, found, {"weight": row, "self": other})
    assert f"only where weight {said}" in told
    assert f"only where self {said}" not in told


def test_of_numbers_wrong_by_chance_hardly_ever_something_is_told() -> None:
    """A pattern is told if it is unlikely, not impossible: the draws are always the same."""
    told = []
    for seed in range(300):
        shape = FORMS[seed % len(FORMS)]
        random = np.random.default_rng(seed)
        expected, given = drawn(shape, seed), drawn(shape, seed + 1)
        there = random.random(shape) < 0.5
        there.reshape(-1)[[0, 1, 2, -1]] = True
        told += words(
            expected, np.where(there, random.normal(0, 50, shape), expected), {"x": given}
        )
    assert told == []


def test_a_single_element_shows_no_factor() -> None:
    assert words(np.array(2.0), np.array(6.0)) == ()


@each(
    ("places", "text"),
    [
        (range(24), "all 24 elements"),
        ((8, 14), "[1-2, 2], 2 of 24 elements"),
        (range(0, 24, 2), "[:, 0, 2, 4], 12 of 24 elements"),
        ((0, 8, 9), "in flat order 0, 8-9, 3 of 24 elements"),  # they are no block
    ],
)
def test_the_elements_of_a_mask_are_told_by_dimension(places: Sequence[int], text: str) -> None:
    wrong = np.zeros((4, 6), bool)
    wrong.reshape(-1)[list(places)] = True
    assert elements(wrong) == text


def test_of_very_many_elements_the_first_are_named() -> None:
    wrong = np.zeros(98_306, bool)
    wrong[[i * i for i in range(100)]] = wrong[98_304:] = True
    assert elements(wrong) == (
        "[0-1, 4, 9, 16, 25, 36, 49, 64 and more up to 98,305], 102 of 98,306 elements"
    )
