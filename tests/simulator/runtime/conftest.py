"""Fixtures of the simulator's own tests, which run in this process with CANN 9.x."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.simulator.build import DEFAULT_ROOT, build
from tests.simulator.control import Simulator

from .raw import Cann

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulator.tree import Tree

ASAN = os.environ.get("NPUCALL_SIM_ASAN") == "1"
PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def tree() -> Tree:
    """The built simulator; with the address sanitizer where NPUCALL_SIM_ASAN is 1."""
    return build(DEFAULT_ROOT.with_name("simulator-asan"), asan=True) if ASAN else build()


@pytest.fixture(scope="session")
def loaded(tree: Tree) -> tuple[Cann, Simulator]:
    """The libraries of 9.x, loaded once."""
    generation = tree.generation("9.x")
    return Cann(generation), Simulator.open(generation.lib64)


@pytest.fixture
def simulator(
    loaded: tuple[Cann, Simulator], tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulator]:
    """A fresh simulator whose kernels compute nothing."""
    simulator = loaded[1]
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tree.generation("9.x").opp))
    monkeypatch.setenv("NPUCALL_SIM_KERNELS", "none")
    simulator.reset()
    yield simulator
    simulator.reset()


@pytest.fixture
def bare(loaded: tuple[Cann, Simulator], simulator: Simulator) -> Cann:
    """CANN's functions, before anything was called."""
    return loaded[0]


@pytest.fixture
def cann(bare: Cann) -> Cann:
    """CANN's functions, with device 0 set in this thread."""
    bare.ok(bare.aclInit(None))
    bare.ok(bare.aclrtSetDevice(0))
    return bare


@pytest.fixture
def process(tree: Tree) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in a process of its own, with ``cann`` and ``simulator`` as variables."""

    def run(
        program: str, *, generation: str = "9.x", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        start = (
            "import ctypes, os\n"
            "from pathlib import Path\n"
            "from tests.simulator.control import Simulator\n"
            "from tests.simulator.runtime.raw import *\n"
            "from tests.simulator.tree import Tree\n"
            f"generation = Tree(Path({str(tree.root)!r})).generation({generation!r})\n"
            "cann, simulator = Cann(generation), Simulator.open(generation.lib64)\n"
            "cann.aclInit(None)\n"
            "cann.ok(cann.aclrtSetDevice(0))\n"
        )
        environment = {
            **os.environ,
            **tree.generation(generation).environment(),
            "NPUCALL_SIM_KERNELS": "none",
            **variables,
        }
        return subprocess.run(
            [sys.executable, "-c", start + program],
            cwd=PROJECT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run
