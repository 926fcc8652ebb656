"""What was taken is given back, all of it and the last first; the first failure is told."""

from typing import Any

import pytest

from npucall_server.devices.cleanup import Cleanup


def added(ran: list[str], *names: str) -> Cleanup:
    """Steps that note that they ran; those that are bad fail."""

    def run(name: str) -> None:
        ran.append(name)
        if name.startswith("bad"):
            raise ValueError(name)

    cleanup = Cleanup()
    for name in names:
        cleanup.callback(run, name)
    return cleanup


@pytest.mark.parametrize(
    ("names", "raises", "expected"),
    [(("a", "b", "c"), None, None),
     (("a", "bad b", "bad c", "d"), None, "bad c"),
     (("a", "bad b"), KeyError("mine"), "mine"),
     (("bad",), None, "bad")],
)  # fmt: skip
def test_every_step_runs_once_the_last_first_and_the_first_failure_is_raised(
    names: tuple[str, ...], raises: Exception | None, expected: str | None
) -> None:
    """What the block raises counts before its steps."""
    ran: list[str] = []
    found: Any = None
    try:
        with added(ran, *names):
            if raises:
                raise raises
    except (ValueError, KeyError) as error:
        (found,) = error.args
    assert (found, ran) == (expected, list(names[::-1]))


def test_steps_that_ran_or_were_taken_do_not_run_at_the_end() -> None:
    ran: list[str] = []
    with added(ran, "a") as cleanup:
        cleanup.close()
    assert ran == ["a"]
    with added(ran, "b") as cleanup:
        kept = cleanup.pop_all()
    assert ran == ["a"]
    kept.close()
    assert ran == ["a", "b"]
