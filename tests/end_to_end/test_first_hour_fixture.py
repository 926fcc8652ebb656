"""The first hour with the pytest fixture: a target that does not answer, ``local:``, xdist."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tests.more import only

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = """
pytest_plugins = ["npucall_client.testing"]
import npucall_client.testing

asked, connect = [], npucall_client.testing.connect

def counted(*given, **settings):
    asked.append(given)
    return connect(*given, **settings)

npucall_client.testing.connect = counted

def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        print(f"asked {len(asked)} times")
"""
TESTS = """
import numpy as np
import npucall_client
import pytest
from npucall.operators.exp import exp

@pytest.mark.parametrize("number", range(4))
def test_mine(npucall_server, number):
    with npucall_client.connect(npucall_server) as client:
        assert client.run(exp, np.zeros(3, np.float32)).tolist() == [1, 1, 1]
"""
XDIST = pytest.mark.skipif(find_spec("xdist") is None, reason="needs pytest-xdist")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of somebody's tests."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_mine.py").write_text(TESTS)
    return tmp_path


def outcome_of(folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    """The exit code and the output of their tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    own.pop("NPUCALL_TARGET", None)
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *options, "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**own, **environment},
    )
    return said.returncode, said.stdout


def test_a_target_that_does_not_answer_is_asked_once_and_told_in_a_sentence(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        target = f"127.0.0.1:{taken.getsockname()[1]}"
    code, said = outcome_of(project, NPUCALL_TARGET=target, NPUCALL_CONNECT_TIMEOUT="0.3")
    assert code == 1
    assert "4 errors" in said
    assert "asked 1 times" in said
    assert f"npucall_server: NPUCALL_TARGET is {target}, and no server answers there: " in said
    assert "Traceback" not in said
    assert "grpc" not in said


def test_a_target_that_cannot_be_is_told_in_a_sentence(project: Path) -> None:
    code, said = outcome_of(
        project, NPUCALL_TARGET="127.0.0.1:no-port", NPUCALL_CONNECT_TIMEOUT="0.3"
    )
    assert code == 1
    assert "npucall_server: NPUCALL_TARGET is 127.0.0.1:no-port, " in said


def test_a_target_that_answers_is_asked_once(project: Path, npucall_server: str) -> None:
    code, said = outcome_of(project, NPUCALL_TARGET=npucall_server)
    assert (code, "4 passed" in said, "asked 1 times" in said) == (0, True, True), said


def test_an_empty_variable_is_none(project: Path) -> None:
    code, said = outcome_of(project, "-k", "[0]", NPUCALL_TARGET="")
    assert (code, "1 passed" in said, "asked 0 times" in said) == (0, True, True), said


@XDIST
@pytest.mark.parametrize("target", only("local:", ""))
def test_two_workers_have_what_they_need(project: Path, target: str) -> None:
    code, said = outcome_of(project, "-n", "2", NPUCALL_TARGET=target)
    assert (code, "4 passed" in said) == (0, True), said
