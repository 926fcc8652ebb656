"""Every default of every operator: a server that takes something else is caught, where it shows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.more import every_twelfth

from npucall.dtypes import DOUBLE, FLOAT
from npucall.operators import CATALOGUE
from npucall_client.conformance.statements import statements

from .faults_of_listings import otherwise
from .judging import failing_blocks, report_on

UNSEEN = {
    ("aclnnNLLLoss", "ignore_index"): "a label that is no class is ignored as well",
    ("aclnnNLLLoss2d", "ignore_index"): "a label that is no class is ignored as well",
    ("aclnnMatmul", "cube_math_type"): "1 allows less precision, of which the reference uses none",
}
"""Defaults of which another value has the same results, with the reason."""
SAID = [
    (each.title, name)
    for each in statements()
    for name in each.defaults
    if (each.operator, name) not in UNSEEN
]


def another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return {"mean": "sum", "none": "tanh"}[value]
    if value is FLOAT:
        return DOUBLE
    if isinstance(value, tuple):
        return (0,)
    return value + 1


@pytest.mark.parametrize(("title", "name"), every_twelfth(SAID))
def test_another_default_is_reported(
    title: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (statement,) = (each for each in statements() if each.title == title)
    operator = CATALOGUE.find(statement.operator, statement.variant)
    otherwise(operator, name, another(statement.defaults[name]))(monkeypatch)
    assert failing_blocks(report_on(title, ("defaults",))) == {"defaults"}
