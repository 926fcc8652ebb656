"""Fixtures of the simulator's own tests, which run in this process with CANN 9.x."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.simulator.build import DEFAULT_ROOT, build
from tests.simulator.tree import Tree

from .raw import Cann

ASAN = os.environ.get("NPUCALL_SIM_ASAN") == "1"
PROJECT = Path(__file__).parents[3]
START = """
import ctypes, os
from pathlib import Path
from tests.simulator.runtime.raw import *
from tests.simulator.tree import Tree
cann = Cann(Tree(Path({root!r})).generation("9.x"))
cann.aclInit(None)
cann.ok(cann.aclrtSetDevice(0))
"""


@pytest.fixture(scope="session")
def tree() -> Tree:
    """The built simulator; with the address sanitizer where NPUCALL_SIM_ASAN is 1."""
    return build(DEFAULT_ROOT.with_name("simulator-asan"), asan=True) if ASAN else build()


@pytest.fixture(scope="session")
def loaded(tree: Tree) -> Cann:
    """The libraries of 9.x, loaded once."""
    return Cann(tree.generation("9.x"))


@pytest.fixture
def bare(loaded: Cann, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cann]:
    """CANN's functions before anything was called, on kernels that compute nothing."""
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tree.generation("9.x").opp))
    monkeypatch.setenv("NPUCALL_SIM_KERNELS", "none")
    loaded.reset()
    yield loaded
    loaded.reset()


@pytest.fixture
def again(bare: Cann) -> Callable[[], None]:
    """Begins anew with device 0 set in this thread; the environment is read again."""

    def begin() -> None:
        bare.reset()
        bare.ok(bare.aclInit(None))
        bare.ok(bare.aclrtSetDevice(0))

    return begin


@pytest.fixture
def cann(bare: Cann, again: Callable[[], None]) -> Cann:
    """CANN's functions, with device 0 set in this thread."""
    again()
    return bare


@pytest.fixture
def stalled(cann: Cann) -> int:
    """A stream on which nothing more runs before the faults are cleared."""
    stream = cann.stream()
    cann.fail("aclrtMemsetAsync", status=507015, what="stall")
    cann.ok(cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, stream))
    return stream


@pytest.fixture
def process(tree: Tree) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in a process of its own, with ``cann`` as a variable."""

    def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
        here = tree.generation("9.x").environment()
        environment = {**os.environ, **here, "NPUCALL_SIM_KERNELS": "none", **variables}
        start = START.format(root=str(tree.root))
        return subprocess.run(
            [sys.executable, "-c", start + program],
            cwd=PROJECT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run
