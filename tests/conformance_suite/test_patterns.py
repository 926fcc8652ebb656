"""Patterns: each is found where a fault of its kind was put in, and nowhere by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.rows import each

from npucall_conformance.reporting.elements import elements, ranges
from npucall_conformance.reporting.patterns import WHAT, WHERE, Difference, patterns

FORMS: list[tuple[int, ...]] = [(24,), (40,), (4, 6), (7, 9), (3, 5, 7), (2, 3, 4, 5)]
SHAPES = st.sampled_from(FORMS)
SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=10, deadline=None)


def drawn(shape: tuple[int, ...], seed: int) -> Any:
    """Numbers of both signs, none near zero, all different."""
    random = np.random.default_rng(seed)
    return random.uniform(0.1, 2.0, shape) * random.choice([-1.0, 1.0], shape)


def words(
    expected: Any, found: Any, inputs: dict[str, Any] | None = None, *, fraction: int = 23
) -> list[str]:
    """What is surely said of an output."""
    found = np.asarray(found, np.float64)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    seen = Difference(expected, found, ~same, inputs or {}, fraction)
    return [each.words for each in patterns(seen) if each.sure]


# --- what -----------------------------------------------------------------------------------------


def coarse(expected: Any) -> Any:
    """What BF16 holds of it."""
    bits = expected.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


Change: TypeAlias = Callable[[Any], Any]
CHANGES: list[tuple[str, Change]] = [
    *((f"all elements {n:g} times too large", lambda e, n=n: e * n) for n in (2, 3, 10, 24, 1.25)),
    *((f"all elements {n:g} times too small", lambda e, n=n: e / n) for n in (2, 3, 10, 24, 1.25)),
    ("all elements 3 times too large, sign flipped", lambda e: e * -3),
    ("all elements: sign flipped", lambda e: -e),
    ("wrong elements: sign flipped", lambda e: np.concatenate([-e[:1], e[1:]])),
    ("rounded towards zero", lambda e: e * (1 - 2.0**-9)),
    ("rounded away from zero", lambda e: e * (1 + 2.0**-9)),
    ("no more digits than BF16 has", coarse),
]


def untold(expected: Any, changes: list[tuple[str, Change]]) -> list[str]:
    """What is not said of answers that are changed like this."""
    return [said for said, change in changes if said not in words(expected, change(expected))]


@QUICK
@given(SHAPES, SEEDS)
def test_what_was_done_to_all_elements_is_told(shape: tuple[int, ...], seed: int) -> None:
    expected = drawn(shape, seed)
    assert untold(expected, CHANGES) == []
    assert "no more digits than BF16 has" not in words(expected, coarse(expected), fraction=7)


@QUICK
@given(SHAPES, SEEDS)
def test_what_inputs_explain_is_told_by_their_names(shape: tuple[int, ...], seed: int) -> None:
    expected, other = drawn(shape, seed), drawn(shape, seed + 1)
    text = "as many times too large as self has elements"
    assert text in words(expected, expected * expected.size, {"self": expected})
    inputs = {"grad_output": drawn(shape, seed + 2), "self": other}
    assert "the input self unchanged" in words(expected, other, inputs)
    assert "the input grad_output unchanged" not in words(expected, other, inputs)


@each(
    ("found", "expected", "said"),
    [
        (0.0, 1.0, "zeros instead of values"),
        (0.0, np.nan, "zeros instead of NaN"),
        (np.nan, 1.0, "NaN instead of numbers"),
        (1.0, np.nan, "numbers instead of NaN"),
        (np.inf, 1.0, "infinities instead of numbers"),
        (5.0, np.inf, "numbers instead of infinities"),
        (1.0, 0.0, "numbers instead of zeros"),
    ],
)
def test_what_stands_in_place_of_what_is_told(found: float, expected: float, said: str) -> None:
    truth = drawn((4, 6), 1)
    truth[1] = truth[1] if expected == 1.0 else expected
    answer = truth.copy()
    answer[1] = found
    assert said in words(truth, answer)


# --- where ----------------------------------------------------------------------------------------


def altered(expected: Any, there: Any, seed: int) -> Any:
    """Other numbers at these places."""
    return np.where(there, drawn(expected.shape, seed + 7) * 31, expected)


@QUICK
@given(
    SHAPES, SEEDS,
    st.sampled_from([(np.nan, "is NaN"), (np.inf, "is infinite"), (0.0, "is zero"), (4.0, "is 4")]),
)  # fmt: skip
def test_an_input_that_the_wrong_elements_share_is_told(
    shape: tuple[int, ...], seed: int, special: tuple[float, str]
) -> None:
    number, said = special
    expected, given_, other = drawn(shape, seed), drawn(shape, seed + 1), drawn(shape, seed + 2)
    there = np.zeros(given_.size, bool)
    there[np.random.default_rng(seed).choice(given_.size, 3, replace=False)] = True
    there = there.reshape(shape)
    given_[there] = number
    found = altered(expected, there, seed)
    told = words(expected, found, {"grad_output": given_, "self": other})
    assert f"only where grad_output {said}" in told
    assert f"only where self {said}" not in told


@QUICK
@given(SHAPES, SEEDS)
def test_a_broadcast_input_is_seen_in_the_outputs_shape(shape: tuple[int, ...], seed: int) -> None:
    expected, row = drawn(shape, seed), drawn(shape[-1:], seed + 1)
    row[-1] = np.nan
    there = np.broadcast_to(np.isnan(row), shape)
    assume(there.sum() > 1)
    told = words(expected, altered(expected, there, seed), {"weight": row})
    assert "only where weight is NaN" in told


@QUICK
@given(SHAPES, SEEDS)
def test_large_inputs_and_a_sign_are_told(shape: tuple[int, ...], seed: int) -> None:
    expected, given_ = drawn(shape, seed), drawn(shape, seed + 1)
    bound = np.sort(given_.reshape(-1))[-4]
    said = f"only where self is at least {bound:.6g}"
    assert said in words(expected, altered(expected, given_ >= bound, seed), {"self": given_})
    assume((given_ < 0).mean() < 0.6 and (given_ < 0).sum() > 8)
    told = words(expected, altered(expected, given_ < 0, seed), {"self": given_})
    assert "only where self is negative" in told


# --- all of them ----------------------------------------------------------------------------------


def test_of_numbers_wrong_by_chance_hardly_ever_something_is_sure() -> None:
    """A pattern is sure if it is unlikely, not impossible: the draws are always the same."""
    sure = []
    for seed in range(600):
        shape = FORMS[seed % len(FORMS)]
        random = np.random.default_rng(seed)
        expected, given_ = drawn(shape, seed), drawn(shape, seed + 1)
        there = random.random(shape) < 0.5
        there.reshape(-1)[[0, 1, 2, -1]] = True
        found = np.where(there, random.normal(0, 50, shape), expected)
        sure += words(expected, found, {"self": given_})
    assert sure == []


@QUICK
@given(SHAPES, SEEDS, st.sampled_from([*WHAT, *WHERE]))
def test_no_pattern_changes_what_it_looks_at(
    shape: tuple[int, ...], seed: int, look: Callable[[Difference], Any]
) -> None:
    arrays = [drawn(shape, seed + i) for i in range(3)]
    kept = [array.copy() for array in arrays]
    expected, found, given_ = arrays
    list(look(Difference(expected, found, found != expected, {"self": given_})))
    assert all((a == b).all() for a, b in zip(arrays, kept, strict=True))


def test_a_single_element_shows_nothing_for_sure_but_does_not_contradict() -> None:
    seen = Difference(np.array(2.0), np.array(6.0), np.array(True))
    found = {each.key: each.sure for each in patterns(seen)}
    assert found["3 times too large"] is False


# --- ranges ---------------------------------------------------------------------------------------


@each(
    ("numbers", "text"),
    [
        ([5], "5"),
        ([0, 1, 2, 3], "0-3"),
        ([0, 1, 2, 7], "0-2, 7"),
        ([1, 3, 5, 7, 9], "1-9 by 2"),
        ([2, 9], "2, 9"),
        ([98_304, 98_305], "98,304-98,305"),
        ([0, 5, 6, 7, 100], "0, 5-7, 100"),
    ],
)
def test_numbers_become_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


@QUICK
@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranges_name_every_number_and_no_other(numbers: set[int]) -> None:
    text = ranges(sorted(numbers))
    assume("more" not in text)
    named: set[int] = set()
    for part in text.split(", "):
        span, _, step = part.partition(" by ")
        first, _, last = span.partition("-")
        named |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    assert named == numbers


def test_of_very_many_ranges_the_first_are_named() -> None:
    assert ranges([i * i for i in range(100)]).endswith("and more up to 9,801")


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
