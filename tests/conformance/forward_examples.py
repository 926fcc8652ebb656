"""The worked examples F1 to F13 [src:worked-examples]: calls by their C names, and the digits.

Every path has to give these; ``test_worked_examples`` and ``tests/end_to_end`` read this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Input, Output, c_name
from npucall.dtypes import AnyArray
from npucall.operators import CATALOGUE

NONE, MEAN, SUM, BATCHMEAN = range(4)
HALF, SINGLE = np.float16, np.float32
INF = float("inf")
HALF_DIGIT = 0.5e-8
"""The document gives eight decimals."""
OF_TERMS = 8 * 2.0**-24
"""What FLOAT's own rounding may add, relative to the largest number of a call."""


@dataclass(frozen=True)
class Example:
    """A call: tensors and attributes by the names of the C prototype, and the outputs printed."""

    name: str
    operator_name: str
    tensors: Mapping[str, Any]
    attributes: Mapping[str, Any]
    expected: Mapping[str, Any]
    dtype: Any = SINGLE
    """Of tensors that are given as floating-point numbers."""
    given: Mapping[str, AnyArray] = field(default_factory=dict)
    """Outputs that the call gives, where they have another dtype than by themselves."""
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.operator_name} {self.variant}".strip()

    @property
    def operator(self) -> Operator[Any, Any]:
        return CATALOGUE.find(self.operator_name, self.variant)

    def arguments(self, dtype: Any = None) -> dict[str, Any]:
        """Inputs and attributes by the names of the Python function."""
        inputs = {name: _array(v, dtype or self.dtype) for name, v in self.tensors.items()}
        return self._by_python_name({**inputs, **self.attributes})

    def inputs(self) -> dict[str, AnyArray]:
        """The tensors alone."""
        names = {p.name for p in self.operator.parameters if isinstance(p, Input)}
        return {name: value for name, value in self.arguments().items() if name in names}

    def outputs(self) -> dict[str, AnyArray]:
        """New memory for the outputs that the call gives."""
        return self._by_python_name({name: array.copy() for name, array in self.given.items()})

    def differences(self, found: Mapping[str, Any], allowed: float = 0.0) -> list[str]:
        """What is not as printed; ``allowed``: beside half a digit, and less than it in FLOAT."""
        told = []
        for name, expected in self._by_python_name(self.expected).items():
            one, other = np.asarray(found[name], float), np.asarray(expected, float)
            if one.shape != other.shape:
                told.append(f"{self}: {name}: expected shape {other.shape}, found {one.shape}")
            elif not np.allclose(one, other, 0, 1.01 * HALF_DIGIT + allowed, equal_nan=True):
                told.append(f"{self}: {name}: expected {other.tolist()}, found {one.tolist()}")
        return told

    @property
    def rounding(self) -> float:
        """What FLOAT may add; the examples of other dtypes are exact."""
        if self.dtype is not SINGLE:
            return 0.0
        numbers = [np.asarray(v, float) for v in (*self.tensors.values(), *self.expected.values())]
        finite = np.concatenate([np.abs(n[np.isfinite(n)]).ravel() for n in numbers])
        return OF_TERMS * float(finite.max(initial=1.0))

    def outputs_of(self, answer: Any) -> dict[str, Any]:
        """The result of ``compute`` by output."""
        names = [p.name for p in self.operator.parameters if isinstance(p, Output)]
        return dict(zip(names, answer if len(names) > 1 else (answer,), strict=True))

    def _by_python_name(self, values: Mapping[str, Any]) -> dict[str, Any]:
        names = {c_name(p).lower(): p.name for p in self.operator.parameters}
        return {names[name.lower()]: value for name, value in values.items()}


def _array(values: Any, dtype: Any) -> AnyArray:
    array = np.asarray(values)
    return array.astype(dtype) if array.dtype == np.float64 else array


def _reduced(
    name: str, operator: str, tensors: Mapping[str, Any], results: Mapping[int, Any], **rest: Any
) -> list[Example]:
    """An example for each reduction; the output is the one that ``out`` names."""
    out = rest.pop("out", "out")
    return [
        Example(name, operator, tensors, {"reduction": code, **rest}, {out: result})
        for code, result in results.items()
    ]


S = np.log([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
T = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
LOGARITHMS = [[-1.0, -2.0, -0.5], [-3.0, 0.0, -0.25]]
COLUMN = {"self": [[-1.0], [-2.0]], "target": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.0]]}
WIDER = {"self": [[0.0, 0.0]], "target": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]}
PAIR = {"self": [[1.0, 2.0, 3.0]], "target": [[2.0], [2.5]]}
CLASSES = {"target": np.array([2, 0]), "weight": [0.5, 2.0, 3.0]}
LOGITS = {"input": [[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]], "target": np.array([2, 0])}
LOG_PROB = [[-2.40760596, -1.40760596, -0.40760596], [-1.10413061, -2.10413061, -0.60413061]]
ALPHA = [
    [-0.69314718, -1.20397280, -INF],
    [-1.60943791, -1.13943428, -2.12026354],
    [-2.12026354, -2.95651156, -1.33180618],
]
HALVES = {"self": np.array([3.30078125, 1.70019531]), "target": np.array([0.70019531, 0.30004883])}


WEIGHED = {
    "self": [-2.0, 0, 3],
    "target": [1, 0.5, 0],
    "weightOptional": [1, 2, 0.5],
    "posWeightOptional": [3.0],
}
LOSSES_OF_LOGITS = [6.38078403, 2.77258872, 1.52429368]
LARGE = {"self": np.array([300.0, 0, 0]), "target": np.zeros(3)}
WIDE = {"out": np.zeros((), SINGLE)}
FAR = {"self": np.array([60000.0, 60000.0]), "target": np.zeros(2)}


def _nll(reduction: int, ignored: int, loss: Any, total: float) -> Example:
    attributes = {"reduction": reduction, "ignoreIndex": ignored}
    expected = {"out": loss, "totalWeightOut": total}
    return Example("F6", "aclnnNLLLoss", {"self": S, **CLASSES}, attributes, expected)


def _cross_entropy(reduction: str, loss: Any, smoothing: float = 0.0) -> Example:
    return Example(
        "F7",
        "aclnnCrossEntropyLoss",
        {**LOGITS, "weightOptional": CLASSES["weight"]},
        {"reductionOptional": reduction, "ignoreIndex": -100, "labelSmoothing": smoothing},
        {"lossOut": loss, "logProbOut": LOG_PROB},
    )


def _ctc(targets: list[list[int]], length: int, loss: float, alpha: Any, frames: int) -> Example:
    log_probs = np.log([[[0.5, 0.3, 0.2]], [[0.4, 0.4, 0.2]], [[0.6, 0.1, 0.3]]])
    attributes = {"inputLengths": [frames], "targetLengths": [length], "blank": 0}
    expected = {"negLogLikelihoodOut": [loss], **({"logAlphaOut": alpha} if alpha else {})}
    tensors = {"logProbs": log_probs, "targets": np.array(targets)}
    return Example("F8", "aclnnCtcLoss", tensors, {**attributes, "zeroInfinity": False}, expected)


EXAMPLES: list[Example] = [
    *_reduced(
        "F1",
        "aclnnKlDiv",
        {"self": S, "target": T},
        {
            NONE: [[0.13862944, 0.12163953, -0.16823612], [0.41588831, 0.0, -0.13862944]],
            MEAN: 0.06154862,
            SUM: 0.36929172,
            BATCHMEAN: 0.18464586,
        },
    ),
    *_reduced(
        "F2",
        "aclnnKlDiv",
        {"self": S, "target": LOGARITHMS},
        {
            NONE: [[0.47919428, -0.05285683, -0.08693104], [-0.08941893, 1.20397280, 0.51890774]],
            MEAN: 0.32881134,
            SUM: 1.97286802,
            BATCHMEAN: 0.98643401,
        },
        logTarget=True,
    ),
    *_reduced(
        "F3",
        "aclnnKlDiv",
        COLUMN,
        {
            NONE: [[-0.13025851, -0.12188758, -0.06119184], [0.43348371, 0.65342641, 0.0]],
            SUM: 0.77357218,
        },
    ),
    *_reduced("F4", "aclnnKlDiv", WIDER, {SUM: 29.02505505, BATCHMEAN: 9.67501835}),
    *_reduced("F5", "aclnnL1Loss", PAIR, {NONE: [[1, 0, 1], [1.5, 0.5, 0.5]], MEAN: 0.75}),
    *_reduced(
        "F5", "aclnnMseLoss", PAIR, {NONE: [[1, 0, 1], [2.25, 0.25, 0.25]], MEAN: 0.79166667}
    ),
    *_reduced(
        "F5",
        "aclnnSmoothL1Loss",
        PAIR,
        {NONE: [[0.625, 0, 0.625], [1.125, 0.16666667, 0.16666667]], MEAN: 0.45138889},
        beta=0.75,
        out="result",
    ),
    _nll(NONE, -100, [1.07002483, 0.60198640], 0.0),
    _nll(MEAN, -100, 0.47771750, 3.5),
    _nll(SUM, -100, 1.67201123, 3.5),
    _nll(MEAN, 0, 0.35667494, 3.0),
    _cross_entropy("none", [1.22281789, 0.55206530]),
    _cross_entropy("mean", [0.50710948]),
    _cross_entropy("sum", [1.77488320]),
    _cross_entropy("none", [1.27526386, 0.71594938], smoothing=0.1),
    _cross_entropy("mean", [0.56891807], smoothing=0.1),
    _ctc([[1]], 1, 1.15201307, [[[*row, *[-INF] * 5] for row in ALPHA]], 3),
    _ctc([[1, 1]], 2, INF, None, 2),
    *_reduced(
        "F9",
        "aclnnBinaryCrossEntropy",
        {"self": [0, 0.25, 0.75, 1], "target": [0, 1, 0.5, 0]},
        {NONE: [0, 1.38629436, 0.83698822, 100], MEAN: 25.55582064},
    ),
    *_reduced("F10", "aclnnBinaryCrossEntropyWithLogits", WEIGHED, {NONE: LOSSES_OF_LOGITS}),
    *_reduced(
        "F11",
        "aclnnSoftMarginLoss",
        {"self": [-2.0, 0, 3], "target": [1.0, -1, 1]},
        {NONE: [2.12692801, 0.69314718, 0.04858735]},
    ),
    Example("F12", "aclnnMseLoss", HALVES, {"reduction": MEAN}, {"out": 4.36328125}, HALF),
    Example("F12", "aclnnKlDiv", HALVES, {"reduction": SUM}, {"out": -3.43164062}, HALF),
    Example("F13", "aclnnMseLoss", LARGE, {"reduction": MEAN}, {"out": 30000}, HALF),
    # In FLOAT16 the kernel's own sum overflows first, whatever the output is.
    Example("F13", "aclnnL1Loss", FAR, {"reduction": SUM}, {"out": INF}, HALF, WIDE),
    *_reduced("F13", "aclnnL1Loss", FAR, {SUM: 120000}),
]
