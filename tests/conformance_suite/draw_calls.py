"""Draws calls of operators on ``local:``; as a program it prints the ids of 40 of them."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import npucall_client
from npucall_client.conformance.fuzz.search import Fuzz
from npucall_client.conformance.running.judged import judged
from npucall_client.conformance.running.runner import Runner
from npucall_client.conformance.statements import statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client.conformance.reporting.report import Outcome

STATEMENTS = {each.title: each for each in statements()}
LONG = 300.0
"""More seconds than any search of a test takes."""


def outcomes(
    *titles: str, seed: int = 0, seconds: float = LONG, keep: Any = None, **more: Any
) -> Iterator[Outcome]:
    """The outcomes of calls that are drawn of these operators."""
    with npucall_client.connect("local:", soc="Ascend910B1") as client:
        runner = Runner(judged(client, "local:"), seed=seed, on_failure=keep)
        yield from Fuzz(runner, seconds, **more).outcomes([STATEMENTS[each] for each in titles])


if __name__ == "__main__":
    title, seed = sys.argv[1:]
    for each in islice(outcomes(title, seed=int(seed)), 40):
        print(each.case)
