"""A Slurm cluster for all tests of this folder; where there can be none they say what lacks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.npu import need_compiler
from tests.pool.hosts import missing
from tests.pool_slurm.cluster import PROGRAMS, cluster
from tests.pool_slurm.pool import Pool
from tests.simulator.build import build

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A cluster of two nodes with two simulated NPUs each, and nothing that runs on it yet."""
    if reason := missing("slurmctld slurmd munge", *PROGRAMS):
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    need_compiler()
    toolkit = build().generation("9.x").home / "set_env.sh"
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield Pool(made, toolkit)
