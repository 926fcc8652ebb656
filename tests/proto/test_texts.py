"""npucall.texts: what somebody else wrote is cut and escaped, delays are told."""

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.texts import cut, duration, middle_cut, retry_in, shown, size


@given(st.text(), st.integers(0, 60))
def test_a_text_is_cut_to_the_longest_beginning_that_fits(text: str, limit: int) -> None:
    beginnings = [text[:length] for length in range(len(text) + 1)]
    fitting = [start for start in beginnings if len(start.encode()) <= limit]
    assert cut(text, limit) == fitting[-1]


def test_sizes_and_durations_are_short() -> None:
    assert [size(count) for count in (0, 1023, 1536, 2**30, 3 * 2**40, 5000 * 2**40)] == [
        "0 B", "1023 B", "1.5 KiB", "1.0 GiB", "3.0 TiB", "5,000.0 TiB",
    ]  # fmt: skip
    assert [duration(seconds) for seconds in (0.4, 59, 61, 3600, 90061)] == [
        "0 s", "59 s", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip


def test_half_of_a_character_does_not_keep_a_text_from_being_cut() -> None:
    assert cut("\ud800" * 9, 5) == "?????"


@each(
    ("text", "escaped"),
    [
        ("plain é 数", "plain é 数"),
        ("a\x1b[2Jb\r\n", r"a\x1b[2Jb\r\n"),
        ("\u202eevil\u2066\u200f", r"\u202eevil\u2066\u200f"),  # turns the direction of text
        ("\x00\x7f\x9b\u2028", r"\x00\x7f\x9b\u2028"),
        ("\ud800\U000e0001", r"\ud800\U000e0001"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, escaped: str) -> None:
    assert shown(text) == escaped


def test_of_a_long_text_beginning_and_end_are_left() -> None:
    assert middle_cut("a" * 500 + "b" * 500, 10) == "aaaaa\n...\nbbbbb"
    assert middle_cut("short", 10) == "short"


@each(
    ("seconds", "told"),
    [(0.2, "0.2"), (0.05, "0.05"), (1.2345, "1.23"), (30.0, "30"), (1234.56, "1235")],
)
def test_a_delay_is_told_in_a_few_digits(seconds: float, told: str) -> None:
    assert retry_in(seconds) == f"retry in {told} s"
