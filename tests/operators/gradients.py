"""The gradients of softmax and of the smooth activations: how tests call them and draw for them.

Each has two tensors, ``grad_output`` and one more, here called x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import npucall_client
from npucall.compute.evaluate import compute
from npucall.operators.gelu_backward import gelu_backward
from npucall.operators.gelu_backward_v2 import gelu_backward_v2
from npucall.operators.log_softmax_backward import log_softmax_backward
from npucall.operators.sigmoid_backward import sigmoid_backward
from npucall.operators.silu_backward import silu_backward
from npucall.operators.softmax_backward import softmax_backward
from npucall.operators.tanh_backward import tanh_backward
from npucall.operators.threshold_backward import threshold_backward

from .ulp import SINGLE_NOISE, assert_within, ulp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npucall.declare.declaration import Operator

INF, NAN = np.inf, np.nan
BF16 = ml_dtypes.bfloat16
FLOATS = (np.float32, np.float16, BF16)
LOCAL = npucall_client.connect("local:")

SOFTMAX, LOG_SOFTMAX = softmax_backward, log_softmax_backward
GELU, GELU_V2, SILU = gelu_backward, gelu_backward_v2, silu_backward
THRESHOLD, SIGMOID, TANH = threshold_backward, sigmoid_backward, tanh_backward
# Shapes of grad_output and x that broadcast, and of the result.
STRETCHED = [
    ((), (4, 6), (4, 6)),
    ((6,), (4, 6), (4, 6)),
    ((4, 1), (1, 6), (4, 6)),
    ((2, 4, 6), (6,), (2, 4, 6)),
    ((3, 1, 5), (), (3, 1, 5)),
    ((), (), ()),
]


def tensors(operator: Operator[..., Any], g: Any, x: Any) -> dict[str, Any]:
    """The inputs by their names."""
    return {"grad_output": g, operator.inputs[1].name: x}


def run(
    operator: Operator[..., Any],
    g: Any,
    x: Any,
    out: Any = None,
    client: Any = LOCAL,
    **attributes: Any,
) -> NDArray[Any]:
    """The result of a client; ``out`` is an array to write to."""
    if out is not None:
        client = client.options(outputs={operator.outputs[0].name: out})
    return client.run(operator, **tensors(operator, g, x), **attributes)


def exact(operator: Operator[..., Any], g: Any, x: Any, **attributes: Any) -> NDArray[np.float64]:
    """The result for float64, computed in float64."""
    return compute(operator, **tensors(operator, g, x), **attributes)


def aten(name: str, *values: Any, **named: Any) -> NDArray[Any]:
    """What torch's own operator answers; without torch the test is skipped."""
    torch = pytest.importorskip("torch")
    given = [torch.tensor(v) if isinstance(v, np.ndarray) else v for v in values]
    return getattr(torch.ops.aten, name)(*given, **named).numpy()


def drawn(
    *shapes: tuple[int, ...], dtype: Any = np.float64, largest: float = 4, seed: int = 1
) -> list[Any]:
    """An array of each shape, of numbers up to ``largest`` that the dtype has exactly."""
    random = np.random.default_rng(seed)
    return [np.asarray(random.uniform(-largest, largest, shape)).astype(dtype) for shape in shapes]


def wide(*arrays: Any) -> list[Any]:
    """The arrays in float64."""
    return [array.astype(np.float64) for array in arrays]


def assert_rounded(found: NDArray[Any], expected: Any, dtype: Any, terms: Any = 0) -> None:
    """Of this dtype, and within one ulp of float64's result, and what cancels among the terms."""
    assert found.dtype == dtype
    expected = np.asarray(expected, np.float64)
    assert_within(found, expected, ulp(expected, dtype) + SINGLE_NOISE * np.asarray(terms))


def title(value: Any) -> str | None:
    """The id of a parametrised operator or dtype."""
    if isinstance(value, type):
        return value.__name__
    return getattr(value, "title", None) if not isinstance(value, str) else value
