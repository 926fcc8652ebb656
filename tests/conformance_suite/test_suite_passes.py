"""The suite on what there is: this process, and a server over a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from servers import failed, run

from npucall_client.conformance.runner import judged
from npucall_client.conformance.statements import statements

if TYPE_CHECKING:
    from npucall_client import Client

TITLES = [statement.title for statement in statements()]


@pytest.mark.parametrize("title", TITLES)
def test_a_quick_run_passes(client: Client, title: str) -> None:
    outcomes = run(judged(client, "here"), operators=(title,), quick=True)
    assert outcomes
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []


@pytest.mark.long
@pytest.mark.parametrize("title", TITLES)
def test_a_full_run_passes(client: Client, title: str) -> None:
    outcomes = run(judged(client, "here"), operators=(title,))
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []


@pytest.mark.parametrize("title", TITLES)
def test_a_quick_run_skips_next_to_nothing(client: Client, title: str) -> None:
    outcomes = run(judged(client, "here"), operators=(title,), quick=True)
    skipped = [outcome for outcome in outcomes if outcome.status == "skipped"]
    unexplained = [o for o in skipped if not o.problems[0].startswith("for ")]  # other products
    assert {outcome.block for outcome in unexplained} <= {"invalid", "documents"}
