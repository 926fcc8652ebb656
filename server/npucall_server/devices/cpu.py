"""The CPU reference: runs the operators' own formulas in the calling thread."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from npucall import evaluate
from npucall.products import product_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.evaluate import Turn
    from npucall.operators.prepare import Prepared
    from npucall.tensors import Buffer


class CpuDevice:
    """Stands for the SoC named. A turn is one block, so small calls never wait for a large one."""

    name = "cpu"

    def __init__(self, soc: str) -> None:
        self.soc = soc
        self.product = product_of(soc)
        self.lanes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2

    def plan(self, call: Prepared) -> int:
        """No workspace."""
        del call
        return 0

    def run(self, call: Prepared, storages: Mapping[str, Buffer], turn: Turn) -> list[Buffer]:
        """Computes in the calling thread, a turn a block."""
        return evaluate.run(call, storages, turn)
