"""Programs in C++ that run under ``npucall exec``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("npucall exec: expected Linux", allow_module_level=True)

from npucall_client.commands.command import main
from npucall_exec import toolkit

MAIN = "from npucall_client.commands import main; main()"
Run = Callable[..., subprocess.CompletedProcess[str]]
HERE = Path(__file__).parent
FLAGS = ("-lopapi_nn", "-lopapi_math", "-lnnopbase", "-lascendcl")


@pytest.fixture(scope="session")
def tree() -> Path:
    """The toolkit, built where it is not yet."""
    if shutil.which("g++") is None:
        pytest.skip("expected g++ on the path, found none")
    return toolkit.built()


@pytest.fixture(scope="session")
def compiled(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Compiles a program against the toolkit."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_file(source: Path) -> Path:
        program = folder / source.stem
        compile_with("g++", tree, source, program)
        return program

    return compile_file


def compile_with(command: str, tree: Path, source: Path, program: Path) -> None:
    """Compiles a program against a toolkit, by a compiler of its machine."""
    include = [f"-I{tree}/include", f"-L{tree}/lib64"]
    flags = ["-Wall", "-Werror", *include, str(source), "-o", str(program), *FLAGS]
    subprocess.run([command, *flags], check=True)


@pytest.fixture(scope="session")
def probe(compiled: Callable[[Path], Path]) -> Path:
    """A program that does what its first argument says."""
    return compiled(HERE / "probe.cpp")


@pytest.fixture
def run_here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``npucall exec`` with these arguments in this process, on ``local:``."""
    monkeypatch.setenv("NPUCALL_TARGET", "local:")

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["npucall", "exec", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed, said = capfd.readouterr()
        return subprocess.CompletedProcess(sys.argv, ended.value.code or 0, printed, said)

    return run


@pytest.fixture(scope="session")
def run_under() -> Run:
    """``npucall exec`` with these arguments, on ``local:`` unless they say otherwise."""

    def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-c", MAIN, "exec", *map(str, arguments)]
        environment = {**os.environ, "NPUCALL_TARGET": "local:", **variables}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    return run
