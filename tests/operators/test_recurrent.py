"""Gradients of recurrent networks beside torch's, of whole networks."""

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.operators.gru_backward import gru_backward

KEPT = ("r", "z", "n", "h_n", "h")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def kept_by(x: Any, params: list[Any], hx: Any, layers: int, ways: int) -> list[list[Any]]:
    """What a GRU keeps of each step, by its kind: of each layer and direction."""
    group, hidden = len(params) // (layers * ways), hx.shape[2]
    kept: list[list[Any]] = [[] for _ in KEPT]
    for cell in range(layers * ways):
        w_ih, w_hh, *biases = params[cell * group : (cell + 1) * group]
        b_ih, b_hh = biases or (0.0, 0.0)
        if cell and cell % ways == 0:
            x = np.concatenate(kept[-1][-ways:], -1)
        h, steps = hx[cell], [np.zeros((*x.shape[:2], hidden)) for _ in KEPT]
        for t in range(len(x)) if cell % ways == 0 else reversed(range(len(x))):
            of_x, of_h = (np.split(v, 3, 1) for v in (x[t] @ w_ih.T + b_ih, h @ w_hh.T + b_hh))
            r, z = (sigmoid(a + b) for a, b in zip(of_x[:2], of_h[:2], strict=True))
            n = np.tanh(of_x[2] + r * of_h[2])
            h = (1 - z) * n + z * h
            for step, number in zip(steps, (r, z, n, of_h[2], h), strict=True):
                step[t] = number
        for each, step in zip(kept, steps, strict=True):
            each.append(step)
    return kept


@pytest.mark.torch
@pytest.mark.parametrize(
    ("layers", "ways", "bias", "first"),
    [(1, 1, True, False), (2, 1, False, True), (2, 2, True, True)],
)
def test_gradients_of_a_gru_are_torchs(layers: int, ways: int, bias: bool, first: bool) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(1)
    how = {"bias": bias, "batch_first": first, "bidirectional": ways == 2}
    network = torch.nn.GRU(5, 2, layers, **how).double()
    params = [each.detach().numpy() for each in network.parameters()]
    x, hx = random.normal(size=(4, 3, 5)), random.normal(size=(layers * ways, 3, 2))
    given = x.transpose(1, 0, 2) if first else x
    inputs = [torch.tensor(each, requires_grad=True) for each in (given, hx)]
    results = network(*inputs)
    grads = [torch.tensor(random.normal(size=tuple(each.shape))) for each in results]
    expected = torch.autograd.grad(results, [*inputs, *network.parameters()], grads)
    upstream = [each.numpy() for each in grads]
    kept = kept_by(x, params, hx, layers, ways)
    attributes = bias, layers, ways == 2, first
    dx, dh, dparams = compute(gru_backward, given, params, hx, *upstream, *kept, None, *attributes)
    for found, wanted in zip((dx, dh, *dparams), expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-10, atol=1e-12)
