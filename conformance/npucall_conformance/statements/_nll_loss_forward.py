"""What the statements of the negative log-likelihood itself have in common [src:nll-loss]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import INT32, INT64, UINT8
from npucall.tensors import Shape
from npucall_conformance.statements._nll_loss import (
    ATTRIBUTES,
    INF,
    LABELS,
    NAN,
    OTHER,
    beyond_127,
    classes,
    labels,
)
from npucall_conformance.stating import reals
from npucall_conformance.stating.arguments import FLOAT_INSIDE, MEAN, Arguments, Terms
from npucall_conformance.stating.domains import uniform
from npucall_conformance.stating.parts import PAIRS_OF_FLOATS, Attributes, In, Out, Setup

__all__ = ["ATTRIBUTES", "OTHER"]

TENSORS = ("self", "target", "weight", "out", "total_weight_out")


def labelled(base: Shape) -> Shape:
    """The shape of the labels: that of self without its classes."""
    return (*base[: min(len(base) - 1, 1)], *base[2:])


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    del attributes
    return {"self": base, "target": labelled(base), "weight": (classes(base),)}


INPUTS = (
    In("self", uniform(-3.0, -0.1)),
    In("target", labels, dtypes=LABELS),
    In("weight", uniform(0.25, 2.0)),
)
OUTPUTS = (
    Out("out", shape=lambda k: () if k["reduction"] else k["target"].shape, dtype="self"),
    Out("total_weight_out", shape=lambda _: (), dtype="self"),
)


def loops(k: Arguments) -> dict[str, Any]:
    """Self as a table of rows, classes and pixels, whose pixels are visited one by one."""
    shape = k["self"].shape
    count, behind = classes(shape), prod(shape[2:])
    numbers, weights = k["self"].reshape(-1).tolist(), k["weight"].tolist()
    losses, counted = [], []
    for place, label in enumerate(map(int, k["target"].reshape(-1).tolist())):
        losses.append(0.0)
        if label == k["ignore_index"] or not 0 <= label < count:
            continue
        row, pixel = divmod(place, behind)
        losses[-1] = -weights[label] * numbers[(row * count + label) * behind + pixel]
        counted.append(weights[label])
    if k["reduction"] == 0:
        return {"out": np.reshape(losses, k["target"].shape), "total_weight_out": 0.0}
    loss, total = reals.total(losses), reals.total(counted)
    if k["reduction"] == MEAN:
        loss = reals.divide(loss, total)
    return {"out": loss, "total_weight_out": total}


def arrays(k: Arguments) -> dict[str, Terms]:
    """The same with a table of which class is whose label."""
    shape = k["self"].shape
    count = classes(shape)
    rows = shape[0] if len(shape) > 1 else 1
    places = k["target"].reshape(rows, 1, *shape[2:])
    every = np.arange(count).reshape(1, count, *(1 for _ in shape[2:]))
    hit = (places == every) & (places != k["ignore_index"])
    weights = np.where(hit, k["weight"].reshape(every.shape), 0.0)
    losses = -np.where(hit, weights * k["self"].reshape(hit.shape), 0.0).sum(1)
    if k["reduction"] == 0:
        return {"out": Terms(losses.reshape(k["target"].shape)),
                "total_weight_out": Terms(np.zeros(()))}  # fmt: skip
    total = np.sum(weights)
    divisor = total if k["reduction"] == MEAN else 1.0
    out = Terms(np.asarray(losses.sum() / divisor), np.abs(losses).sum() / np.abs(divisor))
    return {"out": out, "total_weight_out": Terms(np.asarray(total), np.abs(weights).sum())}


def faint(k: Arguments) -> tuple[str, ...]:
    """Without a reduction the device does not write the total weight."""
    return () if k["reduction"] else ("total_weight_out",)


def cost(k: Arguments) -> float:
    """A loss of its own is one product."""
    return FLOAT_INSIDE if k["reduction"] else 0.0


def torch_says(function: str) -> Any:
    """The third opinion, of a function of ``torch.ops.aten``."""

    def opinion(k: Arguments, torch: Any) -> Any:
        loss, total = getattr(torch.ops.aten, function)(
            k["self"], k["target"].long(), k["weight"], k["reduction"], k["ignore_index"]
        )
        # Of one row without reduction torch answers its label's weight, the device nothing.
        one_row = k["self"].ndim == 1 and k["reduction"] == 0
        return {"out": loss} if one_row else {"out": loss, "total_weight_out": total}

    return opinion


def edges(rows: Shape) -> tuple[Setup, ...]:
    """Special labels, weights and numbers: ``rows`` is the shape of 16 labels among 4 classes."""
    base = (rows[0], 4, *rows[1:])
    places = np.array([0, 3, 1, 4, 200, 2, 255, 1, 0, 2, 3, 5, 1, 1, 0, 3]).reshape(rows)
    signed = np.where(places > 199, -places, places)
    beyond = np.where(places == 5, 2**40, places)
    special = np.resize([0.0, -0.0, -1.0, 1.0, -INF, -2.0, NAN, INF, 300.0], base)
    return (
        beyond_127(rows),
        *(Setup(f"labels-u8-{i}", base, values={"target": places}, dtypes={"target": UINT8},
               attributes={"ignore_index": i}) for i in (255, 5, -1)),
        *(Setup(f"labels-s32-{-i}", base, values={"target": signed}, dtypes={"target": INT32},
               attributes={"ignore_index": i}) for i in (-200, -1)),
        Setup("labels-s64", base, values={"target": beyond}, dtypes={"target": INT64}),
        *(Setup("weights", base, values={"weight": [0.5, w, 1.0, 2.0]})
          for w in (0.0, -0.0, -1.0, INF, NAN)),
        Setup("weights-that-cancel", base, values={
            "target": np.resize([0, 1], rows), "weight": [1.0, -1.0, 0.0, 0.0]}),
        Setup("numbers", base, values={"self": special}),
        Setup("large", base, values={"self": np.full(base, -40000.0)}),
        Setup("all-ignored", base, values={"target": np.ones(rows)},
             attributes={"ignore_index": 1}),
        Setup("all-ignored-nan", base, values={
            "target": np.ones(rows), "self": np.full(base, NAN), "weight": [NAN] * 4},
             attributes={"ignore_index": 1}),
    )  # fmt: skip


def outputs_of_other_dtypes() -> tuple[Setup, ...]:
    """Outputs with narrower and wider dtypes than the inputs."""
    return tuple(
        Setup(dtypes={"self": one, "weight": one, name: other})
        for name in ("out", "total_weight_out")
        for one, other in PAIRS_OF_FLOATS
    )
