"""What the common tests have to know of an operator; ``test_every_operator`` collects it.

An operator's test module has a ``Subject``: its table of defects, its cells, its torch function.
What holds for every operator is tried from that; the module itself tests what is peculiar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute.evaluate import compute
from npucall.declare.declaration import Operator
from npucall.declare.over import Elementwise
from npucall.declare.parameters import Attribute, Kind
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950, Product

from .gradients import FLOATS, LOCAL
from .ulp import STEPWISE_HALF

if TYPE_CHECKING:
    from .faults import Table

Tensors = dict[str, Any]
Shape = tuple[int, ...]
Draw = Callable[[np.random.Generator, Shape], Any]

NONE, MEAN, SUM, BATCHMEAN = range(4)
SHAPE = (12, 17)
"""Of inputs of which a subject says nothing else."""
THREE, TWO = "FLOAT FLOAT16 BF16", "FLOAT FLOAT16"
WITH_BF16, WITHOUT_BF16 = (A2, A3, ASCEND_950), (ASCEND_910, ASCEND_310P, ASCEND_310B)


@dataclass(frozen=True)
class Given:
    """What a call has that the ordinary one of a subject has not."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        items = (*self.attributes.items(), *self.shapes.items())
        return " ".join([*(f"{n}={v}" for n, v in items), *(f"no {n}" for n in self.without)])


def every(
    *shapes: Mapping[str, Shape],
    without: Sequence[tuple[str, ...]] = ((),),
    **values: Sequence[Any],
) -> tuple[Given, ...]:
    """All combinations of shapes, of values of attributes, and of inputs left out."""
    attributes = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    return tuple(Given(*parts) for parts in product(attributes, shapes or ({},), without))


def of_one_shape(names: str, *shapes: Shape) -> list[dict[str, Shape]]:
    """All these inputs of one shape, for each of the shapes."""
    return [dict.fromkeys(names.split(), shape) for shape in shapes]


@dataclass(frozen=True)
class Cells:
    """Single elements and what comes out of them, written out."""

    columns: str
    """Names of inputs and attributes; an input without a column is 0.5."""
    rows: Sequence[Sequence[Any]]
    """A value for each column, None for an input left out, and behind them the result."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[Any] = FLOATS


@dataclass(frozen=True, eq=False)
class Subject:
    """An operator as the tests see it. What documents say of it stands here once more."""

    table: Table
    prototype: str
    """The parameters of its C function, as in the documents, without the last two."""
    documented: tuple[Product, ...]
    legacy: tuple[Product, ...] | None = None
    """Products that the software has beyond the documents; None for all others that are older."""
    newer: str = THREE
    """The dtypes that all its tensors may have at once, on products with BF16 and on older ones."""
    older: str = TWO
    typed: tuple[str, ...] = ()
    """The tensors of which that is said; those that are FLOAT in the table if left out."""
    tables: tuple[Table, ...] = ()
    """Those of products where other things are wrong."""
    unreachable: frozenset[str] = frozenset()
    """Checks that no defect of the table reaches."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Of an ordinary call, as a caller gives them."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    values: Mapping[str, Draw] = field(default_factory=dict)
    """How inputs are drawn that are not any numbers."""
    absent: tuple[str, ...] = ()
    """Inputs that the ordinary call does without."""
    made: Callable[[Any], Tensors] | None = None
    """Makes the inputs of the ordinary call in a dtype, where they depend on each other."""
    cells: Cells | None = None
    torch: Callable[..., Any] | None = None
    """torch's result, of tensors in float64 by name and of the attributes."""
    calls: Sequence[Given] = (Given(),)
    """Calls that torch answers alike; their shapes are those that blocks are cut from."""
    noise: Callable[..., Any] | None = None
    """The size of what is added up, from tensors, torch's results and attributes."""
    casts: tuple[Any, ...] = ()
    """The dtypes that an output may have that is given, inputs being float16."""
    stretches: bool = False
    """Inputs broadcast, and nothing is summed."""
    half_noise: float = 0
    """What rounding to FLOAT16 inside adds to the noise; STEPWISE_HALF if after every step."""
    follows: str = ""
    """The attribute that says the dtype of the result; in an ordinary call it is the inputs'."""
    computes_empty: bool = False
    """No check ends a call that is empty."""

    @property
    def operator(self) -> Operator[..., Any]:
        return self.table.operator

    @property
    def reduces(self) -> bool:
        """Whether elements are added up that are not rounded before, as those of a loss are."""
        over = self.operator.over
        return isinstance(over, Elementwise) and over.factor is not None

    @property
    def elementwise(self) -> bool:
        """Whether it answers an element for each, at least without a reduction."""
        has_none = not self.reduces or "reduction" in self.attributes
        return has_none and isinstance(self.operator.over, Elementwise)

    @property
    def stepwise(self) -> bool:
        """Whether FLOAT16 is rounded after every step."""
        return self.half_noise == STEPWISE_HALF

    @property
    def unscaled(self) -> dict[str, Any]:
        """The ordinary attributes, but without a reduction."""
        given = {n: value for n, value in self.attributes.items() if n != self.follows}
        return {**given, **({"reduction": NONE} if "reduction" in given else {})}

    @property
    def whole(self) -> dict[str, Any]:
        """The ordinary attributes, but an element for each comes out."""
        given = {n: value for n, value in self.attributes.items() if n != self.follows}
        return self.unscaled if self.reduces else given

    def of(self, tensors: Tensors) -> dict[str, Any]:
        """The ordinary attributes for these inputs."""
        if not self.follows:
            return dict(self.attributes)
        return {**self.attributes, self.follows: next(iter(tensors.values())).dtype}

    @property
    def scalars(self) -> list[Attribute]:
        return [a for a in self.operator.attributes if a.kind is Kind.SCALAR]

    def __str__(self) -> str:
        return self.operator.title

    def draw(self, kind: Any, given: Given | None = None, seed: int = 1) -> Tensors:
        """The inputs of a call, those that are no labels in this dtype."""
        given = given or Given()
        if self.made is not None:
            return self.made(kind)
        random = np.random.default_rng(seed)
        tensors = {}
        absent = {*self.absent, *given.without}
        for name in (p.name for p in self.operator.inputs if p.name not in absent):
            shape = given.shapes.get(name, self.shapes.get(name, SHAPE))
            array = np.asarray(self.values.get(name, between(-4, 4))(random, shape))
            tensors[name] = array.astype(kind) if array.dtype == np.float64 else array
        return tensors

    def run(self, tensors: Tensors, client: Any = LOCAL, out: Any = None, **attributes: Any) -> Any:
        """A client's answer to a call with the ordinary attributes, but for these."""
        if out is not None:
            client = client.options(outputs={self.operator.outputs[0].name: out})
        return client.run(self.operator, **tensors, **{**self.of(tensors), **attributes})

    def exact(self, tensors: Tensors, **attributes: Any) -> Any:
        """Likewise for tensors of float64, computed in that."""
        return compute(self.operator, **tensors, **{**self.attributes, **attributes})


def between(low: float, high: float) -> Draw:
    """Numbers of an interval."""
    return lambda random, shape: random.uniform(low, high, shape)


def steps(limit: int, *, apart_from: float | None = None) -> Draw:
    """Multiples of 1/32 that all floats have exactly, up to ``limit`` of them, but for a number."""

    def draw(random: np.random.Generator, shape: Shape) -> Any:
        numbers = np.asarray(random.integers(-limit, limit, shape) / 32)
        return np.where(np.abs(numbers) == apart_from, 0.5, numbers)

    return draw


def signs(random: np.random.Generator, shape: Shape) -> Any:
    return np.sign(random.uniform(-1, 1, shape))


def labels(classes: int) -> Draw:
    """Labels from 0, which stay integers."""
    return lambda random, shape: random.integers(0, classes, shape)


def logarithms(random: np.random.Generator, shape: Shape) -> Any:
    """Logarithms of probabilities that sum to 1 along the last axis."""
    logits = random.uniform(-3, 3, shape)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def exactly(*_: Any, **__: Any) -> Any:
    """Noise of a formula that is as good as rounded once."""
    return 0


def aten_of(operator: Operator[..., Any], name: str, **named: Any) -> Callable[..., Any]:
    """torch's own operator, which takes the same in the same order."""
    order = [p.name for p in operator.parameters]

    def result(tensors: Mapping[str, Any], **attributes: Any) -> Any:
        import torch

        arrays = {n: torch.tensor(np.asarray(array)) for n, array in tensors.items()}
        given = {**arrays, **attributes}
        function = getattr(torch.ops.aten, name)
        answer = function(*(given[n] for n in order if n in given), **named)
        several = isinstance(answer, tuple)
        return tuple(each.numpy() for each in answer) if several else answer.numpy()

    return result
