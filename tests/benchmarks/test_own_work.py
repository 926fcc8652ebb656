"""The benchmark of our own work: whether it runs, in two trees."""

import re

import pytest
from own_work import HERE, WAYS, lines


@pytest.mark.more
def test_each_way_has_a_line_with_both_trees_and_their_ratio() -> None:
    told = list(lines(HERE, rounds=2, calls=5))
    assert [line.partition(":")[0] for line in told] == list(WAYS)
    assert all(re.search(r"the other tree .*; ratio \d", line) for line in told)
