"""Operators in this process: the evaluator beside the formula on whole arrays, and beside PyTorch.

KL-divergence backward, mean reduction. What it is compared with, in turn with it, in each round:
NumPy (ml_dtypes for bfloat16) computing ``-(target * grad_output) * factor`` with an array for each
step, and the same three steps in PyTorch, where it is installed, with ``out=``. The evaluator
computes from storages into an output that is there already, as PyTorch does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import timeit
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Column, Table

from npucall import evaluate
from npucall.calls import PreparedCalls, encode
from npucall.dtypes import BY_NUMPY
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2
from npucall.sharing import Helpers
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.operators.prepare import Prepared

INPUTS = ("grad_output", "self", "target")
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Figure:
    """How many times as fast as something else: the median over rounds, and how far they differ."""

    name: str
    ratio: float
    spread: float
    must: float | None
    aim: float | None
    absolute: float
    unit: str = "ms"
    better: str = "higher"

    @property
    def reached(self) -> bool:
        """Whether what must be is."""
        return self.must is None or self.ratio >= self.must


class Work:
    """The same numbers for everyone: three tensors of ``size`` bytes each, and an output."""

    def __init__(self, dtype: type[Any], size: int) -> None:
        self.dtype, self.size = np.dtype(dtype), size
        self.elements = size // self.dtype.itemsize
        random = np.random.default_rng(1)
        self.arrays = {
            name: random.random(self.elements, np.float32).astype(self.dtype) for name in INPUTS
        }
        self.factor = self.dtype.type(np.float32(1 / self.elements))
        self.prepared = self._prepared()
        self.storages = {n: memoryview(a.view(np.uint8)) for n, a in self.arrays.items()}
        self.out = np.full(size, 0, np.uint8)

    def _prepared(self) -> Prepared:
        spec = TensorSpec(BY_NUMPY[self.dtype], (self.elements,))
        call = encode(kl_div_backward.name, "", dict.fromkeys(INPUTS, spec), INPUTS)
        return PreparedCalls(CATALOGUE, A2, "").of(call)

    def formula(self) -> object:
        """The operator's own, on arrays."""
        return kl_div_backward.formula(self.prepared.whole, **self.arrays)  # type: ignore[misc]

    def naive(self) -> object:
        """An array for each step."""
        return -(self.arrays["target"] * self.arrays["grad_output"]) * self.factor

    def into_new_memory(self) -> object:
        """The evaluator, whose answer has memory of its own."""
        return evaluate.run(self.prepared, self.storages)

    def into_given_memory(self, helpers: Helpers | None = None) -> object:
        """The evaluator, into an output that is there."""
        targets = {"out": self.out.data}
        return evaluate.run(self.prepared, self.storages, targets=targets, helpers=helpers)

    def torch(self) -> Callable[[], object]:
        """PyTorch, into an output that is there."""
        import torch  # noqa: PLC0415  # need not be installed

        of_bytes = getattr(torch, self.dtype.name)
        target, grad_output = (
            torch.from_numpy(self.arrays[name].view(np.uint8)).view(of_bytes)
            for name in ("target", "grad_output")
        )
        out, factor = torch.zeros_like(target), float(self.factor)

        def run() -> None:
            torch.mul(target, grad_output, out=out)
            torch.neg(out, out=out)
            torch.mul(out, factor, out=out)

        return run


def measure(rounds: int) -> list[Figure]:
    """The figures of operators in process, with 1 thread and with 2."""
    single, short = Work(np.float32, 64 * MIB), Work(ml_dtypes.bfloat16, 64 * MIB)
    tiny = Work(np.float16, MIB)  # the mean of so many is below the normal float16
    return [
        *large("float32, 64 MiB", single, rounds, {1: 1.5, 2: 2.0}, aim=1.0),
        *large("bfloat16, 64 MiB", short, rounds, {1: 3.5, 2: None}, aim=0.5),
        *large("float16 with underflow, 1 MiB", tiny, rounds, {1: 10.0, 2: None}, aim=0.5),
        small(Work(np.float32, KIB), rounds),
    ]


def large(
    name: str, work: Work, rounds: int, musts: dict[int, float | None], aim: float
) -> list[Figure]:
    """The evaluator beside NumPy on one thread, and beside PyTorch on as many as it has itself."""
    figures = []
    for threads, must in musts.items():
        with _threads(threads) as helpers:
            ways = {
                "naive": work.naive,
                "new": work.into_new_memory,
                "ours": lambda helpers=helpers: work.into_given_memory(helpers),
            }
            if find_spec("torch"):
                ways["torch"] = work.torch()
            seconds = _in_turn(ways, rounds)
        title = f"{name}, {threads} thread{'s' * (threads > 1)}"
        figures.append(_figure(f"{title}: naive", seconds, "naive", must, None))
        if "torch" in ways:
            figures.append(_figure(f"{title}: torch with out=", seconds, "torch", None, aim))
        if threads == 1:
            figures.append(_figure(f"{title}: into new memory", seconds, "new", None, None))
    return figures


def small(work: Work, rounds: int) -> Figure:
    """The evaluator beside the bare formula, on arrays that are there: what its own part costs."""
    ways = {"ours": work.into_new_memory, "formula": work.formula}
    seconds = _in_turn(ways, rounds, calls=500)
    figure = _figure("float32, 1 KiB: formula", seconds, "formula", None, None)
    return Figure(**{**vars(figure), "absolute": figure.absolute * 1e3, "unit": "us"})


@contextmanager
def _threads(count: int) -> Iterator[Helpers | None]:
    """Helpers for so many threads in all; PyTorch gets as many."""
    if find_spec("torch"):
        import torch  # noqa: PLC0415  # need not be installed

        torch.set_num_threads(count)
    helpers = Helpers(count - 1)
    yield helpers if count > 1 else None
    helpers.close()


def _in_turn(
    ways: dict[str, Callable[[], object]], rounds: int, calls: int = 1
) -> dict[str, list[float]]:
    """Seconds of a call, for each way and round."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with np.errstate(all="ignore"):
        for run in ways.values():
            run()
        for _ in range(rounds):
            for name, run in ways.items():
                seconds[name].append(timeit.timeit(run, number=calls) / calls)
    return seconds


def _figure(
    name: str, seconds: dict[str, list[float]], other: str, must: float | None, aim: float | None
) -> Figure:
    ratios = [them / us for us, them in zip(seconds["ours"], seconds[other], strict=True)]
    return Figure(
        name,
        statistics.median(ratios),
        max(ratios) - min(ratios),
        must,
        aim,
        statistics.median(seconds["ours"]) * 1e3,
    )


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each way, in turn")
    options = parser.parse_args()
    name = Column("times as fast as", no_wrap=True)
    table = Table(name, "ratio", "spread", "must", "aim", "took", box=None)
    for figure in measure(options.rounds):
        bounds = ("" if bound is None else f">= {bound}" for bound in (figure.must, figure.aim))
        table.add_row(
            figure.name, f"{figure.ratio:.2f}", f"{figure.spread:.2f}", *bounds,
            f"{figure.absolute:.4g} {figure.unit}",
        )  # fmt: skip
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
