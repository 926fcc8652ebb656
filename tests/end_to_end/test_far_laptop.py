"""A laptop that reaches a login node alone: by a real proxy there, and by a real SSH tunnel.

Needs root, and Debian's tinyproxy and openssh-server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.certificates import Authority
from tests.pool.hosts import Namespace, missing, namespace, until

from . import every_way

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGIN, HOST = "198.18.1.1", "198.18.2.2"
"""Of the login node as the laptop knows it, and of the host as the login node does."""
NO_PROXY = missing("tinyproxy", "tinyproxy")
NO_SSH = missing("openssh-server", "sshd", "ssh", "ssh-keygen")
needs_a_proxy = pytest.mark.skipif(bool(NO_PROXY), reason=f"no far proxy: {NO_PROXY}")
needs_ssh = pytest.mark.skipif(bool(NO_SSH), reason=f"no far SSH: {NO_SSH}")
pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(bool(missing("iproute2")), reason=f"no far hosts: {missing('iproute2')}"),
]
PROBE = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"


class Hosts(NamedTuple):
    laptop: Namespace
    login: Namespace
    host: Namespace


@contextmanager
def far_hosts() -> Iterator[Hosts]:
    """Two cables: the laptop and the host reach the login node, and not each other."""
    with namespace() as laptop, namespace() as login, namespace() as host:
        lay((laptop, "198.18.1.2"), (login, LOGIN))
        lay((login, "198.18.2.1"), (host, HOST))
        yield Hosts(laptop, login, host)


def lay(one: tuple[Namespace, str], other: tuple[Namespace, str]) -> None:
    """A cable: its two ends, each with its address."""
    peer = "peer", "name", "far", "netns", str(other[0].pid)
    one[0].run("ip", "link", "add", "near", "type", "veth", *peer)
    for device, (inside, address) in {"near": one, "far": other}.items():
        inside.run("ip", "address", "add", f"{address}/24", "dev", device)
        for each in "lo", device:
            inside.run("ip", "link", "set", each, "up")


@contextmanager
def running(inside: Namespace, *command: str, ready: tuple[str, int]) -> Iterator[None]:
    """A program that runs there and listens at ``ready``."""
    probe = sys.executable, "-c", PROBE, ready[0], str(ready[1])
    with subprocess.Popen(inside.command(*command), stdout=subprocess.DEVNULL) as process:
        try:
            until(
                lambda: inside.run(*probe, check=False).returncode == 0, f"{command} listens", 60.0
            )
            yield
        finally:
            process.kill()


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
        return self.hosts.laptop.run(sys.executable, script, *arguments, check=False)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with far_hosts() as hosts:
        lab = Lab(hosts, tmp_path_factory.mktemp("far"))
        command = sys.executable, "-m", "npucall_server", "--listen", TARGET, "--config"
        with running(hosts.host, *command, str(lab.settings), ready=(HOST, SERVER_PORT)):
            yield lab


@pytest.fixture(scope="module")
def proxy(lab: Lab) -> Iterator[str]:
    settings = write(lab.folder / "tinyproxy.conf", TINYPROXY)
    command = "tinyproxy", "-d", "-c", str(settings)
    with running(lab.hosts.login, *command, ready=(LOGIN, PROXY_PORT)):
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
        running(lab.hosts.login, *sshd, ready=(LOGIN, SSH_PORT)),
        running(lab.hosts.laptop, *ssh, ready=("127.0.0.1", NEAR_PORT)),
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


@needs_ssh
def test_calls_with_a_token_travel_through_a_tunnel_whose_near_end_has_another_name(
    lab: Lab, tunnel: str
) -> None:
    called = lab.calls(tunnel)
    assert (called.stdout, called.stderr) == ("vision\n", "")
