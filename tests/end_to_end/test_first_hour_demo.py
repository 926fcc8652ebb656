"""The first hour with ``make demo``: its picture in README can be read."""

from __future__ import annotations

import re
from pathlib import Path

PICTURE = Path(__file__).parents[2] / "docs" / "demo.svg"
PAGE = 830
"""Pixels of a picture in README, as code hosts show it."""
LEAST = 13
"""Pixels of letters that can be read."""


def test_the_letters_of_the_demos_picture_can_be_read_at_the_width_of_a_page() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    (width,) = re.findall(r'viewBox="0 0 ([\d.]+) ', text)
    (size,) = set(re.findall(r"-matrix \{[^}]*font-size: (\d+)px", text))
    assert int(size) * PAGE / float(width) >= LEAST
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
