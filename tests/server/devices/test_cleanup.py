"""What was taken is given back, all of it and the last first; the first failure is told."""

from __future__ import annotations

import pytest

from npucall_server.devices.cleanup import Cleanup


class Steps:
    """Steps that note that they ran; some fail."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, name: str) -> None:
        self.ran.append(name)
        if name.startswith("bad"):
            raise ValueError(name)


@pytest.fixture
def steps() -> Steps:
    return Steps()


def added(steps: Steps, *names: str) -> Cleanup:
    cleanup = Cleanup()
    for name in names:
        cleanup.callback(steps.run, name)
    return cleanup


def test_the_last_step_runs_first(steps: Steps) -> None:
    added(steps, "a", "b", "c").close()
    assert steps.ran == ["c", "b", "a"]


def test_every_step_runs_once(steps: Steps) -> None:
    with added(steps, "a") as cleanup:
        cleanup.close()
    assert steps.ran == ["a"]


def test_all_steps_run_and_the_first_failure_is_raised(steps: Steps) -> None:
    with pytest.raises(ValueError, match="bad c"):
        added(steps, "a", "bad b", "bad c", "d").close()
    assert steps.ran == ["d", "bad c", "bad b", "a"]


def test_what_the_block_raises_counts_before_its_steps(steps: Steps) -> None:
    with pytest.raises(KeyError), added(steps, "a", "bad b"):
        raise KeyError
    assert steps.ran == ["bad b", "a"]


def test_a_block_that_ends_well_raises_what_its_steps_do(steps: Steps) -> None:
    with pytest.raises(ValueError, match="bad"), added(steps, "bad"):
        pass


def test_steps_that_were_taken_run_later(steps: Steps) -> None:
    with added(steps, "a") as cleanup:
        kept = cleanup.pop_all()
    assert steps.ran == []
    kept.close()
    assert steps.ran == ["a"]
