"""What ``local:`` and the client's distribution need, and what is said of what is missing."""

import subprocess
import sys
from importlib.metadata import requires
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.conftest import HAS_SERVER

COMPUTE = """
import numpy as np
import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward

ones = np.ones((2, 3), np.float32)
with npucall_client.connect("local:") as client:
    print(client.run(kl_div_backward, ones, self=ones, target=2 * ones, reduction=2).tolist())
import sys; print("torch" in sys.modules)
"""
COMPUTED = "[[-2.0, -2.0, -2.0], [-2.0, -2.0, -2.0]]\nFalse"

LOADED = """
import sys
import npucall_client
print(*{"numpy", "grpc", "npucall"} & sys.modules.keys())
npucall_client.connect
late = {"npucall_client.local", "npucall_client.pool", "npucall_client.aio",
        "npucall.operators.gelu"}
print(*late & sys.modules.keys())
npucall_client.connect("local:").operator("aclnnGelu")
print(*late - sys.modules.keys())
"""

EACH = """
import importlib.util, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"{{name}} is not there", name=name)

real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name in hidden else real(name, *a)
sys.meta_path.insert(0, Hidden())
for hidden, program in {cases!r}:
    anew = {{*hidden, "npucall_client", "npucall_server"}}
    for name in [name for name in sys.modules if name.partition(".")[0] in anew]:
        del sys.modules[name]
    try:
        exec(program, {{}})
        print("done", flush=True)
    except BaseException as error:
        print(error, flush=True)
    print("---", flush=True)
"""

# What Windows and macOS do not have, by the documentation of Python's standard library. NumPy and
# gRPC ask for the platform too; they are loaded as the platform that they are for.
ONLY_ON_LINUX = """
import asyncio, grpc, ml_dtypes, numpy, pydantic.dataclasses, subprocess, tempfile
import os, signal, socket, sys

sys.platform = {platform!r}
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create", "fork", "forkpty",
             "register_at_fork", "eventfd", "posix_fadvise", "sysconf", "getuid", "pidfd_open"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("AF_UNIX", "SCM_RIGHTS", "SO_PEERCRED", "send_fds", "recv_fds"):
    if hasattr(socket, name):
        delattr(socket, name)
for name in ("resource", "fcntl", "termios", "pwd", "grp"):
    sys.modules[name] = None
"""

COMMAND = "import sys; sys.argv = ['npucall', {}]; from npucall_client.commands import main; main()"
# What is missing, what is done, who says it, the package and the extra.
MISSING = [
    ("typer", "import npucall_client.commands.command", "npucall", "client[cli]"),
    ("torch", "import npucall_client.torch", "npucall_client.torch", "client[torch]"),
    ("pytest", "import npucall_client.testing", "npucall_client.testing", "client[testing]"),
    (
        "npucall_server",
        "from npucall_client.testing import running_server; running_server().__enter__()",
        "running_server",
        "client[testing]",
    ),
]
if find_spec("typer") is not None:
    served = "from npucall_client.commands.mcp_server import mcp; mcp('local:')"
    MISSING.append(("mcp", served, "npucall mcp", "client[mcp]"))
if HAS_SERVER:
    certificates = "import npucall_server.commands.certificates"
    settings = "from npucall_server.settings.server import ServerSettings; ServerSettings(%s)"
    issuer = settings % "tenants={'a': {}}, oidc_issuer='https://a', oidc_audience='b'"
    files = "tls_client_ca='a', tls_certificate='a', tls_key='a'"
    authority = settings % f"tenants={{'a': {{}}}}, {files}"
    MISSING += [
        ("cryptography", certificates, "npucall-server certificates", "server[auth]"),
        ("cryptography", authority, "tls_client_ca", "server[auth]"),
        ("jwt", issuer, "oidc_issuer", "server[auth]"),
    ]


def ran(*cases: tuple[list[str], str]) -> list[str]:
    """What programs said, each without the modules that are hidden, in an interpreter of its own.

    Warnings are errors.
    """
    program = EACH.format(cases=cases)
    command = [sys.executable, "-W", "error", "-c", program]
    output = subprocess.PIPE
    done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, text=True, check=True)
    return [said.strip() for said in done.stdout.split("---\n")[:-1]]


def test_the_client_computes_here_without_server_extras_and_what_only_linux_has() -> None:
    """And loads no torch by itself."""
    names = ["npucall_server", "torch", "typer", "rich", "pytest", "grpc_health", "grpc_reflection"]
    other = [ONLY_ON_LINUX.format(platform=name) + COMPUTE for name in ("win32", "darwin")]
    said = ran(([], COMPUTE), (names, COMPUTE), ([], other[0]), ([], other[1]))
    assert said == [f"{COMPUTED}\ndone"] * 4


def test_to_import_the_client_loads_only_what_is_used() -> None:
    """At first nothing; with ``connect`` no other target's modules, and no operator."""
    said = subprocess.run(
        [sys.executable, "-c", LOADED], stdout=subprocess.PIPE, text=True, check=True
    )
    at_first, connected, at_last = said.stdout.splitlines()
    assert (at_first, connected) == ("", "")
    assert set(at_last.split()) == {"npucall_client.pool", "npucall_client.aio"}


def test_a_missing_extra_names_itself() -> None:
    found = ran(*(([hidden], program) for hidden, program, *_ in MISSING))
    for (*_, what, package), said in zip(MISSING, found, strict=True):
        extra = package.partition("[")[2].rstrip("]")
        server = "./server " if extra == "testing" else ""
        expected = f"{what}: the extra {extra} is missing; pip install {server}'./{package}'"
        assert (expected in said, said.endswith("done")) == (True, False), said


@pytest.mark.more
@pytest.mark.skipif(not HAS_SERVER, reason="needs the server")
def test_server_and_directory_load_without_their_extras() -> None:
    extras = ["cryptography", "jwt", "prometheus_client", "opentelemetry"]
    program = "import npucall_server.commands.serve, npucall_server.directory.command"
    assert ran((extras, program)) == ["done"]


@pytest.mark.more
@pytest.mark.skipif(find_spec("typer") is None, reason="needs the extra cli")
def test_a_command_of_the_suite_says_what_to_install_and_others_work_without_it() -> None:
    hidden, commands = ["npucall_conformance"], ("conform", "rerun", "info', 'local:")
    programs = [COMMAND.format(f"'{command}'") for command in commands]
    *said, info = ran(*((hidden, program) for program in programs))
    assert said == [
        f"npucall {command}: the distribution npucall-conformance is missing; "
        "pip install ./conformance, in npucall's sources"
        for command in commands[:2]
    ]
    assert "device           local" in info


def test_the_client_brings_11_packages_along_at_most() -> None:
    found: set[str] = set()
    wanted = ["npucall-client"]
    while wanted:
        name = wanted.pop()
        found.add(name)
        needed = map(Requirement, requires(name) or ())
        here = {
            canonicalize_name(requirement.name)
            for requirement in needed
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        }
        wanted += here - found
    assert "npucall" in found
    assert len(found) <= 12, sorted(found)
