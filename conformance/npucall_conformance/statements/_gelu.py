"""What the statements of GELU and its gradients share [src:gelu]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, INT8, INT16, INT32, UINT16
from npucall.errors import DTypeError
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Reals
from npucall_conformance.stating.parts import Invalid, Setup, crossed
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16

INPUTS = ("grad_output", "self")
OUTPUT = "grad_input"
TENSORS = (*INPUTS, OUTPUT)
NAN, INF = reals.NAN, reals.INFINITY
FACTOR = math.sqrt(2 / math.pi)
TAIL, TERMS = 3.0, 60
"""Where the distribution function's continued fraction takes over from its series; both need fewer
terms than that for 2^-40."""

BESIDE_FLOATS = tuple(Setup(dtypes={n: each}) for n in INPUTS for each in (INT8, INT16, INT32))
EDGES = (
    crossed({
        "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
        "self": (0.0, -0.0, 1.0, -1.0, -0.7517916, 2.5, -2.5, INF, -INF, NAN),
    }),
    crossed({  # without infinite gradients, since far out a device's result is 0
        "grad_output": (1.0, 0.0, -2.0, 300.0, NAN),
        "self": (-3.0, 3.0, -5.0, 5.0, -8.0, -12.0, 12.0, -30.0, 89.0, -89.0, 1e4, -1e4),
    }),
)  # fmt: skip
FORWARD_EDGES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    -0.7517916,
    2.5,
    -2.5,
    -3.0,
    3.0,
    -5.0,
    5.0,
    -8.0,
    12.0,
    -12.0,
    -30.0,
    89.0,
    -89.0,
    300.0,
    1e4,
    -1e4,
    1e-4,
    INF,
    -INF,
    NAN,
)
EMPTY = (
    Setup("one-empty", shapes={"grad_output": (0, 4), "self": (1, 4)}),
    Setup("both-stretch", shapes={"grad_output": (2, 1), "self": (1, 0)}),
)


def tanh_gelu(x: float) -> float:
    return x * reals.sigmoid(2 * FACTOR * (x + 0.044715 * x * x * x))


def tanh_gelu_of(x: Reals) -> tuple[Reals, Reals]:
    """The value, and how much it changes with 2 u, whose rounding shows in its power of e."""
    value = x * tanh_form_of(x)[0]
    return value, np.abs(value) * (1 + np.abs(2 * FACTOR * x * (1 + 0.044715 * x**2)))


def erf_gelu(x: float) -> float:
    return x * (math.erfc(-x / math.sqrt(2)) / 2)


def erf_gelu_of(x: Reals) -> tuple[Reals, Reals]:
    value = x * erf_form_of(x)[0]
    return value, np.abs(value)


def torch_gelu(x: Any, torch: Any, approximate: str) -> Any:
    """Of torch's functions that lose nothing far below 0, as its own gelu does."""
    if approximate == "tanh":
        return x * torch.sigmoid(2 * FACTOR * (x + 0.044715 * x**3))
    return x * torch.special.erfc(-x / math.sqrt(2)) / 2


def tanh_form(x: float) -> float:
    """(1 + tanh u) / 2 is sigmoid(2 u), and 1 - tanh(u)^2 is 4 sigmoid(2 u) sigmoid(-2 u)."""
    twice = 2 * FACTOR * (x + 0.044715 * x * x * x)
    s, rest = reals.sigmoid(twice), reals.sigmoid(-twice)
    return s + x / 2 * (4 * s * rest) * FACTOR * (1 + 0.134145 * x * x)


def tanh_form_of(x: Reals) -> tuple[Reals, Reals]:
    """The two terms of ``tanh_form``."""
    u = FACTOR * x * (1 + 0.044715 * x**2)
    return 1 / (1 + np.exp(-2 * u)), 0.5 * x / np.cosh(u) ** 2 * FACTOR * (1 + 0.134145 * x**2)


def erf_form(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2 + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def erf_form_of(x: Reals) -> tuple[Reals, Reals]:
    """The two terms of ``erf_form``: the distribution function without erf, and x density."""
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    inside = np.clip(x, -TAIL, TAIL)
    term, series = inside, inside  # x + x^3 / 3 + x^5 / (3 * 5) + ...
    for odd in range(3, 2 * TERMS, 2):
        term = term * inside**2 / odd
        series = series + term
    outside = np.maximum(np.abs(x), TAIL)
    fraction = outside  # x + 1 / (x + 2 / (x + 3 / ...))
    for numerator in range(TERMS, 0, -1):
        fraction = outside + numerator / fraction
    beyond = np.where(x < 0, density / fraction, 1 - density / fraction)
    return np.where(np.abs(x) < TAIL, 0.5 + density * series, beyond), x * density


DTYPES = (
    # Step by step: what the inputs promote to; whether a product without BF16 gets it from that;
    # whether it is in the list. Each blames both.
    *defects.dtypes(*INPUTS, found=UINT16, blames=INPUTS),
    Invalid("bf16-everywhere", defects.all_of(BF16, *TENSORS), INPUTS, DTypeError,
            products=WITHOUT_BFLOAT16),
    *defects.dtypes(*INPUTS, found=DOUBLE, blames=INPUTS),
    Invalid("integers-alone", defects.all_of(INT32, *INPUTS), INPUTS, DTypeError),
)  # fmt: skip
BROADCAST = (
    *defects.shapes("grad_output", (5, 3), blames=INPUTS),
    *defects.shapes("self", (5, 3), blames=INPUTS),
    *defects.shapes(OUTPUT, (4, 3), (1, 3, 4), (1, 4)),
)
