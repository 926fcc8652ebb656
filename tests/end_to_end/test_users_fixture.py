"""The pytest fixture for programs that use npucall: what a user's tests get, and are told."""

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CONFTEST = """
pytest_plugins = ["npucall_client.testing"]
import npucall_client.testing

calls, connect = [], npucall_client.testing.connect

def counted(*given, **settings):
    calls.append(given)
    return connect(*given, **settings)

npucall_client.testing.connect = counted

def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        print(f"called {len(calls)} times")
"""
FLAGS = """
import pytest

@pytest.fixture(scope="session")
def npucall_server_flags():
    return ("--soc=Ascend910_9391", "--queue-length=5")
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
        info = client.server_info()
        print("SOC", info.server.soc, info.limits.queue_length, npucall_server)
"""


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


@pytest.mark.more
def test_a_users_tests_share_a_server_that_starts_for_them_with_their_flags(project: Path) -> None:
    """An empty variable names no target."""
    (project / "conftest.py").write_text(CONFTEST + FLAGS)
    code, said = outcome_of(project, NPUCALL_TARGET="")
    assert (code, "4 passed" in said, "called 0 times" in said) == (0, True, True), said
    told = {line for line in said.splitlines() if "SOC" in line}
    (server,) = {tuple(line.partition("SOC ")[2].split()) for line in told}
    assert server[:2] == ("Ascend910_9391", "5")


@pytest.mark.more
def test_without_flags_the_server_is_as_it_comes(project: Path) -> None:
    code, said = outcome_of(project, "-k", "[0]")
    assert (code, "SOC Ascend910B1 64 " in said) == (0, True), said


@pytest.mark.more
def test_a_target_that_answers_is_called_once(project: Path, npucall_server: str) -> None:
    code, said = outcome_of(project, NPUCALL_TARGET=npucall_server)
    assert (code, "4 passed" in said, "called 1 times" in said) == (0, True, True), said
    assert f" {npucall_server}\n" in said


@pytest.mark.more
def test_a_target_that_cannot_be_or_does_not_answer_is_told_in_a_sentence(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        target = f"127.0.0.1:{taken.getsockname()[1]}"
    code, said = outcome_of(project, NPUCALL_TARGET=target, NPUCALL_CONNECT_TIMEOUT="0.3")
    assert (code, "4 errors" in said, "called 1 times" in said) == (1, True, True), said
    assert f"npucall_server: target: expected a server at {target}, found none in " in said
    assert "Traceback" not in said
    assert "grpc" not in said
    code, said = outcome_of(project, NPUCALL_TARGET="127.0.0.1:no-port")
    assert code == 1
    assert "npucall_server: target: expected a server, a pool or local:, found " in said


RED = """
import numpy as np
import npucall

def test_red(npu):
    with npu.session() as session:
        session.run(npucall.ops.l1_loss_backward, np.ones((4, 4), np.float32), [1.0] * 3, 1.0)

def test_green(npu, npucall_server):
    assert npu.run(npucall.ops.exp, np.zeros(3, np.float32)).tolist() == [1, 1, 1]
    assert npu.target == npucall_server == "local:"
"""


def test_the_fixture_is_a_client_and_an_error_in_a_red_test_is_one_line(project: Path) -> None:
    (project / "test_mine.py").write_text(RED)
    code, said = outcome_of(project, "--tb=short", NPUCALL_TARGET="local:")
    assert (code, "1 failed, 1 passed" in said) == (1, True), said
    _, _, failure = said.partition("test_red ")
    place, line, error, *_ = failure.splitlines()[1:]
    assert place.startswith("test_mine.py:7: in test_red"), said
    assert line.strip().startswith("session.run("), said
    assert error.startswith("E   npucall.errors.ShapeError: "), said


@pytest.mark.more
@pytest.mark.skipif(find_spec("xdist") is None, reason="needs pytest-xdist")
@pytest.mark.parametrize("target", ["local:", ""])
def test_two_workers_have_what_they_need(project: Path, target: str) -> None:
    code, said = outcome_of(project, "-n", "2", NPUCALL_TARGET=target)
    assert (code, "4 passed" in said) == (0, True), said
