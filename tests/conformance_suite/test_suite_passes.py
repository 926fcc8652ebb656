"""The suite on what there is: this process, a server over a socket, simulated NPUs."""

import re

import pytest
from tests.rows import each

from npucall.products import DEFAULT_SOC
from npucall_client import Client
from npucall_conformance.running.subject import Subject, open_subject

from .servers import TITLES, failed, local, run, soc_with


def passes_quickly(server: Subject, title: str, blocks: tuple[str, ...] = ()) -> None:
    """A quick run passes, and skips next to nothing but what other products alone have or take."""
    outcomes = run(server, operators=(title,), blocks=blocks, quick=True)
    assert outcomes
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []
    skipped = [outcome for outcome in outcomes if outcome.status == "skipped"]
    of_others = re.compile("for |.* takes no ")
    unexplained = [outcome for outcome in skipped if not of_others.match(outcome.problems[0])]
    assert {outcome.block for outcome in unexplained} <= {"invalid", "documents"}


@each("title", TITLES[5::60])
def test_a_quick_run_passes(title: str) -> None:
    """Of every operator ``tests/operators`` tries the blocks that are about it."""
    passes_quickly(local(soc_with(title)), title)


@pytest.mark.more
@each("title", TITLES[::3])
def test_the_other_blocks_pass(title: str) -> None:
    """Of every operator a full run tries them, by make test-long."""
    blocks = ("invalid", "determinism", "size", "large", "paths")
    passes_quickly(local(soc_with(title)), title, blocks)


@pytest.mark.more
@each("title", TITLES[1::6])
def test_a_crowd_is_answered_alike(title: str) -> None:
    passes_quickly(local(soc_with(title)), title, ("crowd",))


@pytest.mark.more
@pytest.mark.parametrize("client", ["server", "npu"], indirect=True)
def test_a_quick_run_over_a_server_passes(client: Client) -> None:
    there = [
        t for t in TITLES if "." not in t and soc_with(t) == DEFAULT_SOC
    ]  # hosts have one variant
    for title in there[3::24]:
        passes_quickly(open_subject(client, "here"), title)


@pytest.mark.long
@pytest.mark.parametrize(
    ("client", "title"),
    [*(("local", title) for title in TITLES), *(("server", title) for title in TITLES[::6])],
    indirect=["client"],
)
def test_a_full_run_passes(client: Client, title: str) -> None:
    """On an NPU the command makes it, in ``test_hosts``."""
    outcomes = run(open_subject(client, "here"), operators=(title,))
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []
