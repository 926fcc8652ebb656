"""Operators in this process: the evaluator beside the formula on whole arrays, and beside PyTorch.

KL-divergence backward, mean reduction. What it is compared with, in turn with it, in each round:
NumPy (ml_dtypes for bfloat16) computing ``-(target * grad_output) * factor`` with an array for each
step, and the same three steps in PyTorch, where it is installed, with ``out=``. The evaluator
computes from storages into an output that is there already, as PyTorch does.
"""

from __future__ import annotations

import time
import timeit
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from figures import KIB, MIB, Figure, Series, compared, size_text

from npucall.compute import evaluate
from npucall.compute.helpers import Helpers
from npucall.dtypes import BY_NUMPY
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npucall.declare.prepare import Prepared

INPUTS = ("grad_output", "self", "target")
OURS, NUMPY, TORCH, NEW, FORMULA = "ours", "NumPy", "torch", "into new memory", "formula"
_REST_SECONDS = 0.005
"""Between two ways: after a call, threads of OpenMP wait busily for 4 ms, on cores of the next."""


class Work:
    """The same numbers for everyone: three tensors, and an output."""

    def __init__(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        self.arrays = dict(zip(INPUTS, arrays, strict=True))
        self.dtype, self.elements = arrays[0].dtype, arrays[0].size
        self.factor = self.dtype.type(np.float32(1 / self.elements))
        self.prepared = self._prepared()
        self.storages = {n: memoryview(a.view(np.uint8)) for n, a in self.arrays.items()}
        self.out = np.full(arrays[0].nbytes, 0, np.uint8)

    def _prepared(self) -> Prepared:
        spec = TensorSpec(BY_NUMPY[self.dtype], (self.elements,))
        call = encode(kl_div_backward.name, "", dict.fromkeys(INPUTS, spec), INPUTS)
        return PreparedCalls(CATALOGUE, A2, "").of(call)

    def formula(self) -> object:
        """The operator's own, on arrays."""
        return kl_div_backward.formula(self.prepared.facts, **self.arrays)  # type: ignore[misc]

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


@dataclass(frozen=True)
class OperatorCase:
    """The evaluator on so many threads, and what it is compared with."""

    work: str
    dtype: type[Any]
    size: int
    threads: int
    others: tuple[str, ...] = (NUMPY, TORCH, NEW)
    rounds: int = 7
    calls: int = 1

    def text(self) -> str:
        """How the names of its series begin."""
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return f"in process, {self.work}, {size_text(self.size)}, {threads}"

    def series(self) -> list[Series]:
        """A series for each that it is compared with: times as fast as that."""
        return [
            Series(f"{self.text()} / {other}", "higher", "ms", "in process", self.size, way=other)
            for other in self.others
        ]

    def figures(self) -> Iterator[Figure]:
        """Measures: NumPy has one thread, PyTorch as many as we."""
        count, random = self.size // np.dtype(self.dtype).itemsize, np.random.default_rng(1)
        arrays = [random.random(count, np.float32).astype(self.dtype) for _ in INPUTS]
        with on_threads(self.threads) as helpers:
            seconds = in_turn(self._runs(Work(arrays), helpers), self.rounds, self.calls)
        for other, series in zip(self.others, self.series(), strict=True):
            if other in seconds:
                # Times as fast: theirs over ours. What is told in milliseconds is ours.
                figure = compared(series, seconds[other], seconds[OURS])
                yield replace(figure, absolute=median(seconds[OURS]) * 1e3)
            else:
                yield Figure(series)

    def _runs(self, work: Work, helpers: Helpers | None) -> dict[str, Callable[[], object]]:
        ways = {
            OURS: lambda: work.into_given_memory(helpers),
            NUMPY: work.naive,
            NEW: work.into_new_memory,
            FORMULA: work.formula,
        }
        if find_spec("torch") and TORCH in self.others:
            ways[TORCH] = work.torch()
        return {name: run for name, run in ways.items() if name == OURS or name in self.others}


def operator_cases(rounds: int) -> list[OperatorCase]:
    """Those of the goals, and what the evaluator adds to the formula of a small call."""
    # The mean of so many float16 is below its normal numbers.
    underflow = "float16 with underflow", np.float16, MIB
    cases = [
        OperatorCase(*work, threads, rounds=rounds)
        for work in (
            ("float32", np.float32, 64 * MIB),
            ("bfloat16", ml_dtypes.bfloat16, 64 * MIB),
            underflow,
        )
        for threads in (1, 2)
    ]
    return [*cases, OperatorCase("float32", np.float32, KIB, 1, (FORMULA,), rounds, calls=500)]


@contextmanager
def on_threads(count: int) -> Iterator[Helpers | None]:
    """Helpers for so many threads in all; PyTorch gets as many."""
    if find_spec("torch"):
        import torch  # noqa: PLC0415  # need not be installed

        torch.set_num_threads(count)
    helpers = Helpers(count - 1)
    yield helpers if count > 1 else None
    helpers.close()


def in_turn(
    ways: dict[str, Callable[[], object]], rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds of a call, for each way and round."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with np.errstate(all="ignore"):
        for run in ways.values():
            run()
        for index in range(rounds):
            for name in list(ways)[:: -1 if index % 2 else 1]:
                time.sleep(_REST_SECONDS)
                seconds[name].append(timeit.timeit(ways[name], number=calls) / calls)
    return seconds
