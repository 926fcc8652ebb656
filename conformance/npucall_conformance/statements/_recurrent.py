"""Gradients of recurrent networks, step by step, for the statements of cells of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from npucall.tensors import Shape
from npucall_conformance.stating import reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Domain
from npucall_conformance.stating.parts import Attributes, In, Out, Setup

CELLS, PARAMS = 4, 16
"""As many as the largest call has: of two layers in both directions, with biases."""
ATTRIBUTES: dict[str, Any] = {
    "has_bias": (False,), "num_layers": (1,), "bidirectional": (False,),
    "batch_first": (False, True),
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "has_bias": True, "num_layers": 1, "bidirectional": False, "batch_first": False,
}  # fmt: skip


@dataclass(frozen=True)
class Recurrence:
    """A kind of cell."""

    gates: int
    kept: tuple[str, ...]
    """What is kept of each step, states too."""
    last: tuple[str, ...]
    """The gradients of the last states."""
    firsts: Callable[[Arguments], list[Any]]
    """The first states of all cells."""
    states: tuple[str, ...]
    """Their names among those of ``kept``."""
    step: Callable[[dict[str, Any], int, list[Any]], tuple[list[Any], list[Any], list[Any]]]
    """One step back, of arrays or of one number of each: ``step(kept, minus, grads)``.

    ``kept`` has what is kept of it, and, with a 0 behind their names, the states before; ``minus``
    is -1, and 1 where sizes of terms are added; ``grads`` are those of its states. It answers those
    of its gates on the input's side and on the state's side, and what reaches the states before
    without passing w_hh."""
    beside: Callable[[Shape], dict[str, Shape]]
    """Shapes of further inputs, of the first states' shape."""

    def shapes(self, base: Shape, given: Attributes) -> dict[str, Shape]:
        """Base is (T, B, H); the input is one wider. Layers, directions and biases as asked."""
        time, items, hidden = base
        both = 2 if given["bidirectional"] else 1
        count, width = given["num_layers"] * both, hidden + 1
        lead = (items, time) if given["batch_first"] else (time, items)
        found: dict[str, Shape] = {"input": (*lead, width), "dy": (*lead, both * hidden)}
        found |= dict.fromkeys(self.last, (count, items, hidden))
        found |= self.beside((count, items, hidden))
        found |= {f"{name}[{cell}]": base for name in self.kept for cell in range(CELLS)}
        group, rows = 4 if given["has_bias"] else 2, self.gates * hidden
        for place in range(PARAMS):
            cell, which = divmod(place, group)
            inner = width if cell < both else both * hidden
            found[f"params[{place}]"] = ((rows, inner), (rows, hidden), (rows,), (rows,))[which]
        return found | {"batch_sizes": (time,)}

    def more(
        self, note: str, base: Shape, layers: int, both: int, *, bias: bool, **rest: Any
    ) -> Setup:
        """A call with more layers, directions or biases; its further tensors are named.

        ``rest``: other attributes, and as ``setup`` further fields.
        """
        fields = rest.pop("setup", {})
        given = {"num_layers": layers, "bidirectional": both == 2, "has_bias": bias}
        named = {"batch_first": False, **given, **rest}
        count = layers * both
        names = [f"{name}[{cell}]" for name in self.kept for cell in range(1, count)]
        names += [f"params[{place}]" for place in range(2, count * (4 if bias else 2))]
        every = self.shapes(base, named)
        shapes = {**{name: every[name] for name in names}, **fields.pop("shapes", {})}
        return Setup(note, base, shapes, attributes=named, **fields)

    def arrays(self, k: Arguments) -> dict[str, Terms]:
        """All gradients; sizes are those of absolute values, so that nothing cancels."""
        value, size = (self._gradients(k, sizes=sizes) for sizes in (False, True))
        steps = k["h"][0].shape[0] * k["h"][0].shape[1]
        return {name: Terms(each, size[name], summed=steps) for name, each in value.items()}

    def _gradients(self, k: Arguments, *, sizes: bool) -> dict[str, Any]:
        made = np.abs if sizes else np.asarray
        call = Unrolled(k, self)
        lists = {name: [made(each) for each in k[name]] for name in self.kept}
        params, firsts = [made(each) for each in k["params"]], [made(n) for n in call.firsts]
        x, above = made(call.x), made(call.above)
        grads = [np.zeros(each.shape) for each in params]
        for layer in reversed(range(call.layers)):
            inputs = call.inputs(x, lists["h"], layer)
            down = np.zeros(inputs.shape)
            for cell, own, order in call.cells(layer):
                w_ih, w_hh = params[cell * call.group : cell * call.group + 2]
                flow = [made(each[cell]) for each in call.lasts]
                for number in reversed(range(len(x))):
                    t, there = order[number], call.live[order[number]][:, None]
                    kept = {name: lists[name][cell][t] for name in self.kept}
                    for name, first in zip(self.states, firsts, strict=True):
                        last = lists[name][cell][order[number - 1]] if number else first[cell]
                        kept[f"{name}0"] = last
                    minus = 1 if sizes else -1
                    *sides, direct = self.step(kept, minus, [above[t][:, own] + flow[0], *flow[1:]])
                    outer, inner = (np.where(there, np.hstack(side), 0) for side in sides)
                    direct[0] = direct[0] + inner @ w_hh
                    flow = [np.where(there, a, b) for a, b in zip(direct, flow, strict=True)]
                    parts = outer.T @ inputs[t], inner.T @ kept["h0"], outer.sum(0), inner.sum(0)
                    for place, part in enumerate(parts[: call.group]):
                        grads[cell * call.group + place] += part
                    down[t] += outer @ w_ih
                for found, one in zip(call.found, flow, strict=True):
                    found[cell] = one
            above = down
        return call.answer(above, grads)

    def loops(self, k: Arguments) -> dict[str, Any]:
        """One unit of one item at a time, with Python's floats."""
        call = Unrolled(k, self)
        grads, above = [np.zeros(each.shape) for each in k["params"]], call.above
        for layer in reversed(range(call.layers)):
            inputs = call.inputs(call.x, k["h"], layer)
            down = np.zeros(inputs.shape)
            for cell, own, order in call.cells(layer):
                mine = grads[cell * call.group : (cell + 1) * call.group]
                for item in range(inputs.shape[1]):
                    flow = [each[cell][item].tolist() for each in call.lasts]
                    for number in reversed(range(len(order))):
                        t = order[number]
                        if not flow[0] or not call.live[t, item]:
                            continue  # no hidden numbers, or beyond the item's end
                        last = order[number - 1] if number else None
                        before = call.before(cell, last, item)
                        into = [a + b for a, b in zip(above[t, item, own], flow[0], strict=True)]
                        *sides, direct = self._units(k, (cell, t, item), before, [into, *flow[1:]])
                        _add(sides, (inputs[t, item], before[0]), mine)
                        w_ih, w_hh = (
                            each.tolist() for each in k["params"][cell * call.group :][:2]
                        )
                        down[t, item] += [_along(sides[0], row) for row in zip(*w_ih, strict=True)]
                        passed = [_along(sides[1], row) for row in zip(*w_hh, strict=True)]
                        flow = [
                            [a + b for a, b in zip(direct[0], passed, strict=True)],
                            *direct[1:],
                        ]
                    for found, one in zip(call.found, flow, strict=True):
                        found[cell][item] = one
            above = down
        return call.answer(above, grads)

    def _units(
        self, k: Arguments, at: tuple[int, int, int], before: list[Any], grads: list[list[float]]
    ) -> list[list[Any]]:
        """A step of one item: for its gates on both sides a number each, and for its states."""
        cell, t, item = at
        answers = []
        for unit in range(len(before[0])):
            kept = {name: float(k[name][cell][t, item, unit]) for name in self.kept}
            pairs = zip(self.states, before, strict=True)
            kept |= {f"{name}0": float(each[unit]) for name, each in pairs}
            answers.append(self.step(kept, -1, [float(each[unit]) for each in grads]))
        outer, inner, direct = (
            list(zip(*each, strict=True)) for each in zip(*answers, strict=True)
        )
        return [*([one for gate in side for one in gate] for side in (outer, inner)), direct]

    def inputs(self, domains: tuple[Domain, ...]) -> tuple[In, ...]:
        """The lists of what is kept."""
        pairs = zip(self.kept, domains, strict=True)
        return tuple(one for name, domain in pairs for one in members(name, CELLS, domain))


def _along(gates: list[float], weights: tuple[float, ...]) -> float:
    return float(reals.total([g * w for g, w in zip(gates, weights, strict=True)]))


def _add(sides: list[Any], into: tuple[Any, ...], grads: list[Any]) -> None:
    """Adds a step of one item to the gradients of a cell's parameters."""
    for place, found in enumerate(grads):
        for row, one in enumerate(sides[place % 2]):
            found[row] += one * into[place] if place < len(into) else one


class Unrolled:
    """What the attributes say, tensors with T before B, and where gradients of states go."""

    def __init__(self, k: Arguments, kind: Recurrence) -> None:
        self.k, self.layers = k, k["num_layers"]
        self.both, self.group = 2 if k["bidirectional"] else 1, 4 if k["has_bias"] else 2
        time, items, self.hidden = k["h"][0].shape
        sizes = k["batch_sizes"]
        self.rows = sizes is not None
        self.swap = bool(k["batch_first"]) and not self.rows
        counts = np.full(time, items) if sizes is None else sizes
        self.live = np.arange(items) < counts[:, None]
        self.x = self._in_time(k["input"], (time, items))
        dy = k["dy"]
        self.above = (
            np.zeros((time, items, self.both * self.hidden))
            if dy is None else self._in_time(dy, (time, items))
        )  # fmt: skip
        self.firsts = kind.firsts(k)
        self.kind = kind
        shape = self.firsts[0].shape
        self.lasts = [np.zeros(shape) if k[n] is None else k[n] for n in kind.last]
        self.found = [np.zeros(shape) for _ in self.firsts]

    def _in_time(self, array: Any, lead: Shape) -> Any:
        if self.swap:
            return np.swapaxes(array, 0, 1)
        return array.reshape(*lead, array.shape[-1])

    def inputs(self, x: Any, states: Any, layer: int) -> Any:
        """What a layer got."""
        below = states[(layer - 1) * self.both : layer * self.both]
        return np.concatenate(list(below), 2) if layer else x

    def cells(self, layer: int) -> Iterator[tuple[int, slice, list[int]]]:
        """Each cell of a layer, its part of the layer's result, and its steps in its order."""
        steps = list(range(len(self.x)))
        for way in range(self.both):
            own = slice(way * self.hidden, (way + 1) * self.hidden)
            yield layer * self.both + way, own, steps[::-1] if way else steps

    def before(self, cell: int, last: int | None, item: int) -> list[Any]:
        """The states of an item before a step, of which ``last`` is the step before."""
        names = zip(self.kind.states, self.firsts, strict=True)
        return [
            (first[cell] if last is None else self.k[name][cell][last])[item]
            for name, first in names
        ]  # fmt: skip

    def answer(self, of_x: Any, grads: list[Any]) -> dict[str, Any]:
        """All gradients by the names of the outputs."""
        dx = np.swapaxes(of_x, 0, 1) if self.swap else of_x.reshape(self.k["input"].shape)
        names = [f"d{name}_prev_out" for name in self.kind.states]
        found = {"dx_out": dx, **dict(zip(names, self.found, strict=True))}
        return found | {f"dparams_out[{place}]": each for place, each in enumerate(grads)}


def is_there(name: str) -> Callable[[Arguments], bool]:
    return lambda k: k[name] is not None


def members(name: str, count: int, domain: Domain, always: int = 1) -> tuple[In, ...]:
    """The tensors of a list, of which the first ones are always there."""
    return tuple(
        In(f"{name}[{place}]", domain, optional=place >= always, refused=place >= always)
        for place in range(count)
    )


def of_parameters() -> tuple[Out, ...]:
    """Their gradients."""
    return tuple(
        Out(f"dparams_out[{n}]", f"params[{n}]", "input", asked=is_there(f"params[{n}]"))
        for n in range(PARAMS)
    )
