"""Gradients of recurrent networks: what layers and directions have in common, whatever a cell is.

A cell is what one layer does in one direction. Of G gates it has the weights w_ih (G H, I) and w_hh
(G H, H), and with biases b_ih and b_hh (G H,). Cells stand layer by layer, and within a layer the
direction from the first step before that from the last one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Fault
from npucall.dtypes import AnyArray, Array
from npucall.tensors import Shape


def directions(draft: Draft) -> int:
    """Of each layer."""
    return 2 if draft.attribute("bidirectional") else 1


def cells(draft: Draft) -> int:
    """How many there are: one for each layer and direction."""
    return int(draft.attribute("num_layers")) * directions(draft)


def parameters(draft: Draft, gates: int, width: int, hidden: int) -> list[Shape]:
    """The shapes of all parameters; ``width`` is that of the input."""
    found: list[Shape] = []
    both = directions(draft)
    for cell in range(cells(draft)):
        own = width if cell < both else both * hidden
        found += [(gates * hidden, own), (gates * hidden, hidden)]
        found += [(gates * hidden,)] * 2 if draft.attribute("has_bias") else []
    return found


def of_length(draft: Draft, name: str, count: int) -> Iterator[Fault]:
    """A list that the call gives of another length."""
    if name in draft.lists and len(draft.lists[name]) != count:
        yield name, f"{count} tensors", len(draft.lists[name])


def of_shapes(draft: Draft, name: str, shapes: Iterable[Shape]) -> Iterator[Fault]:
    """A tensor of another shape, or those of a list."""
    for place, shape in zip(draft.members(name), shapes, strict=False):
        spec = draft.tensor(place)
        if spec is not None and spec.shape != shape:
            yield place, f"shape {shape}", spec.shape


def held(facts: Facts, _: Mapping[str, Any]) -> int:
    """Bytes of what is known of each step, and of what all layers hand down."""
    return 44 * max(map(prod, facts.shapes.values())) + 40 * facts.count("h[0]")


class CellPass(NamedTuple):
    """What a cell gets in order to go back through its steps."""

    number: int
    w_hh: AnyArray
    upstream: AnyArray
    """The gradients of its states, (T, B, H), of all that is above them."""
    times: Sequence[int]
    """Its steps, in its own order."""


Back = Callable[[CellPass], tuple[AnyArray, AnyArray, AnyArray]]
"""Answers the gradients of the gates on the input's side, (T, B, G H), and on the state's side, and
the state before each step, (T, B, H)."""


class Network(NamedTuple):
    """The layers of a call, and what they got."""

    facts: Facts
    params: Sequence[Array]
    h: Sequence[Array]
    """The states of each cell."""
    layers: int
    both: int
    """How many directions a layer has."""
    has_bias: bool

    def back(self, first: AnyArray, upstream: AnyArray, cell: Back) -> tuple[AnyArray, list[Any]]:
        """The gradients of the input ``first``, (T, B, I), and of all parameters."""
        facts, both, group = self.facts, self.both, 4 if self.has_bias else 2
        times = range(len(first))
        grads: list[Any] = []
        for layer in reversed(range(self.layers)):
            below = range((layer - 1) * both, layer * both)
            given = (
                np.concatenate([facts.read(self.h[c], ...) for c in below], -1) if layer else first
            )
            down, of_layer = np.zeros(given.shape, facts.dtype), []
            for way, own in enumerate(np.split(upstream, both, -1)):
                number = layer * both + way
                w_ih, w_hh = (facts.read(each, ...) for each in self.params[number * group :][:2])
                answer = cell(CellPass(number, w_hh, own, times[:: -1 if way else 1]))
                of_layer += self._of_parameters(given, *answer)
                down += answer[0] @ w_ih
            upstream, grads = down, of_layer + grads
        return upstream, grads

    def _of_parameters(
        self, given: AnyArray, outer: AnyArray, inner: AnyArray, before: AnyArray
    ) -> list[AnyArray]:
        rows = prod(given.shape[:2])
        flat = [each.reshape(rows, each.shape[-1]) for each in (outer, inner)]
        into = [each.reshape(rows, each.shape[-1]) for each in (given, before)]
        found = [products(*pair) for pair in zip(flat, into, strict=True)]
        return found + ([gates.sum(0, np.float64) for gates in flat] if self.has_bias else [])


def products(gates: AnyArray, rows: AnyArray) -> AnyArray:
    """The gradient of a weight: the products of all steps, added in float64."""
    step = max(BLOCK // (gates.shape[1] + rows.shape[1]), 1)
    total = np.zeros((gates.shape[1], rows.shape[1]))
    for start in range(0, len(gates), step):
        some = slice(start, start + step)
        total += gates[some].astype(np.float64).T @ rows[some].astype(np.float64)
    return total
