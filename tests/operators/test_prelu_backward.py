"""aclnnPreluBackward: prototype, both outputs against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16
from npucall.errors import ShapeError
from npucall.operators.prelu_backward import prelu_backward
from npucall.products import ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, drawn, title, wide
from .subject import WITH_BF16, Subject, every

TENSORS = ("grad_output", "self", "weight", "grad_input", "grad_weight")
LARGE, SMALL = {"dtype": FLOAT, "shape": (2, 3, 4)}, {"dtype": FLOAT, "shape": (3,)}

# The order of ops-nn [src:check-order]: null tensors, dtypes, ranks, shapes
TABLE = Table(
    prelu_backward,
    {
        **dict.fromkeys(("grad_output", "self", "grad_input"), LARGE),
        **dict.fromkeys(("weight", "grad_weight"), SMALL),
    },
    [
        *null(*TENSORS),
        *dtype(DOUBLE, "self"),
        *dtype(FLOAT16, "grad_output", "weight", "grad_input", "grad_weight"),
        *shape(NINE, *TENSORS),
        *shape((2, 3), "grad_input"),
        *(Fault({"weight": {"shape": s}}, ShapeError, ("weight", "self")) for s in ((4,), (0,))),
        *shape((1,), "grad_weight"),
        *shape((3, 1), "grad_weight"),
        *shape((2, 3, 5), "grad_output"),
        *shape((1, 2, 3, 4), "grad_output"),
    ],
)
# self, weight
SHAPES = [
    ((), (1,)),
    ((7,), (1,)),
    ((5, 3), (3,)),
    ((5, 3), (1,)),
    ((2, 3, 4, 5), (3,)),
    ((2, 3, 4, 5), ()),
    ((2, 1, 4), (1,)),
]
# grad_output, self, weight, gradient of self, term of the weight's gradient
CELLS = [
    (2.0, 3.0, 0.5, 2.0, 0.0),
    (2.0, -3.0, 0.5, 1.0, -6.0),
    (2.0, 0.0, 0.5, 1.0, 0.0),
    (2.0, -0.0, 0.5, 1.0, 0.0),
    (2.0, NAN, 0.5, 1.0, NAN),
    (2.0, INF, NAN, 2.0, 0.0),
    (2.0, -INF, 0.5, 1.0, -INF),
    (INF, 0.0, 0.5, INF, NAN),
    (INF, 3.0, 0.5, INF, 0.0),
    (NAN, 3.0, 0.5, NAN, 0.0),
    (NAN, -3.0, 0.5, NAN, NAN),
]


def sample(of: tuple[int, ...], weights: tuple[int, ...], kind: Any = np.float64) -> dict[str, Any]:
    arrays = drawn(of, of, weights, dtype=kind)
    return dict(zip(("grad_output", "self", "weight"), arrays, strict=True))


def torch_gradients(tensors: dict[str, Any]) -> Any:
    """Those that autograd computes in float64; torch's weight has at most 1 dimension."""
    torch = pytest.importorskip("torch")
    g, x, weight = map(torch.tensor, wide(*tensors.values()))
    leaves = x.requires_grad_(), weight.requires_grad_()
    result = torch.nn.functional.prelu(x, weight.reshape(-1))
    found = torch.autograd.grad(result, leaves, g.expand_as(result))
    return [gradient.numpy() for gradient in found]


def terms(tensors: dict[str, Any], expected: Any) -> Any:
    """The size of what is added up: nothing, and all that is not above 0."""
    g, x, _ = tensors.values()
    sums = np.where(x <= 0, np.abs(g * x), 0)
    of_weight = sums.sum() if np.size(expected[1]) == 1 else sums.sum(axis=(0, *range(2, x.ndim)))
    return [0, np.reshape(of_weight, np.shape(expected[1]))]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* weight, "
        "aclTensor* gradInput, aclTensor* gradWeight"
    ),
    documented=(*WITH_BF16, ASCEND_910),
    shapes={"grad_output": (2, 3, 4, 5), "self": (2, 3, 4, 5), "weight": (3,)},
    torch=torch_gradients,
    calls=every(*({"grad_output": of, "self": of, "weight": weight} for of, weight in SHAPES)),
    noise=terms,
)


@pytest.mark.parametrize("of_g", [(), (1,), (5,), (3, 1, 1), (2, 1, 4, 5)])
def test_a_gradient_is_stretched_to_self(of_g: tuple[int, ...]) -> None:
    tensors = sample((2, 3, 4, 5), (3,), np.float32)
    (small,) = drawn(of_g, dtype=np.float32)
    full = np.broadcast_to(small, (2, 3, 4, 5)).copy()
    found = LOCAL.run(prelu_backward, **tensors | {"grad_output": small})
    expected = LOCAL.run(prelu_backward, **tensors | {"grad_output": full})
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize(("g", "x", "weight", "of_self", "of_weight"), CELLS)
def test_each_element_is_what_the_formula_says(
    kind: Any, g: float, x: float, weight: float, of_self: float, of_weight: float
) -> None:
    arrays = (np.array([[1, g], [1, g]], kind), np.array([[1, x], [1, 1]], kind))
    found = LOCAL.run(prelu_backward, *arrays, np.array([0.5, weight], kind))
    of_input = np.array([[1, of_self], [1, g]])
    np.testing.assert_array_equal(found.grad_input.astype(np.float64), of_input)
    np.testing.assert_array_equal(found.grad_weight.astype(np.float64), [0, of_weight])


def test_terms_are_summed_in_float64() -> None:
    g = np.array([[-(2**25)], [1], [2**25]], np.float32)  # in float32 the 1 would be lost
    _, grad_weight = LOCAL.run(prelu_backward, g, -np.ones_like(g), g[1])
    assert grad_weight.tolist() == [-1]


@pytest.mark.parametrize(
    ("of", "weights"), [((0, 3), (3,)), ((2, 3, 0), (3,)), ((0,), (1,)), ((2, 0), (0,))]
)
def test_an_empty_input_gives_a_weight_gradient_of_0(
    of: tuple[int, ...], weights: tuple[int, ...]
) -> None:
    grad_input, grad_weight = LOCAL.run(prelu_backward, **sample(of, weights, np.float16))
    assert (grad_input.shape, grad_input.dtype) == (of, np.float16)
    np.testing.assert_array_equal(grad_weight, np.zeros(weights, np.float16))


@pytest.mark.parametrize(
    ("self", "weight", "grad_weight", "passes"),
    [
        ((2, 3, 4), (1, 3, 1), (3,), True),
        ((2, 3, 4), (1, 3, 1), (1, 3, 1), False),
        ((2, 3, 4), (1, 1), (1, 1), True),
        ((2, 3, 4), (1, 1), (1,), False),
        ((2, 3, 4), (1,), (3,), False),
        ((3,), (1,), (1,), True),
        ((), (), (), True),
    ],
)
def test_the_weights_gradient_is_a_list_unless_it_is_one_element(
    self: tuple[int, ...], weight: tuple[int, ...], grad_weight: tuple[int, ...], passes: bool
) -> None:
    shapes = {"weight": weight, "grad_weight": grad_weight}
    shapes |= dict.fromkeys(("self", "grad_output", "grad_input"), self)
    fault = Fault({n: {"shape": s} for n, s in shapes.items()}, ShapeError, ("grad_weight",))
    assert TABLE.refusal(fault) == (None if passes else fault.answer)


@pytest.mark.parametrize(("self", "weight"), [((3,), (3,)), ((3, 2), (3,)), ((), (0,))])
def test_channels_are_the_second_dimension(self: tuple[int, ...], weight: tuple[int, ...]) -> None:
    shapes = {"weight": weight, "grad_weight": weight}
    shapes |= dict.fromkeys(("self", "grad_output", "grad_input"), self)
    changes = {name: {"shape": s} for name, s in shapes.items()}
    fault = Fault(changes, ShapeError, ("weight", "self"))
    assert TABLE.refusal(fault) == fault.answer
