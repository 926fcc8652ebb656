"""Gradients of recurrent networks beside torch's, of whole networks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.operators.gru_backward import gru_backward
from npucall.operators.lstm_backward import lstm_backward

RUN: Any = compute
NETWORKS = [(1, 1, True, False), (2, 1, False, True), (2, 2, True, True), (3, 2, False, False)]
"""Layers, directions, whether there are biases, whether items come first."""


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def of_gru(of_x: Any, of_h: Any, h: Any) -> tuple[list[Any], list[Any]]:
    """A step of a GRU: what it keeps, r, z, n, h_n, h; and its states."""
    of_x, of_h = np.split(of_x, 3, 1), np.split(of_h, 3, 1)
    r, z = (sigmoid(a + b) for a, b in zip(of_x[:2], of_h[:2], strict=True))
    n = np.tanh(of_x[2] + r * of_h[2])
    h = (1 - z) * n + z * h
    return [r, z, n, of_h[2]], [h]


def of_lstm(of_x: Any, of_h: Any, _: Any, c: Any) -> tuple[list[Any], list[Any]]:
    """A step of an LSTM: the gates i, g, f, o; and its states."""
    i, f, g, o = np.split(of_x + of_h, 4, 1)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    c = f * c + i * g
    return [i, g, f, o], [o * np.tanh(c), c]


def kept_by(
    step: Callable[..., tuple[list[Any], list[Any]]],
    x: Any,
    params: list[Any],
    first: list[Any],
    ways: int,
    live: Any = None,
) -> list[list[Any]]:
    """What a network keeps of each step, by its kind: of each layer and direction.

    The states are the last ones. Where an item is not ``live``, they stay as they were.
    """
    cells = len(first[0])
    group = len(params) // cells
    kept: list[list[Any]] = []
    for cell in range(cells):
        w_ih, w_hh, *biases = params[cell * group : (cell + 1) * group]
        b_ih, b_hh = biases or (0.0, 0.0)
        if cell and cell % ways == 0:
            of_h = [each[-len(first)] for each in kept[-ways:]]
            x = np.concatenate(of_h, -1)
        states = [each[cell] for each in first]
        steps: list[Any] = [None] * len(x)
        for t in range(len(x)) if cell % ways == 0 else reversed(range(len(x))):
            gates, new = step(x[t] @ w_ih.T + b_ih, states[0] @ w_hh.T + b_hh, *states)
            there = True if live is None else live[t]
            states = [np.where(there, a, b) for a, b in zip(new, states, strict=True)]
            steps[t] = np.stack([*gates, *states])
        kept.append(list(np.stack(steps, 1)))
    return [list(each) for each in zip(*kept, strict=True)]


def near(answers: Any, expected: Any) -> None:
    for found, wanted in zip(answers, expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-10, atol=1e-12)


def drawn(torch: Any, *shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(1)
    return [torch.tensor(random.normal(size=shape), requires_grad=True) for shape in shapes]


def numbers(tensors: Any) -> list[Any]:
    return [each.detach().numpy() for each in tensors]


@pytest.mark.torch
@pytest.mark.parametrize(("layers", "ways", "bias", "first"), NETWORKS)
def test_gradients_of_a_gru_are_torchs(layers: int, ways: int, bias: bool, first: bool) -> None:
    torch = pytest.importorskip("torch")
    how = {"bias": bias, "batch_first": first, "bidirectional": ways == 2}
    network = torch.nn.GRU(5, 2, layers, **how).double()
    x, hx = drawn(torch, (3, 4, 5) if first else (4, 3, 5), (layers * ways, 3, 2))
    results = network(x, hx)
    grads = drawn(torch, *(tuple(each.shape) for each in results))
    expected = torch.autograd.grad(results, [x, hx, *network.parameters()], grads)
    given, states, *params = numbers([x, hx, *network.parameters()])
    kept = kept_by(of_gru, given.swapaxes(0, 1) if first else given, params, [states], ways)
    attributes = bias, layers, ways == 2, first
    dx, dh, dparams = RUN(
        gru_backward, given, params, states, *numbers(grads), *kept, None, *attributes
    )
    near((dx, dh, *dparams), expected)


def lstm_back(
    given: Any, hx: Any, params: Any, grads: Any, kept: Any, sizes: Any, *attributes: Any
) -> list[Any]:
    """All gradients, one after the other."""
    tanh = [np.tanh(each) for each in kept[-1]]
    bias, layers, both, first = attributes
    more = {"has_bias": bias, "num_layers": layers, "bidirectional": both, "batch_first": first}
    dx, dh, dc, dparams = RUN(lstm_backward, given, hx, params, *grads, *kept, tanh, sizes, **more)
    return [dx, dh, dc, *dparams]


@pytest.mark.torch
@pytest.mark.parametrize("there", [(0, 1, 2), (0,), (1,), (2,)])
@pytest.mark.parametrize(("layers", "ways", "bias", "first"), NETWORKS)
def test_gradients_of_an_lstm_are_torchs(
    layers: int, ways: int, bias: bool, first: bool, there: tuple[int, ...]
) -> None:
    """Also where some of the three gradients from above are null, which stands for 0."""
    torch = pytest.importorskip("torch")
    how = {"bias": bias, "batch_first": first, "bidirectional": ways == 2}
    network = torch.nn.LSTM(5, 2, layers, **how).double()
    shape = (layers * ways, 3, 2)
    x, h0, c0 = drawn(torch, (3, 4, 5) if first else (4, 3, 5), shape, shape)
    y, last = network(x, (h0, c0))
    results = [(y, *last)[n] for n in there]
    grads = drawn(torch, *(tuple(each.shape) for each in results))
    variables = [x, h0, c0, *network.parameters()]
    expected = torch.autograd.grad(results, variables, grads, materialize_grads=True)
    given, *hx = numbers([x, h0, c0])
    params = numbers(network.parameters())
    kept = kept_by(of_lstm, given.swapaxes(0, 1) if first else given, params, hx, ways)
    upstream = dict(zip(there, numbers(grads), strict=True))
    above = [upstream.get(n) for n in range(3)]
    near(lstm_back(given, hx, params, above, kept, None, bias, layers, ways == 2, first), expected)


@pytest.mark.torch
@pytest.mark.parametrize(("layers", "ways"), [(1, 1), (2, 1), (2, 2)])
def test_gradients_of_sequences_of_several_lengths_are_torchs(layers: int, ways: int) -> None:
    """What is padding has random numbers, which have no part in any gradient."""
    torch = pytest.importorskip("torch")
    rnn, sizes = torch.nn.utils.rnn, [3, 3, 2, 1]
    network = torch.nn.LSTM(5, 2, layers, bidirectional=ways == 2).double()
    shape = (layers * ways, 3, 2)
    x, h0, c0 = drawn(torch, (4, 3, 5), shape, shape)
    y, last = network(rnn.pack_padded_sequence(x, [4, 3, 2]), (h0, c0))
    results = [rnn.pad_packed_sequence(y)[0], *last]
    grads = drawn(torch, *(tuple(each.shape) for each in results))
    expected = torch.autograd.grad(results, [x, h0, c0, *network.parameters()], grads)
    given, *hx = numbers([x, h0, c0])
    params = numbers(network.parameters())
    live = (np.arange(3) < np.array(sizes)[:, None])[..., None]
    kept = kept_by(of_lstm, given, params, hx, ways, live)
    above = numbers(grads)
    above[0] = above[0].reshape(12, -1)
    found = lstm_back(
        given.reshape(12, 5), hx, params, above, kept, np.array(sizes), True, layers, ways == 2,
        False,
    )  # fmt: skip
    near([found[0].reshape(4, 3, 5), *found[1:]], expected)
