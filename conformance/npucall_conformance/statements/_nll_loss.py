"""What the statements of the negative log-likelihood have in common [src:nll-loss]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import BOOL, FLOAT, FLOAT16, INT8, INT16, INT32, INT64, UINT8
from npucall.tensors import Shape
from npucall_conformance.stating import reals
from npucall_conformance.stating.arguments import MEAN, Arguments, Reals, Terms
from npucall_conformance.stating.domains import Draw, follows, normal, uniform, upstream
from npucall_conformance.stating.parts import PAIRS_OF_FLOATS, In, Setup

LABELS = (INT64, INT32, UINT8)
NO_LABELS = (INT8, INT16, BOOL, FLOAT)
"""Dtypes that labels must not have; there are more."""
OF_ONE_DTYPE = ("grad_output", "self", "weight", "total_weight")
TENSORS = ("grad_output", "self", "target", "weight", "total_weight", "out")
ATTRIBUTES = {"reduction": (0, 1, 2), "ignore_index": (-100, 1)}
NAN, INF = reals.NAN, reals.INFINITY


def classes(shape: Shape) -> int:
    """The classes of self: the second extent, or the only one."""
    return shape[1] if len(shape) > 1 else shape[0]


def labels(draw: Draw) -> Any:
    """Labels of which the last is not ignored, so that some count."""
    drawn = np.asarray(draw.random.integers(0, max(classes(draw.shapes["self"]), 1), draw.shape))
    last = drawn.reshape(-1)[-1:]
    last[last == draw["ignore_index"]] = 0
    return drawn


def total(draw: Draw) -> Any:
    """The total weight by the forward operator: the summed weights of labels that count."""
    weights = draw["weight"].reshape(-1)
    labels = draw["target"].reshape(-1)
    counted = (labels != draw["ignore_index"]) & (labels >= 0) & (labels < weights.size)
    return weights[labels[counted].astype(np.int64)].sum()


INPUTS = (
    In("grad_output", upstream("target")),
    In("self", normal(), read=False),
    In("target", labels, dtypes=LABELS),
    In("weight", uniform(0.25, 2.0)),
    In("total_weight", follows(total)),
)


def loops(k: Arguments) -> Reals:
    """Self as a table of rows, classes and pixels, whose pixels are visited one by one."""
    shape = k["self"].shape
    count, behind = classes(shape), prod(shape[2:])
    upstream, weights = k["grad_output"].reshape(-1).tolist(), k["weight"].reshape(-1).tolist()
    whole = k["total_weight"].reshape(-1).tolist()[0]
    result = [0.0] * prod(shape)
    for place, label in enumerate(map(int, k["target"].reshape(-1).tolist())):
        if label == k["ignore_index"] or not 0 <= label < count:
            continue
        g = upstream[place if k["reduction"] == 0 else 0]
        if k["reduction"] == MEAN:
            g = reals.divide(g, whole)
        row, pixel = divmod(place, behind)
        result[(row * count + label) * behind + pixel] = -g * weights[label]
    return np.array(result).reshape(shape)


def arrays(k: Arguments) -> Terms:
    """The same with a table of which class is whose label."""
    shape = k["self"].shape
    count = classes(shape)
    labels = k["target"].reshape(-1, 1, *shape[2:])
    every = np.arange(count).reshape(1, count, *(1 for _ in shape[2:]))
    hit = (labels == every) & (labels != k["ignore_index"])
    upstream = k["grad_output"].reshape(-1, 1, *shape[2:] if k["grad_output"].size > 1 else ())
    upstream = upstream.reshape(labels.shape if upstream.size == labels.size else (1,) * hit.ndim)
    if k["reduction"] == MEAN:
        upstream = upstream / k["total_weight"].reshape(())
    value = np.where(hit, -(upstream * k["weight"].reshape(every.shape)), 0.0)
    return Terms(value.reshape(shape))


def torch_says(function: str) -> Any:
    """The third opinion, of a function of ``torch.ops.aten``."""

    def opinion(k: Arguments, torch: Any) -> Any:
        return getattr(torch.ops.aten, function)(
            k["grad_output"], k["self"], k["target"].long(), k["weight"], k["reduction"],
            k["ignore_index"], k["total_weight"],
        )  # fmt: skip

    return opinion


def beyond_127(rows: Shape) -> Setup:
    """Labels of UINT8 that are less than 0 if read with a sign; ``rows`` has their rank."""
    labels = np.array([128.0, 200.0, 255.0])
    labels = labels.reshape(1, 1, 3) if len(rows) > 1 else labels
    base = (labels.shape[0], 256, *labels.shape[1:])
    return Setup(
        "labels-beyond-127", base, values={"target": labels}, dtypes={"target": UINT8}, telling=True
    )


def edges(rows: Shape, single: Shape) -> tuple[Setup, ...]:
    """Special labels, weights and gradients: ``rows`` is the shape of 16 labels among 4 classes.

    ``single`` is that of one label.
    """
    base = (rows[0], 4, *rows[1:])
    labels = np.array([0, 3, 1, 4, 200, 2, 255, 1, 0, 2, 3, 5, 1, 1, 0, 3]).reshape(rows)
    signed = np.where(labels > 199, -labels, labels)
    beyond = np.where(labels == 5, 2**40, labels)
    several = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-4] * 2).reshape(rows)
    return (
        beyond_127(rows),
        *(Setup(f"labels-u8-{i}", base, values={"target": labels}, dtypes={"target": UINT8},
               attributes={"ignore_index": i}) for i in (255, 5, -1)),
        *(Setup(f"labels-s32-{-i}", base, values={"target": signed, "total_weight": [3.0]},
               dtypes={"target": INT32}, attributes={"ignore_index": i}) for i in (-200, -1)),
        Setup("labels-s64", base, values={"target": beyond, "total_weight": [3.0]},
             dtypes={"target": INT64}),
        *(Setup("total-weight", base, values={"total_weight": [w]}) for w in (0.0, -0.0, INF, NAN)),
        Setup("gradients", base, values={"grad_output": several, "weight": [1.0, 0.0, INF, NAN]},
             attributes={"reduction": 0}),
        *(
            Setup("gradient", base, values={
                "grad_output": [g], "weight": [0.0, 1.0, INF, NAN], "total_weight": [w]
            }, attributes={"reduction": reduction})
            for g, w, reduction in (
                (300.0, 2.0, 1), (300.0, 0.0, 1), (0.0, 0.0, 1), (INF, INF, 1), (NAN, 2.0, 1),
                (0.0, 0.0, 2), (INF, 0.0, 2),
            )
        ),
        Setup("self-not-read", (1, 4, *single[1:]), values={
            "self": np.reshape([INF, -INF, NAN, NAN], (1, 4, *single[1:]))
        }),
        Setup("all-ignored", base, values={"target": np.ones(rows), "total_weight": [0.0]},
             attributes={"ignore_index": 1}),
    )  # fmt: skip


def outputs_of_other_dtypes() -> tuple[Setup, ...]:
    """Outputs with narrower and wider dtypes than the inputs."""
    return tuple(
        Setup(dtypes={**dict.fromkeys(OF_ONE_DTYPE, one), "out": other})
        for one, other in PAIRS_OF_FLOATS
    )


def all_of(dtype: Any) -> dict[str, Any]:
    """The change that gives every tensor of floats but the output a dtype."""
    return {name: {"dtype": dtype} for name in OF_ONE_DTYPE}


OTHER = FLOAT16
"""A dtype that the operator takes, but not together with the others' dtypes."""
