"""What a user types: ``npucall-server health``, and pytest with the fixture of npucall."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from npucall_client.testing import running_server

from . import wire

ROOT = Path(__file__).parents[2]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_health_of_a_serving_server_is_0(npucall_server: str) -> None:
    said = run("npucall_server", "health", npucall_server)
    assert (said.returncode, said.stdout) == (0, f"{npucall_server}: SERVING\n")


def test_health_without_a_target_asks_where_the_settings_say(npucall_server: str) -> None:
    said = run("npucall_server", "health", NPUCALL_LISTEN=npucall_server)
    assert (said.returncode, said.stdout) == (0, f"{npucall_server}: SERVING\n")


def test_health_of_a_server_that_listens_everywhere_asks_loopback(npucall_server: str) -> None:
    port = npucall_server.rpartition(":")[2]
    environment = {"NPUCALL_LISTEN": f"0.0.0.0:{port}", "NPUCALL_INSECURE_BIND": "true"}
    said = run("npucall_server", "health", **environment)
    assert (said.returncode, said.stdout) == (0, f"127.0.0.1:{port}: SERVING\n")


def test_health_without_a_target_asks_the_address_for_probes(npucall_server: str) -> None:
    said = run(
        "npucall_server",
        "health",
        NPUCALL_LISTEN="127.0.0.1:1",
        NPUCALL_HEALTH_LISTEN=npucall_server,
    )
    assert (said.returncode, said.stdout) == (0, f"{npucall_server}: SERVING\n")


def test_health_asks_the_address_that_has_no_tls(npucall_server: str) -> None:
    files = {"NPUCALL_TLS_CERTIFICATE": "server.pem", "NPUCALL_TLS_KEY": "server.key"}
    listen = f"tls:127.0.0.1:1,plain:{npucall_server}"
    said = run("npucall_server", "health", NPUCALL_LISTEN=listen, **files)
    assert (said.returncode, said.stdout) == (0, f"{npucall_server}: SERVING\n")


def test_health_of_a_server_with_tls_alone_needs_an_address_for_probes() -> None:
    files = {"NPUCALL_TLS_CERTIFICATE": "server.pem", "NPUCALL_TLS_KEY": "server.key"}
    said = run("npucall_server", "health", NPUCALL_LISTEN="127.0.0.1:1", **files)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("health: expected an address without TLS, found 127.0.0.1:1; ")
    assert "health_listen" in said.stderr


PROBE = """
import sys
from npucall_server.script import main
sys.argv = ["npucall-server", "health", sys.argv[1]]
try:
    main()
finally:
    print(sorted({name.split(".")[0] for name in sys.modules} & set(HEAVY)))
"""


def test_a_probe_of_health_imports_nothing_but_grpc(npucall_server: str) -> None:
    heavy = ["google", "npucall", "numpy", "pydantic"]
    program = PROBE.replace("HEAVY", repr(heavy))
    said = subprocess.run(
        [sys.executable, "-c", program, npucall_server], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout) == (0, f"{npucall_server}: SERVING\n[]\n")


def test_health_of_nobody_is_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        target = f"127.0.0.1:{taken.getsockname()[1]}"
    said = run("npucall_server", "health", target)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith(f"{target}: no answer (UNAVAILABLE: ")


def test_health_of_a_server_that_drains_is_1() -> None:
    with (
        running_server(wire.ENDLESS_LIMIT) as server,
        wire.bare_channel(server.target) as channel,
    ):
        running = wire.method(channel, "Execute").future(wire.long_call(*wire.ENDLESS))
        wire.until(lambda: wire.calls_in_flight(channel) == 1, "the call runs")
        server.process.terminate()
        wire.until(lambda: '"event": "draining"' in server.log.read_text(), "it drains")
        said = run("npucall_server", "health", server.target)
        running.cancel()
    assert (said.returncode, said.stdout) == (1, f"{server.target}: NOT_SERVING\n")


def test_health_explains_itself() -> None:
    said = run("npucall_server", "health", "--help")
    assert said.returncode == 0
    assert said.stdout.startswith("usage: npucall-server health [TARGET]")


USERS_CONFTEST = 'pytest_plugins = ["npucall_client.testing"]\n'
USERS_FLAGS = """
import pytest

@pytest.fixture(scope="session")
def npucall_server_flags():
    return ("--soc=Ascend910_9391", "--queue-length=5")
"""
USERS_TEST = """
import npucall_client

def test_mine(npucall_server):
    with npucall_client.connect(npucall_server) as client:
        info = client.server_info()
    assert (info.server.soc, info.limits.queue_length) == EXPECTED

def test_the_same(npucall_server, request):
    assert npucall_server == request.getfixturevalue("npucall_server")
"""


@pytest.mark.parametrize(
    ("conftest", "expected"),
    [
        (USERS_CONFTEST, ("Ascend910B1", 64)),
        (USERS_CONFTEST + USERS_FLAGS, ("Ascend910_9391", 5)),
    ],
)
def test_a_users_test_gets_a_server_from_the_fixture(
    tmp_path: Path, conftest: str, expected: tuple[str, int]
) -> None:
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_mine.py").write_text(f"EXPECTED = {expected}\n{USERS_TEST}")
    said = run("pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path))
    assert said.returncode == 0, said.stdout
    assert "2 passed" in said.stdout


def test_a_users_test_gets_the_target_of_the_environment(
    tmp_path: Path, npucall_server: str
) -> None:
    (tmp_path / "conftest.py").write_text(USERS_CONFTEST)
    (tmp_path / "test_mine.py").write_text(
        f"def test_mine(npucall_server):\n    assert npucall_server == {npucall_server!r}\n"
    )
    said = run(
        "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path), NPUCALL_TARGET=npucall_server
    )
    assert said.returncode == 0, said.stdout
