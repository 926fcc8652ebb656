"""aclnnGRUBackward [src:gru-backward]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT64
from npucall.errors import ArgumentError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import integers, normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on

CELLS, PARAMS = 4, 16
"""As many as the largest call has: of two layers in both directions, with biases."""
GATES = ("r", "z", "n", "h_n", "h")
DOMAINS = (*[uniform(0.05, 0.95)] * 2, uniform(-0.9, 0.9), normal(), uniform(-0.9, 0.9))
OUTPUTS = ("dx_out", "dh_prev_out", "dparams_out[0]", "dparams_out[1]")


def shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    """Base is (T, B, H); the input is one wider. More layers, directions and biases as asked."""
    time, items, hidden = base
    both = 2 if given["bidirectional"] else 1
    count, width = given["num_layers"] * both, hidden + 1
    lead = (items, time) if given["batch_first"] else (time, items)
    found: dict[str, Shape] = {"input": (*lead, width), "dy": (*lead, both * hidden)}
    found |= dict.fromkeys(("hx", "dh"), (count, items, hidden))
    found |= {f"{name}[{cell}]": base for name in GATES for cell in range(CELLS)}
    group = 4 if given["has_bias"] else 2
    for place in range(PARAMS):
        cell, which = divmod(place, group)
        inner = width if cell < both else both * hidden
        found[f"params[{place}]"] = (
            (3 * hidden, inner), (3 * hidden, hidden), (3 * hidden,), (3 * hidden,)
        )[which]  # fmt: skip
    return found | {"batch_sizes": (time,)}


def more(note: str, base: Shape, layers: int, both: int, *, bias: bool, **rest: Any) -> Setup:
    """A call with more layers, directions or biases; its further tensors are named."""
    given = {"num_layers": layers, "bidirectional": both == 2, "has_bias": bias}
    named = {"batch_first": False, **given, **rest}
    count = layers * both
    names = [f"{name}[{cell}]" for name in GATES for cell in range(1, count)]
    names += [f"params[{place}]" for place in range(2, count * (4 if bias else 2))]
    every = shapes(base, named)
    return Setup(note, base, {name: every[name] for name in names}, attributes=named)


def gradients(k: Arguments, *, sizes: bool) -> dict[str, Any]:
    """All gradients; ``sizes``: of absolute values, so that nothing cancels."""
    made = np.abs if sizes else np.asarray
    minus = -1 if not sizes else 1
    flip, both = (1, 0, 2), 2 if k["bidirectional"] else 1
    group, x, dy = 4 if k["has_bias"] else 2, made(k["input"]), made(k["dy"])
    if k["batch_first"]:
        x, dy = x.transpose(flip), dy.transpose(flip)
    lists = {name: [made(each) for each in k[name]] for name in GATES}
    params, hidden = [made(each) for each in k["params"]], k["hx"].shape[2]
    states, grads = np.zeros(k["hx"].shape), [np.zeros(each.shape) for each in params]
    for layer in reversed(range(k["num_layers"])):
        below = lists["h"][(layer - 1) * both : layer * both]
        inputs = np.concatenate(below, 2) if layer else x
        down = np.zeros(inputs.shape)
        for way in range(both):
            cell, end = layer * both + way, len(x) - 1
            r, z, n, of_h, h = (lists[name][cell] for name in GATES)
            w_ih, w_hh, *_ = params[cell * group : (cell + 1) * group]
            flow = made(k["dh"])[cell]
            for t in range(len(x)) if way else reversed(range(len(x))):
                first = t == (end if way else 0)
                h0 = made(k["hx"])[cell] if first else h[t + 1 if way else t - 1]
                d = dy[t][:, way * hidden : (way + 1) * hidden] + flow
                dn = d * (1 - z[t]) * (1 + minus * n[t] * n[t])
                dz = d * (h0 + minus * n[t]) * z[t] * (1 - z[t])
                dr = dn * of_h[t] * r[t] * (1 - r[t])
                outer, inner = np.hstack([dr, dz, dn]), np.hstack([dr, dz, dn * r[t]])
                for place, part in enumerate(
                    (outer.T @ inputs[t], inner.T @ h0, outer.sum(0), inner.sum(0))[:group]
                ):
                    grads[cell * group + place] += part
                down[t] += outer @ w_ih
                flow = inner @ w_hh + d * z[t]
            states[cell] = flow
        dy = down
    found = {"dx_out": dy.transpose(flip) if k["batch_first"] else dy, "dh_prev_out": states}
    return found | {f"dparams_out[{place}]": each for place, each in enumerate(grads)}  # fmt: skip


def arrays(k: Arguments) -> dict[str, Terms]:
    value, size = gradients(k, sizes=False), gradients(k, sizes=True)
    steps = k["input"].shape[0] * k["input"].shape[1]
    return {name: Terms(each, size[name], summed=steps) for name, each in value.items()}


def loops(k: Arguments) -> dict[str, Any]:
    """One unit of one item at a time, with Python's floats."""
    both, group = 2 if k["bidirectional"] else 1, 4 if k["has_bias"] else 2
    swap = k["batch_first"]
    x, up = (np.swapaxes(k[name], 0, 1) if swap else k[name] for name in ("input", "dy"))
    time, items, hidden = len(x), x.shape[1], k["hx"].shape[2]
    states: Any = np.zeros(k["hx"].shape)
    grads = [np.zeros(each.shape) for each in k["params"]]
    for layer in reversed(range(k["num_layers"])):
        below = [k["h"][cell] for cell in range((layer - 1) * both, layer * both)]
        inputs = np.concatenate(below, 2) if layer else x
        down = np.zeros(inputs.shape)
        for cell in range(layer * both, (layer + 1) * both):
            way, steps = cell % both, list(range(time))
            order = steps[::-1] if way else steps
            w_ih, w_hh = (k["params"][cell * group + place].tolist() for place in (0, 1))
            for item in range(items):
                flow = k["dh"][cell][item].tolist()
                for number in reversed(range(time)):
                    t = order[number]
                    before = (k["h"][cell][order[number - 1]] if number else k["hx"][cell])[item]
                    outer, inner = [0.0] * 3 * hidden, [0.0] * 3 * hidden
                    kept = []
                    for unit in range(hidden):
                        r, z, n, m = (float(k[name][cell][t, item, unit]) for name in GATES[:4])
                        d = float(up[t, item, way * hidden + unit]) + flow[unit]
                        dn = d * (1 - z) * (1 - n**2)
                        outer[unit] = inner[unit] = dn * m * r * (1 - r)
                        row = hidden + unit
                        outer[row] = inner[row] = d * (float(before[unit]) - n) * z * (1 - z)
                        outer[row + hidden], inner[row + hidden] = dn, dn * r
                        kept.append(d * z)
                    for row in range(3 * hidden):
                        grads[cell * group][row] += outer[row] * inputs[t, item]
                        grads[cell * group + 1][row] += inner[row] * before
                        if k["has_bias"]:
                            grads[cell * group + 2][row] += outer[row]
                            grads[cell * group + 3][row] += inner[row]
                    for unit in range(inputs.shape[2]):
                        down[t, item, unit] += reals.total(
                            [g * row[unit] for g, row in zip(outer, w_ih, strict=True)]
                        )
                    flow = [
                        kept[unit]
                        + reals.total([g * row[unit] for g, row in zip(inner, w_hh, strict=True)])
                        for unit in range(hidden)
                    ]
                states[cell][item] = flow
        up = down
    found = {"dx_out": np.swapaxes(up, 0, 1) if swap else up, "dh_prev_out": states}
    return found | {f"dparams_out[{place}]": each for place, each in enumerate(grads)}  # fmt: skip


def is_there(name: str) -> Callable[[Arguments], bool]:
    return lambda k: k[name] is not None


def members(name: str, count: int, domain: Any, always: int = 1) -> tuple[In, ...]:
    return tuple(
        In(f"{name}[{place}]", domain, optional=place >= always, refused=place >= always)
        for place in range(count)
    )


GRU_BACKWARD = Statement(
    "aclnnGRUBackward",
    prototype=(
        "const aclTensor* input, const aclTensorList* params, const aclTensor* hx, "
        "const aclTensor* dy, const aclTensor* dh, const aclTensorList* r, "
        "const aclTensorList* z, const aclTensorList* n, const aclTensorList* h_n, "
        "const aclTensorList* h, const aclTensor* batchSizes, bool hasBias, int64_t numLayers, "
        "bool bidirectional, bool batchFirst, aclTensor* dxOut, aclTensor* dhPrevOut, "
        "aclTensorList* dparamsOut"
    ),
    takes=on(("Ascend910B", "Ascend910_93"), FLOAT, FLOAT16),
    legacy=(),
    defaults={"has_bias": True, "num_layers": 1, "bidirectional": False, "batch_first": False},
    inputs=(
        In("input", normal()),
        *members("params", PARAMS, normal(0.5), 2),
        *(In(name, normal()) for name in ("hx", "dy", "dh")),
        *(one for name, domain in zip(GATES, DOMAINS, strict=True)
          for one in members(name, CELLS, domain)),
        In("batch_sizes", integers(1, 2), dtypes=(INT64,), optional=True, refused=True),
    ),
    outputs=(
        Out("dx_out", "input", "input"),
        Out("dh_prev_out", "hx", "input"),
        *(Out(f"dparams_out[{place}]", f"params[{place}]", "input",
              asked=is_there(f"params[{place}]"))
          for place in range(PARAMS)),
    ),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=dtype_of("input"),
    dtypes=(FLOAT, FLOAT16),
    sprinkled=False,
    attributes={"has_bias": (False,), "num_layers": (1,), "bidirectional": (False,),
                "batch_first": (False, True)},
    npu="torch_npu has its own operator for GRUs",
    base_shapes=((3, 2, 4), (1, 3, 2), (5, 1, 1)),
    layout_shape=(2, 3, 4),
    rank_shapes=((2, 3, 1),),
    empty_shapes=(),
    sized=lambda count: (3, max(count // 12, 1), 4),
    chunked=(3, 110_000, 4),
    large_shape=(3, 4_001, 9),
    large=(
        more("many-items", (2, 25_013, 2), 1, 1, bias=True),
        Setup("many-steps", (301, 83, 4)),
    ),
    edges=(
        more("bias", (3, 2, 2), 1, 1, bias=True),
        more("layers", (3, 2, 2), 2, 1, bias=False, batch_first=True),
        more("ways", (3, 2, 2), 1, 2, bias=True),
        more("layers-and-ways", (2, 2, 2), 2, 2, bias=True),
        Setup("ends", (1, 1, 2), values={"r[0]": [[[0.0, 1]]], "z[0]": [[[1.0, 0]]],
                                         "n[0]": [[[1.0, -1]]]}),
    ),
    defaulted=more("", (3, 2, 2), 1, 1, bias=True),
    invalid=(
        *defects.nulls("input", "hx", "params", "dy", "dh", *GATES, *OUTPUTS[:2], "dparams_out"),
        *(row for names in (("input",), ("hx",), ("dy",), ("dh",), OUTPUTS[:1], OUTPUTS[1:2],
                            ("params[0]", "params[1]"), *((f"{gate}[0]",) for gate in GATES),
                            OUTPUTS[2:])
          for row in (*defects.dtypes(*names, found=DOUBLE),
                      *(defects.dtypes(*names, found=FLOAT16) if names != ("input",) else ()),
                      *defects.formats(*names, found=Format.NCHW))),
        Invalid("batch-sizes", {"batch_sizes": {"shape": (2,)}}, ("batch_sizes",), ArgumentError,
                base=Setup(shapes={"batch_sizes": (2,)}), alone=True),
        *defects.shapes("input", (6, 5)),
        *defects.shapes("input", (0, 3, 5), blames=("input", "hx")),
        *defects.shapes("hx", (1, 3, 0), blames=("input", "hx")),
        *defects.values("num_layers", 0, -1),
        Invalid("two-layers", {"num_layers": 2}, ("hx",), ShapeError),
        *defects.shapes("hx", (2, 3, 4), (1, 2, 4)),
        *defects.shapes("dy", (2, 3, 5), (6, 4)),
        *defects.shapes("dh", (2, 3, 4), (3, 4)),
        *(row for gate in GATES
          for row in (Invalid(f"no-{gate}", {gate: ()}, (gate,), ShapeError),
                      *defects.shapes(f"{gate}[0]", (3, 2, 4), (6, 4)))),
        Invalid("no-params", {"params": ()}, ("params",), ShapeError),
        *defects.shapes("params[0]", (12, 4), (5, 12)),
        *defects.shapes("params[1]", (12, 5)),
        *defects.shapes("dx_out", (3, 2, 5)),
        *defects.shapes("dh_prev_out", (3, 4)),
        *defects.shapes("dparams_out[0]", (12, 4)),
        *defects.shapes("dparams_out[1]", (4, 12)),
    ),
)  # fmt: skip
