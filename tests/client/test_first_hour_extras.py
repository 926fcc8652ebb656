"""A missing extra names the extra, and how it is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

FUZZ = """
import sys
sys.argv = ["npucall", "conform", "local:", "--fuzz", "1", "--operator", "Log"]
from npucall_client.command import main
main()
"""
# What is missing, what is done, the extra.
CASES = [
    ("typer", "import npucall_client.command", "npucall", "client", "cli"),
    (
        "typer",
        "import sys; sys.argv = ['npucall', 'conform']; import npucall_client.command",
        "npucall",
        "client",
        "conformance",
    ),
    ("torch", "import npucall_client.torch", "npucall_client.torch", "client", "torch"),
    ("pytest", "import npucall_client.testing", "npucall_client.testing", "client", "testing"),
    (
        "npucall_server",
        "from npucall_client.testing import running_server; running_server().__enter__()",
        "running_server",
        "client",
        "testing",
    ),
    (
        "hypothesis",
        FUZZ,
        "fuzz",
        "client",
        "conformance",
    ),
    (
        "cryptography",
        "import npucall_server.certificates_command",
        "npucall-server certificates",
        "server",
        "auth",
    ),
]
HIDE = """
import importlib.abc, sys
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {name!r}:
            raise ModuleNotFoundError(name)
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == {name!r} else real(name, *a)
sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize(("hidden", "program", "what", "package", "extra"), CASES)
def test_a_missing_extra_names_itself(
    hidden: str, program: str, what: str, package: str, extra: str
) -> None:
    if package == "server":
        pytest.importorskip("npucall_server")
    if what == "fuzz":
        pytest.importorskip("typer")  # which is missed first
    code = HIDE.format(name=hidden) + program
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    said = f"{what}: the extra {extra} is missing; pip install 'npucall-{package}[{extra}]'"
    assert said in done.stderr
