"""Windows of planes with two axes, or with three: what statements of poolings share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from npucall.tensors import Shape
from npucall_conformance.stating import reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw
from npucall_conformance.stating.parts import Attributes

UNCLIPPED = ("Ascend910", "Ascend310P")
Cells = list[tuple[list[int], int]]
"""Of each window the places of its numbers, in row-major order, and how many cells count."""


class Pooling(NamedTuple):
    """Windows of planes with so many axes: they move, or share the planes among them."""

    axes: int
    adaptive: bool = False

    def counts(self, shape: Shape, k: Mapping[str, Any]) -> Shape:
        """Windows along each axis of planes of a shape."""
        if self.adaptive:
            wanted = k["output_size"] if "output_size" in k else k["grad_output"].shape
            return tuple(wanted[-self.axes :])
        found = []
        for place, size in enumerate(shape[-self.axes :]):
            kernel, stride, padding, dilation = self._given(k, place)
            free = size + 2 * padding - dilation * (kernel - 1) - 1
            count = (math.ceil(free / stride) if k["ceil_mode"] else free // stride) + 1
            if k["ceil_mode"] and (count - 1) * stride >= size + padding:
                count -= 1
            found.append(count)
        return tuple(found)

    def _given(self, k: Mapping[str, Any], place: int) -> list[int]:
        steps = k["stride"] or k["kernel_size"]
        values = (k["kernel_size"], steps, k["padding"], k.get("dilation", (1,)))
        return [each[place % len(each)] for each in values]

    def windows(self, k: Arguments) -> Shape:
        """The shape of what is pooled."""
        shape = k["self"].shape
        return (*shape[: -self.axes], *self.counts(shape, k.values))

    def along(self, k: Arguments, place: int) -> Cells:
        """The windows of an axis."""
        size, count = k["self"].shape[place - self.axes], self.windows(k)[place - self.axes]
        if self.adaptive:
            shared = [range(i * size // count, -((-(i + 1) * size) // count)) for i in range(count)]
            return [([*window], len(window)) for window in shared]
        kernel, stride, padding, dilation = self._given(k.values, place)
        found = []
        for window in range(count):
            cells = [window * stride - padding + i * dilation for i in range(kernel)]
            inside = [cell for cell in cells if 0 <= cell < size]
            within = [cell for cell in cells if cell < size + padding]
            padded = cells if k.product in UNCLIPPED else within
            found.append((inside, len(padded if k.values.get("count_include_pad") else inside)))
        return found

    def cells(self, k: Arguments) -> Cells:
        """The windows of a plane."""
        found = []
        for window in product(*(self.along(k, place) for place in range(self.axes))):
            places = [0]
            for (inside, _), size in zip(window, k["self"].shape[-self.axes :], strict=True):
                places = [place * size + cell for place in places for cell in inside]
            found.append((places, math.prod(count for _, count in window)))
        return found

    def planes(self, k: Arguments, name: str) -> Any:
        """An argument by its planes."""
        shape = k[name].shape
        return k[name].reshape(math.prod(shape[: -self.axes]), math.prod(shape[-self.axes :]))

    def grad_shapes(self, base: Shape, k: Attributes) -> dict[str, Shape]:
        """Of gradients, planes and indices."""
        pooled = (*base[: -self.axes], *self.counts(base, k))
        return {"grad_output": pooled, "self": base, "indices": pooled}

    def places(self, draw: Draw) -> Any:
        """Any places of the planes."""
        plane = math.prod(draw.shapes["self"][-self.axes :])
        return draw.random.integers(0, max(plane, 1), draw.shape)

    def maxima(self, k: Arguments) -> dict[str, Any]:
        """The largest numbers, window by window."""
        best, places = [], []
        for plane in self.planes(k, "self").tolist():
            for window, _ in self.cells(k):
                lost = [cell for cell in window if math.isnan(plane[cell])]
                place = lost[-1] if lost else max(window, key=lambda cell: plane[cell])
                best.append(plane[place])
                places.append(place)
        return {"out": np.reshape(best, self.windows(k)),
                "indices": np.reshape(places, self.windows(k))}  # fmt: skip

    def maxima_of_arrays(self, k: Arguments) -> dict[str, Terms]:
        """The same, for all planes at once."""
        planes = self.planes(k, "self")
        best, places = [], []
        for window, _ in self.cells(k):
            numbers = planes[:, window]
            lost = np.isnan(numbers)
            last = numbers.shape[1] - 1 - np.argmax(lost[:, ::-1], axis=1)
            largest = np.argmax(np.where(lost, -reals.INFINITY, numbers), axis=1)
            which = np.where(lost.any(1), last, largest)
            best.append(np.take_along_axis(numbers, which[:, np.newaxis], 1)[:, 0])
            places.append(np.array(window)[which])
        shape = self.windows(k)
        return {"out": Terms(np.array(best).T.reshape(shape)),
                "indices": Terms(np.array(places).T.reshape(shape).astype(np.float64))}  # fmt: skip

    def added(self, k: Arguments) -> Any:
        """Gradients of the largest numbers, each added where it stands."""
        found = []
        for gradients, where in zip(self.planes(k, "grad_output").tolist(),
                                    self.planes(k, "indices").tolist(), strict=True):  # fmt: skip
            parts: list[list[float]] = [[] for _ in range(self.planes(k, "self").shape[1])]
            for g, place in zip(gradients, where, strict=True):
                parts[int(place)].append(g)
            found += [reals.total(each) for each in parts]
        return np.reshape(found, k["self"].shape)

    def added_of_arrays(self, k: Arguments) -> Terms:
        """The same, for all planes at once."""
        g, where = self.planes(k, "grad_output"), self.planes(k, "indices").astype(np.int64)
        value, size = (np.zeros(self.planes(k, "self").shape) for _ in range(2))
        lines = np.arange(len(g))
        for column in range(g.shape[1]):
            value[lines, where[:, column]] += g[:, column]
            size[lines, where[:, column]] += np.abs(g[:, column])
        shape = k["self"].shape
        return Terms(value.reshape(shape), size.reshape(shape), summed=g.shape[1])

    def averages(self, k: Arguments) -> Any:
        """Averages, window by window."""
        found = [
            reals.divide(reals.total([plane[place] for place in places]), divisor(k, count))
            for plane in self.planes(k, "self").tolist()
            for places, count in self.cells(k)
        ]
        return np.reshape(found, self.windows(k))

    def averages_of_arrays(self, k: Arguments) -> Terms:
        """The same, for all planes at once."""
        window, number, share = self._shares(k)
        return _summed(self.planes(k, "self"), number, window, share, self.windows(k))

    def averaged(self, k: Arguments) -> Any:
        """Gradients of averages, number by number."""
        found = []
        for plane in self.planes(k, "grad_output").tolist():
            parts: list[list[float]] = [[] for _ in range(self.planes(k, "self").shape[1])]
            for g, (places, count) in zip(plane, self.cells(k), strict=True):
                for place in places:
                    parts[place].append(reals.divide(g, divisor(k, count)))
            found += [reals.total(each) for each in parts]
        return np.reshape(found, k["self"].shape)

    def averaged_of_arrays(self, k: Arguments) -> Terms:
        """The same, for all planes at once."""
        window, number, share = self._shares(k)
        return _summed(self.planes(k, "grad_output"), window, number, share, k["self"].shape)

    def _shares(self, k: Arguments) -> tuple[Any, Any, Any]:
        """What windows have of the numbers of a plane, an entry for each pair that shares any."""
        windows, numbers, counts = (np.full(1, each, np.int64) for each in (0, 0, 1))
        for place, size in enumerate(k["self"].shape[-self.axes :]):
            of_axis = self.along(k, place)
            window, number, count = np.array(
                [(at, number, count) for at, (inside, count) in enumerate(of_axis)
                 for number in inside], np.int64).reshape(-1, 3).T  # fmt: skip
            windows = np.add.outer(windows * len(of_axis), window).ravel()
            numbers = np.add.outer(numbers * size, number).ravel()
            counts = np.multiply.outer(counts, count).ravel()
        return windows, numbers, np.array([1 / divisor(k, count) for count in counts.tolist()])


def divisor(k: Arguments, count: int) -> float:
    """What the sum of a window of so many cells is divided by."""
    return float(k.values.get("divisor_override") or count)


def _summed(planes: Any, source: Any, target: Any, share: Any, shape: Shape) -> Terms:
    parts = planes[:, source] * share
    length = math.prod(shape) // max(len(planes), 1)

    def sums(parts: Any) -> Any:
        found = np.zeros((length, len(planes)))
        np.add.at(found, target, parts.T)
        return found.T.reshape(shape)

    return Terms(sums(parts), sums(np.abs(parts)))
