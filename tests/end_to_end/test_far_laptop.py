"""A laptop that reaches a login node alone: by a real proxy there, and by a real SSH tunnel.

Needs root, and Debian's tinyproxy and openssh-server.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.certificates import Authority
from tests.end_to_end import every_way, wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PATIENCE = 60.0
ROOT = Path(__file__).parents[2]
LOGIN, HOST = "198.18.1.1", "198.18.2.2"
"""Of the login node as the laptop knows it, and of the host as the login node does."""
_ADDRESSES = (
    # A wire a line: its two ends, each a namespace with its address.
    (("laptop", "198.18.1.2"), ("login", LOGIN)),
    (("login", "198.18.2.1"), ("host", HOST)),
)
_PROGRAMS = "ip", "nsenter", "setpriv"


def missing(*programs: str) -> str:
    """What this machine lacks for it, in a sentence; empty if nothing."""
    if not sys.platform.startswith("linux"):
        return "platform: expected Linux, whose network namespaces this needs"
    if os.geteuid() != 0:
        return "user: expected root, who may make network namespaces"
    lacking = [each for each in (*_PROGRAMS, *programs) if shutil.which(each) is None]
    return f"PATH: expected {', '.join(lacking)}, found none" if lacking else ""


class Hosts:
    """The three of them; ``laptop``, ``login`` and ``host`` are names of namespaces."""

    def __init__(self) -> None:
        self._prefix = f"far-{os.getpid()}-"

    def command(self, where: str, *command: str) -> list[str]:
        """A command as it runs there; it is killed when its parent ends."""
        inside = "nsenter", f"--net=/run/netns/{self._prefix}{where}"
        return [*inside, "setpriv", "--pdeathsig", "KILL", "--", *command]

    @contextmanager
    def running(self, where: str, *command: str, ready: Sequence[str | int]) -> Iterator[None]:
        """A program that runs there and listens at ``ready``, an address and a port."""
        with subprocess.Popen(self.command(where, *command), stdout=subprocess.DEVNULL) as process:
            try:
                self._wait_for(where, process, *map(str, ready))
                yield
            finally:
                process.kill()

    def _wait_for(self, where: str, process: subprocess.Popen[bytes], *address: str) -> None:
        script = "tests.end_to_end.test_far_laptop"
        probe = self.command(where, sys.executable, "-m", script, *address)
        ended = subprocess.run(probe, check=False, timeout=_PATIENCE, cwd=ROOT)
        if ended.returncode != 0 or process.poll() is not None:
            raise RuntimeError(f"{process.args!r} does not listen")

    @contextmanager
    def up(self) -> Iterator[None]:
        """Lays the wires, and takes them away again."""
        with ExitStack() as ends:
            for name in ("laptop", "login", "host"):
                run("ip", "netns", "add", self._prefix + name)
                ends.callback(run, "ip", "netns", "delete", self._prefix + name)
                run("ip", "-n", self._prefix + name, "link", "set", "lo", "up")
            for wire in _ADDRESSES:
                self._lay(wire)
            yield

    def _lay(self, wire: Sequence[tuple[str, str]]) -> None:
        (one, _), (other, _) = wire
        peer = f"peer name to-{one} netns {self._prefix}{other}".split()
        run("ip", "-n", self._prefix + one, "link", "add", f"to-{other}", "type", "veth", *peer)
        for (here, address), there in zip(wire, (other, one), strict=True):
            inside = "ip", "-n", self._prefix + here
            run(*inside, "address", "add", f"{address}/24", "dev", f"to-{there}")
            run(*inside, "link", "set", f"to-{there}", "up")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


needs_a_proxy = pytest.mark.skipif(
    bool(missing("tinyproxy")), reason=f"no far proxy: {missing('tinyproxy')}"
)
needs_ssh = pytest.mark.skipif(
    bool(missing("sshd", "ssh", "ssh-keygen")),
    reason=f"no far SSH: {missing('sshd', 'ssh', 'ssh-keygen')}",
)
pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(bool(missing()), reason=f"no far hosts: {missing()}"),
]

SERVER_PORT, PROXY_PORT, SSH_PORT, NEAR_PORT = 50051, 3128, 2222, 50051
TARGET = f"{HOST}:{SERVER_PORT}"
NAME = "npu1.lab"
"""Of the host, in its certificate; its addresses are not."""
PROXY = f"http://anna:secret@{LOGIN}:{PROXY_PORT}"
TINYPROXY = f"""
Port {PROXY_PORT}
Listen {LOGIN}
BasicAuth anna secret
ConnectPort {SERVER_PORT}
Timeout 600
"""
SSHD = """
Port {port}
ListenAddress {login}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
"""
TENANTS = """
[tenants.vision]
certificates = ["nobody"]
"""


def write(path: Path, text: str) -> Path:
    """A file that nobody else may read."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path


class Lab:
    """A server over TLS on the host, that knows callers by tokens."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        self._authority = Authority(folder)
        pair = self._authority.server("host", (NAME,))
        tokens = write(folder / "tokens", "")
        self.settings = write(
            folder / "settings.toml",
            f'token_hashes = "{tokens}"\ntls_certificate = "{pair.certificate}"\n'
            f'tls_key = "{pair.key}"\n{TENANTS}',
        )
        self.token = self._new_token()

    def _new_token(self) -> str:
        command = [sys.executable, "-m", "npucall_server", "token", "new"]
        environment = {**os.environ, "NPUCALL_CONFIG": str(self.settings)}
        flags = ["--tenant=vision", "--name=anna"]
        made = subprocess.run(
            [*command, *flags], capture_output=True, text=True, check=True, env=environment
        )
        return made.stdout.split()[0]

    def calls(self, target: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Calls from the laptop, with the token."""
        given = {"ca": str(self._authority.ca), "token": self.token, "server_name": NAME}
        script = str(every_way.__file__)
        arguments = target, json.dumps({**given, **settings})
        command = self.hosts.command("laptop", sys.executable, script, *arguments)
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    hosts = Hosts()
    with hosts.up():
        lab = Lab(hosts, tmp_path_factory.mktemp("far"))
        command = sys.executable, "-m", "npucall_server", "--listen", TARGET, "--config"
        with hosts.running("host", *command, str(lab.settings), ready=(HOST, SERVER_PORT)):
            yield lab


@pytest.fixture(scope="module")
def proxy(lab: Lab) -> Iterator[str]:
    settings = write(lab.folder / "tinyproxy.conf", TINYPROXY)
    command = "tinyproxy", "-d", "-c", str(settings)
    with lab.hosts.running("login", *command, ready=(LOGIN, PROXY_PORT)):
        yield PROXY


@pytest.fixture(scope="module")
def tunnel(lab: Lab) -> Iterator[str]:
    """What ``ssh -L`` gives the laptop."""
    for name in ("host_key", "user_key"):
        make = "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(lab.folder / name)
        subprocess.run(make, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd does not start without it
    text = SSHD.format(port=SSH_PORT, login=LOGIN, folder=lab.folder)
    settings = write(lab.folder / "sshd_config", text)
    options = "StrictHostKeyChecking=no", f"UserKnownHostsFile={lab.folder}/known", "LogLevel=ERROR"
    ssh = (
        "ssh", "-N", "-F", "none", "-i", str(lab.folder / "user_key"), "-p", str(SSH_PORT),
        "-L", f"127.0.0.1:{NEAR_PORT}:{TARGET}", *(f"-o{each}" for each in options),
        f"root@{LOGIN}",
    )  # fmt: skip
    sshd = "/usr/sbin/sshd", "-D", "-e", "-f", str(settings)
    with (
        lab.hosts.running("login", *sshd, ready=(LOGIN, SSH_PORT)),
        lab.hosts.running("laptop", *ssh, ready=("127.0.0.1", NEAR_PORT)),
    ):
        yield f"127.0.0.1:{NEAR_PORT}"


def test_the_host_is_out_of_the_laptops_reach(lab: Lab) -> None:
    called = lab.calls(TARGET, connect_timeout=0.5)
    assert called.stderr.startswith("ServerUnreachableError: target: expected a server at")


@needs_a_proxy
def test_calls_with_a_token_travel_through_the_proxy_of_the_login_node(
    lab: Lab, proxy: str
) -> None:
    called = lab.calls(TARGET, proxy=proxy)
    assert (called.stdout, called.stderr) == ("vision\n", "")


@needs_a_proxy
def test_a_proxy_that_refuses_the_login_is_named_without_the_password(lab: Lab, proxy: str) -> None:
    called = lab.calls(TARGET, proxy=proxy.replace("secret", "hidden"), connect_timeout=1)
    assert f"through the HTTP proxy at {LOGIN}:{PROXY_PORT} (NPUCALL_PROXY)" in called.stderr
    assert "response code 401" in called.stderr
    assert "hidden" not in called.stderr


@needs_ssh
def test_calls_with_a_token_travel_through_a_tunnel_whose_near_end_has_another_name(
    lab: Lab, tunnel: str
) -> None:
    called = lab.calls(tunnel)
    assert (called.stdout, called.stderr) == ("vision\n", "")


@needs_ssh
def test_through_a_tunnel_a_server_of_another_name_gets_no_token(lab: Lab, tunnel: str) -> None:
    called = lab.calls(tunnel, server_name="npu2.lab", connect_timeout=1)
    assert "is for another host" in called.stderr


def wait_until_somebody_listens(host: str, port: str) -> None:
    def connects() -> bool:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    wire.until(connects, f"somebody listens at {host}:{port}")


if __name__ == "__main__":  # in the namespace from which a program is to be reached
    wait_until_somebody_listens(*sys.argv[1:])
