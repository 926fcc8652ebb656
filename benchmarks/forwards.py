"""Forward operators in this process, beside naive NumPy: an array for each step of the formula.

The evaluator computes from storages into an output that is there already, as for ``operators``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from figures import MIB, Figure, Series, compared
from operators import NUMPY, OURS, in_turn

from npucall.compute import evaluate
from npucall.declare.attributes import attribute_value
from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.dtypes import BY_NUMPY
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npucall.declare.prepare import Prepared

SHORT = (np.float16, ml_dtypes.bfloat16)


@dataclass(frozen=True)
class ForwardCase:
    """An operator, its inputs, and the same in NumPy."""

    work: str
    name: str
    naive: Callable[..., object]
    dtype: type[Any]
    shapes: Sequence[tuple[int, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 7

    def text(self) -> str:
        """How the name of its series begins."""
        shape = "x".join(map(str, self.shapes[0]))
        return f"in process, {self.work}, {np.dtype(self.dtype).name}, {shape}"

    def series(self) -> list[Series]:
        """One: times as fast as NumPy."""
        size = prod(self.shapes[0]) * np.dtype(self.dtype).itemsize
        return [Series(f"{self.text()} / {NUMPY}", "higher", "ms", "in process", size, way=NUMPY)]

    def figures(self) -> Iterator[Figure]:
        """Measures both in turn, on one thread but for what BLAS does."""
        random = np.random.default_rng(1)
        arrays = [random.random(shape, np.float32).astype(self.dtype) for shape in self.shapes]
        call = self._prepared()
        names = list(call.inputs)
        storages = {
            name: memoryview(array.view(np.uint8).reshape(-1))
            for name, array in zip(names, arrays, strict=True)
        }
        targets = {n: bytearray(spec.storage_bytes) for n, spec in call.outputs.items()}
        ways: dict[str, Callable[[], object]] = {
            OURS: lambda: evaluate.run(call, storages, targets=targets),
            NUMPY: lambda: self.naive(*arrays),
        }
        seconds = in_turn(ways, self.rounds, 1)
        (series,) = self.series()
        figure = compared(series, seconds[NUMPY], seconds[OURS])
        yield replace(figure, absolute=median(seconds[OURS]) * 1e3)

    def _prepared(self) -> Prepared:
        operator, dtype = CATALOGUE.find(self.name), BY_NUMPY[np.dtype(self.dtype)]
        names = [p.name for p in operator.inputs][: len(self.shapes)]
        specs = {n: TensorSpec(dtype, s) for n, s in zip(names, self.shapes, strict=True)}
        values = {n: attribute_value(n, a, v) for n, a, v in self._attributes(operator)}
        return prepare(Call(operator, {**specs, **values}, tuple(specs)), A2, CATALOGUE)

    def _attributes(self, operator: Any) -> Iterator[tuple[str, Any, Any]]:
        given = dict(self.attributes)
        if "dtype" in operator.by_name:
            given["dtype"] = np.dtype(self.dtype)
        return ((name, operator.by_name[name], value) for name, value in given.items())


def forward_cases(rounds: int) -> list[ForwardCase]:
    """Those of the goals."""
    single, mean = np.float32, "aclnnMean"
    pair, square, million = ((4 * MIB,),) * 2, ((1024, 1024),), ((MIB,),)

    def case(
        work: str, name: str, naive: Any, dtype: Any, shapes: Any, **given: Any
    ) -> ForwardCase:
        return ForwardCase(work, name, naive, dtype, shapes, given, rounds)

    return [
        case("Mean", mean, np.mean, single, million, dim=()),
        case("Mean over 0", mean, lambda a: a.mean(0), single, square, dim=(0,)),
        case("Mean over 1", mean, lambda a: a.mean(1), single, square, dim=(1,)),
        *(
            case("Matmul", "aclnnMatmul", np.matmul, single, ((n, n), (n, n)), cube_math_type=0)
            for n in (512, 1024)
        ),
        *(
            each
            for short in SHORT
            for each in (
                case("Mean", mean, np.mean, short, million, dim=()),
                case("ReduceSum over 0", "aclnnReduceSum", _sum_over_0, short, square, dims=(0,)),
                case("L1Loss", "aclnnL1Loss", _mean_distance, short, million * 2, reduction=1),
            )
        ),
        *(
            case("Add", "aclnnAdd", lambda a, b: a + 2 * b, kind, pair, alpha=2)
            for kind in (single, *SHORT)
        ),
    ]  # fmt: skip


def _mean_distance(one: Any, other: Any) -> Any:
    return np.abs(one - other).mean()


def _sum_over_0(array: Any) -> Any:
    return array.sum(0)
