"""aclnnThnnFusedLstmCell and aclnnThnnFusedLstmCellBackward [src:lstm-cell]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16
from npucall.errors import PARAM_NULLPTR, ArgumentError
from npucall.tensors import Format, Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on

NAN, INF = reals.NAN, reals.INFINITY
CELL = 2
"""The gate that is no gate: its activation is tanh."""
STATES = ("cx", "cy", "grad_hy", "grad_c")
OUTPUTS = ("hy_out", "cy_out", "storage_out")
GRADIENTS = ("grad_gates_out", "grad_cx_out", "grad_bias_out")
GIVEN = ("grad_hy", "grad_c", "cx", "cy", "storage")
COMMON: dict[str, Any] = {
    "takes": on(("Ascend910B", "Ascend910_93"), FLOAT, FLOAT16),
    "legacy": (),
    "dtypes": (FLOAT, FLOAT16),
    "base_shapes": ((4, 6), (3, 1), (1, 5), (17, 2)),
    "layout_shape": (3, 4),
    "rank_shapes": ((2, 3), (1, 1)),
    "sized": lambda count: (max(count // 8, 1), 8),
    "large_shape": (331, 76),
    "large": (Setup("many-rows", (12_301, 2)), Setup("long-rows", (2, 12_301))),
}  # fmt: skip


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    items, hidden = base
    gates = dict.fromkeys(("input_gates", "hidden_gates", "storage"), (items, 4 * hidden))
    biases = dict.fromkeys(("input_bias", "hidden_bias"), (4 * hidden,))
    return {**gates, **biases, **dict.fromkeys(STATES, base)}


def forward_shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    names = ("input_gates", "hidden_gates", "cx", "input_bias", "hidden_bias")
    return {n: s for n, s in shapes(base, given).items() if n in names}


def backward_shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    return {n: s for n, s in shapes(base, given).items() if n in GIVEN}


def addends(k: Arguments) -> list[Any]:
    names = ("input_gates", "hidden_gates", "input_bias", "hidden_bias")
    return [k[name] for name in names if k[name] is not None]


def loops(k: Arguments) -> dict[str, Any]:
    if not k["input_gates"].size:
        return dict(zip(OUTPUTS, (k["cx"], k["cx"], k["input_gates"]), strict=True))
    items, hidden = k["cx"].shape
    parts = [np.broadcast_to(each, (items, 4 * hidden)).tolist() for each in addends(k)]
    found: dict[str, list[list[float]]] = {name: [] for name in OUTPUTS}
    for item in range(items):
        gates = [reals.total([part[item][n] for part in parts]) for n in range(4 * hidden)]
        stored = [
            math.tanh(gate) if n // hidden == CELL else reals.sigmoid(gate)
            for n, gate in enumerate(gates)
        ]
        i, f, g, o = (stored[n * hidden : (n + 1) * hidden] for n in range(4))
        row = k["cx"][item].tolist()
        state = [b * c + a * d for a, b, c, d in zip(i, f, row, g, strict=True)]
        found["hy_out"].append([a * math.tanh(b) for a, b in zip(o, state, strict=True)])
        found["cy_out"].append(state)
        found["storage_out"].append(stored)
    return found


def arrays(k: Arguments) -> dict[str, Terms]:
    cx = k["cx"]
    if not k["input_gates"].size:
        rest = (cx, cx, k["input_gates"])
        return {name: Terms(each) for name, each in zip(OUTPUTS, rest, strict=True)}
    gates = np.sum(np.broadcast_arrays(*addends(k)), 0)
    spread = np.sum(np.broadcast_arrays(*map(np.abs, addends(k))), 0)  # of what is activated
    with np.errstate(over="ignore"):
        opened = 1 / (1 + np.exp(-gates))
    of_cell = np.arange(gates.shape[1]) // cx.shape[1] == CELL
    stored = np.where(of_cell, np.tanh(gates), opened)
    slope = np.where(of_cell, 1 - stored**2, opened * (1 - opened))
    size = np.abs(stored) + np.where(slope == 0, 0, slope * spread)  # one that is shut is exact
    i, f, g, o = np.split(stored, 4, 1)
    wide = np.split(size, 4, 1)
    state = f * cx + i * g
    state_size = wide[1] * np.abs(cx) + wide[0] * np.abs(g) + i * wide[2]
    t = np.tanh(state)
    hy_size = wide[3] * np.abs(t) + o * (np.abs(t) + (1 - t * t) * state_size)
    return {
        "hy_out": Terms(o * t, hy_size),
        "cy_out": Terms(state, state_size),
        "storage_out": Terms(stored, size),
    }


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["input_gates"].numel():
        return None
    hidden = k["cx"].shape[1]
    zeros, none = torch.zeros_like(k["cx"]), torch.zeros(4 * hidden, hidden, dtype=torch.float64)
    biases = [b if b is not None else none[:, 0] for b in (k["input_bias"], k["hidden_bias"])]
    one = torch.eye(4 * hidden, dtype=torch.float64)
    gates = k["input_gates"] + k["hidden_gates"]
    hy, cy = torch.lstm_cell(gates, (zeros, k["cx"]), one, none, *biases)
    return {"hy_out": hy, "cy_out": cy}


LSTM_CELL = Statement(
    "aclnnThnnFusedLstmCell",
    prototype=(
        "const aclTensor* inputGates, const aclTensor* hiddenGates, const aclTensor* cx, "
        "const aclTensor* inputBiasOptional, const aclTensor* hiddenBiasOptional, "
        "aclTensor* hyOut, aclTensor* cyOut, aclTensor* storageOut"
    ),
    inputs=(
        In("input_gates", normal(2.0)),
        In("hidden_gates", normal()),
        In("cx", normal()),
        In("input_bias", normal(), optional=True),
        In("hidden_bias", normal(), optional=True, beside="input_bias"),
    ),
    outputs=(
        Out("hy_out", "cx", "cx"),
        Out("cy_out", "cx", "cx"),
        Out("storage_out", "input_gates", "cx"),
    ),
    loops=loops,
    arrays=arrays,
    shapes=forward_shapes,
    kernel=dtype_of("input_gates"),
    npu="torch_npu has its own operator for LSTM cells",
    torch=torch_says,
    **COMMON,
    empty_shapes=((0, 3), (2, 0)),
    edges=(
        Setup("gates", (2, 2), values={
            "input_gates": [[0.0, 1, -1, 30, 100, -100, 6e4, -6e4], [1, -30, 0, 2, 9, -9, 0, 1]],
            "cx": [[1.0, -6e4], [0, 1e-4]]}),
        Setup("special", (1, 1), values={"input_gates": [[INF, -INF, NAN, INF]]}),
    ),
    empty_before="rank-9-input_gates",
    invalid=(
        *defects.nulls("input_gates", "hidden_gates", "cx"),
        *(Invalid(f"one-bias-{name}", {name: None}, ("hidden_bias", "input_bias"),
                  ArgumentError, PARAM_NULLPTR, whoever=True,
                  base=Setup(absent=("",))) for name in ("input_bias", "hidden_bias")),
        *defects.nulls(*OUTPUTS),
        *defects.ranks("input_gates", "hidden_gates", "cx", "input_bias", "hidden_bias", *OUTPUTS),
        *defects.shapes("input_gates", (4, 6), (3, 24)),
        *defects.shapes("hidden_gates", (4, 6), (3, 24)),
        *(row for n in ("input_bias", "hidden_bias") for row in defects.shapes(n, (6,), (25,))),
        *(row for n in OUTPUTS[:2] for row in defects.shapes(n, (4, 24), (3, 6))),
        *defects.shapes("storage_out", (4, 6), (3, 24)),
        *defects.dtypes("input_gates", found=DOUBLE),
        *defects.dtypes("hidden_gates", "cx", "input_bias", "hidden_bias", *OUTPUTS, found=BF16),
    ),
)  # fmt: skip


def quarters(k: Arguments) -> list[Any]:
    return list(np.split(k["storage"], 4, 1))


def gradient_loops(k: Arguments) -> dict[str, Any]:
    hidden = k["cx"].shape[1]
    gates, states = [], []
    rows = zip(*(k[name].tolist() for name in GIVEN), strict=True)
    for of_hy, of_c, before, after, stored in rows:
        i, f, g, o = (stored[n * hidden : (n + 1) * hidden] for n in range(4))
        t = [math.tanh(x) for x in after]
        c = [h * b * (1 - a * a) + d for h, b, a, d in zip(of_hy, o, t, of_c, strict=True)]
        gates.append([
            *(a * b * (d * (1 - d)) for a, b, d in zip(c, g, i, strict=True)),
            *(a * b * (d * (1 - d)) for a, b, d in zip(c, before, f, strict=True)),
            *(a * b * (1 - d * d) for a, b, d in zip(c, i, g, strict=True)),
            *(a * b * (d * (1 - d)) for a, b, d in zip(of_hy, t, o, strict=True)),
        ])  # fmt: skip
        states.append([a * b for a, b in zip(c, f, strict=True)])
    sums = [reals.total(list(column)) for column in zip(*gates, strict=True)]
    return dict(zip(GRADIENTS, (gates, states, sums if k["has_bias"] else [0.0] * len(sums)),
                    strict=True))  # fmt: skip


def gradient_arrays(k: Arguments) -> dict[str, Terms]:
    i, f, g, o = quarters(k)
    hy, t = k["grad_hy"], np.tanh(k["cy"])
    c = hy * o * (1 - t * t) + k["grad_c"]
    size = np.abs(hy * o) * (1 + t * t + np.abs(k["cy"]) * (1 - t * t)) + np.abs(k["grad_c"])
    gates = [c * g * i * (1 - i), c * k["cx"] * f * (1 - f), c * i * (1 - g * g),
             hy * t * o * (1 - o)]  # fmt: skip
    sizes = [size * np.abs(g * i) * (1 + np.abs(i)),
             size * np.abs(k["cx"] * f) * (1 + np.abs(f)),
             size * np.abs(i) * (1 + g * g),
             np.abs(hy * t * o) * (1 + np.abs(o))]  # fmt: skip
    value, wide = np.concatenate(gates, 1), np.concatenate(sizes, 1)
    sums = Terms(value.sum(0), wide.sum(0), summed=len(value))
    return {
        GRADIENTS[0]: Terms(value, wide),
        GRADIENTS[1]: Terms(c * f, size * np.abs(f)),
        GRADIENTS[2]: sums if k["has_bias"] else Terms(np.zeros(value.shape[1])),
    }


def gradient_torch(k: Arguments, torch: Any) -> Any:
    i, f, g, o = k["storage"].chunk(4, 1)
    sigmoid, tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
    t = torch.tanh(k["cy"])
    c = tanh(k["grad_hy"] * o, t) + k["grad_c"]
    gates = torch.cat([sigmoid(c * g, i), sigmoid(c * k["cx"], f), tanh(c * i, g),
                       sigmoid(k["grad_hy"] * t, o)], 1)  # fmt: skip
    sums = gates.sum(0) if k["has_bias"] else torch.zeros(gates.shape[1])
    return dict(zip(GRADIENTS, (gates, c * f, sums), strict=True))


LSTM_CELL_BACKWARD = Statement(
    "aclnnThnnFusedLstmCellBackward",
    prototype=(
        "const aclTensor* gradHyOptional, const aclTensor* gradCOptional, const aclTensor* cx, "
        "const aclTensor* cy, const aclTensor* storage, bool hasBias, aclTensor* gradGatesOut, "
        "aclTensor* gradCxOut, aclTensor* gradBiasOut"
    ),
    defaults={"has_bias": True},
    inputs=(
        In("grad_hy", normal()),
        In("grad_c", normal()),
        In("cx", normal()),
        In("cy", normal()),
        In("storage", uniform(0.05, 0.95)),
    ),
    outputs=(
        Out(GRADIENTS[0], "storage", "storage"),
        Out(GRADIENTS[1], "cx", "cx"),
        Out(GRADIENTS[2], lambda k: tuple(k["storage"].shape[1:]), "cx"),
    ),
    loops=gradient_loops,
    arrays=gradient_arrays,
    shapes=backward_shapes,
    kernel=dtype_of("grad_hy"),
    npu="torch_npu has its own operator for LSTM cells",
    torch=gradient_torch,
    attributes={"has_bias": (False, True)},
    faint=lambda k: () if k["has_bias"] else GRADIENTS[2:],
    **COMMON,
    empty_shapes=(),
    edges=(
        Setup("ends", (1, 2), values={
            "storage": [[0.0, 1, 1, 0, -1, 1, 0.5, 1]], "cy": [[0.0, 40]], "cx": [[3.0, -2]]}),
        Setup("special", (1, 1), values={"cx": [[INF]], "cy": [[NAN]]}),
        Setup("one-item", (1, 3)),
    ),
    invalid=(
        *defects.nulls(*GIVEN, *GRADIENTS),
        *defects.dtypes("grad_hy", found=DOUBLE),
        *defects.dtypes(*GIVEN[1:], GRADIENTS[0], GRADIENTS[2], GRADIENTS[1], found=BF16),
        *defects.shapes("grad_hy", (24,), (1, 4, 6), (0, 6)),
        *(row for n in ("grad_c", "cx", "cy") for row in defects.shapes(n, (4, 24), (6,))),
        *(row for n in ("storage", GRADIENTS[0]) for row in defects.shapes(n, (4, 6), (24,))),
        *defects.shapes(GRADIENTS[1], (4, 24), (6,)),
        *defects.shapes(GRADIENTS[2], (6,), (1, 24), base=Setup(attributes={"has_bias": True})),
        *defects.formats(*GIVEN, GRADIENTS[0], GRADIENTS[2], GRADIENTS[1], found=Format.NCHW),
    ),
)  # fmt: skip
