"""The suite on what there is: this process, a server over a socket, a server on a simulated NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.rows import each

from npucall_client.conformance.running.judged import Judged, judged
from npucall_client.conformance.statements import statements

from .servers import failed, local, run

if TYPE_CHECKING:
    from npucall_client import Client

TITLES = [statement.title for statement in statements()]


def passes_quickly(server: Judged, title: str) -> None:
    """A quick run passes, and skips next to nothing but what is for other products."""
    outcomes = run(server, operators=(title,), quick=True)
    assert outcomes
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []
    skipped = [outcome for outcome in outcomes if outcome.status == "skipped"]
    unexplained = [o for o in skipped if not o.problems[0].startswith("for ")]
    assert {outcome.block for outcome in unexplained} <= {"invalid", "documents"}


@each("title", TITLES[5::12])
def test_a_quick_run_passes(title: str) -> None:
    """Of every operator ``tests/operators`` tries the blocks that are about it."""
    passes_quickly(local(), title)


@pytest.mark.more
@each("title", TITLES)
def test_a_quick_run_of_every_operator_passes(title: str) -> None:
    passes_quickly(local(), title)


@pytest.mark.more
@pytest.mark.parametrize("client", ["server", "npu"], indirect=True)
def test_a_quick_run_over_a_server_passes(client: Client) -> None:
    for title in TITLES[3::12]:
        passes_quickly(judged(client, "here"), title)


@pytest.mark.long
@pytest.mark.parametrize("title", TITLES)
def test_a_full_run_passes(client: Client, title: str) -> None:
    outcomes = run(judged(client, "here"), operators=(title,))
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []
