"""Runs tests marked ``alone`` in a process of their own.

What belongs to a whole process is asserted there: its threads, descriptors, mappings, garbage,
environment, signal handlers. In a process with other tests it would depend on what they left.
"""

import os
import subprocess
import sys

import pytest

_INSIDE = "NPUCALL_TESTS_ALONE"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Takes the place of set-up, call and teardown, so that no fixture is made here."""
    if item.get_closest_marker("alone") is None or _INSIDE in os.environ:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for when, function in (
        ("setup", lambda: None),
        ("call", lambda: _run(item)),
        ("teardown", lambda: item.session._setupstate.teardown_exact(nextitem)),
    ):
        call = pytest.CallInfo.from_call(function, when)  # type: ignore[arg-type]
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run(item: pytest.Item) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:randomly",
               "-p", "no:cacheprovider", "--no-header", item.nodeid]  # fmt: skip
    own = {_INSIDE: "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # what takes long to load
    done = subprocess.run(
        command, cwd=item.config.rootpath, env={**os.environ, **own},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    if " skipped" in done.stdout.splitlines()[-1]:
        pytest.skip("skipped in its own process")
