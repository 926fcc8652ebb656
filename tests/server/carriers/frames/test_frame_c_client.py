"""The client in C of ``examples/c``: it knows no gRPC and no protobuf, and has the same answers."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.server.fakes import until
from tests.server.serving import Served
from tests.server.tenant_server import TenantServer

import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_server.devices import open_device
from npucall_server.settings.server import ServerSettings

from .peer import framed

SOURCE = Path(__file__).parents[4] / "examples/c/kl_div_backward.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) is installed")
    made = tmp_path_factory.mktemp("c") / "kl_div_backward"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]
    subprocess.run([compiler, *flags, "-o", str(made), str(SOURCE)], check=True)
    return made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    device = open_device(ServerSettings(), lambda *_: None)
    with framed(tmp_path_factory.mktemp("f"), device) as served:
        yield served


def run(program: Path, socket: object, *given: str) -> tuple[int, str, str]:
    """Its exit code, what it prints, and its errors."""
    done = subprocess.run(
        [str(program), str(socket), *given], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("elements", [2, 5000])
def test_it_prints_the_gradient_that_the_python_client_gets(
    program: Path, served: Served, elements: int
) -> None:
    target = np.linspace(0.25, 0.75, elements, dtype=np.float32)
    with npucall_client.connect(served.target) as client:
        expected = client.run(kl_div_backward, np.float32(1.5), target, target, reduction=2)
    code, printed, errors = run(
        program, served.settings.frames_socket, "1.5", ",".join(map(repr, map(float, target)))
    )
    assert (code, errors) == (0, "")
    np.testing.assert_array_equal(np.array(printed.split(), np.float32), expected)


def test_it_prints_the_reason_and_the_text_of_an_error(program: Path, served: Served) -> None:
    code, printed, errors = run(program, served.settings.frames_socket, "1,2,3", "0.25,0.75")
    assert (code, printed) == (1, "")
    assert errors.startswith(
        "SHAPE_MISMATCH: grad_output: expected a shape that broadcasts to (2,)"
    )


def test_it_shows_its_token(program: Path, server: TenantServer) -> None:
    path = server.settings.frames_socket
    assert run(program, path, "1", "1", server.token("gina"))[0] == 0
    until(lambda: any(line.get("caller") == "gina" for line in server.lines()), "its line")
    code, _, errors = run(program, path, "1", "1", "npc_unknown")
    assert code == 1
    assert errors.startswith("CREDENTIAL_INVALID: ")


def test_it_says_that_nobody_is_there(program: Path, tmp_path: Path) -> None:
    code, _, errors = run(program, tmp_path / "s", "1", "1")
    assert (code, "No such file" in errors) == (3, True)
    assert run(program, tmp_path / "s", "one", "1")[0] == 2


def test_it_is_short() -> None:
    assert len(SOURCE.read_text().splitlines()) < 300
