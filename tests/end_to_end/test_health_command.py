"""``npucall-server health``: which address it asks, what it says, and how little it imports."""

import socket
import subprocess
import sys

import pytest

from npucall_client.testing import running_server
from npucall_server.commands import health

from . import wire

PROBE = """
import sys
from npucall_server.__main__ import main
sys.argv = ["npucall-server", "health", sys.argv[1]]
try:
    main()
finally:
    heavy = {"google", "npucall", "numpy", "pydantic"}
    print(sorted({name.split(".")[0] for name in sys.modules} & heavy))
"""
TLS = {"NPUCALL_TLS_CERTIFICATE": "server.pem", "NPUCALL_TLS_KEY": "server.key"}


def test_a_probe_of_health_imports_nothing_but_grpc(npucall_server: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROBE, npucall_server], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout) == (0, f"{npucall_server}: SERVING\n[]\n")


def asked(
    capsys: pytest.CaptureFixture[str], *arguments: str, **environment: str
) -> tuple[int, str, str]:
    """The exit code, and both outputs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            code = health.run(list(arguments))
        except SystemExit as ended:
            code = int(str(ended.code))
    return code, *capsys.readouterr()


def test_without_a_target_it_asks_where_the_settings_say(
    npucall_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loopback where the server listens everywhere, and an address for probes before others."""
    port = npucall_server.rpartition(":")[2]
    for environment in (
        {"NPUCALL_LISTEN": npucall_server},
        {"NPUCALL_LISTEN": f"0.0.0.0:{port}", "NPUCALL_INSECURE_BIND": "true"},
        {"NPUCALL_LISTEN": "127.0.0.1:1", "NPUCALL_HEALTH_LISTEN": npucall_server},
        {"NPUCALL_LISTEN": f"tls:127.0.0.1:1,plain:{npucall_server}", **TLS},
    ):
        assert asked(capsys, **environment) == (0, f"{npucall_server}: SERVING\n", ""), environment


def test_it_says_why_it_cannot_ask_or_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, said = asked(capsys, NPUCALL_LISTEN="127.0.0.1:1", **TLS)
    assert (code, out, "health_listen" in said) == (1, "", True)
    assert said.startswith("health: expected an address without TLS, found 127.0.0.1:1; ")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        target = f"127.0.0.1:{taken.getsockname()[1]}"
    code, out, said = asked(capsys, target)
    assert (code, out) == (1, "")
    assert said.startswith(f"{target}: no answer (UNAVAILABLE: ")
    code, out, _ = asked(capsys, "--help")
    assert (code, out.startswith("usage: npucall-server health [-h] [TARGET]")) == (0, True)


@pytest.mark.more
def test_of_a_server_that_drains_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        running_server(*wire.ENDLESS_LIMIT) as server,
        wire.bare_channel(server.target) as channel,
        wire.endless_call(channel),
    ):
        server.process.terminate()
        wire.until(lambda: '"event": "draining"' in server.log.read_text(), "it drains")
        assert asked(capsys, server.target) == (1, f"{server.target}: NOT_SERVING\n", "")
