"""The gradients of a module's losses and activations, judged call by call."""

import re
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from tests.rows import each  # noqa: E402

from npucall_client import Client  # noqa: E402
from npucall_client.torch import check, runs  # noqa: E402

nn = torch.nn


class Model(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Layers that are losses and activations, and calls that no layer makes."""

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), *layers)
        self.loss = nn.CrossEntropyLoss(ignore_index=1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        z = self.body(x)
        own = nn.functional.mse_loss(z, torch.zeros_like(z)) + z.sigmoid().sum()
        return {"loss": self.loss(z, labels) + own, "rows": torch.softmax(z, 1)}


def inputs() -> tuple[Any, Any]:
    return torch.randn(5, 4), torch.arange(5) % 4


LAYERS = (
    nn.GELU(), nn.ReLU(inplace=True), nn.PReLU(), nn.Softplus(), nn.Hardtanh(), nn.Hardswish(),
    nn.Threshold(0.1, 0.0), nn.SiLU(), nn.ELU(inplace=True), nn.LeakyReLU(), nn.Sigmoid(),
    nn.Tanh(), nn.Hardsigmoid(), nn.ReLU6(), nn.LogSoftmax(1), nn.Softmax(1),
)  # fmt: skip


def test_every_call_of_a_module_is_found_by_the_name_of_its_layer(local: Client) -> None:
    checked = check(Model(*LAYERS, nn.GLU()), inputs(), local)
    assert checked.passed, checked
    found = [(row.layer, row.function, row.argument) for row in checked.rows]
    names = ["gelu", "relu", "prelu", "softplus", "hardtanh", "hardswish", "threshold", "silu"]
    names += ["elu", "leaky_relu", "sigmoid", "tanh", "hardsigmoid", "hardtanh", "log_softmax"]
    layers = [
        (f"body.{number}", name, "input") for number, name in enumerate([*names, "softmax"], 1)
    ]
    layers.insert(3, ("body.3", "prelu", "weight"))
    layers.append(("body.17", "glu", "input"))
    others = [
        ("", "mse_loss", "input"),
        ("", "sigmoid", "input"),
        ("loss", "cross_entropy", "input"),
    ]
    linear = [("body.0", "linear", name) for name in ("input", "weight", "bias")]
    assert found == [*linear, *layers, *others, ("", "softmax", "input")]
    assert checked.unknown == ()


def test_losses_are_found_in_their_layers(local: Client) -> None:
    shares = torch.rand(6, 3) * 0.8 + 0.1
    losses = {
        nn.KLDivLoss(reduction="sum"): shares,
        nn.L1Loss(): shares,
        nn.SmoothL1Loss(): shares,
        nn.MSELoss(): shares,
        nn.BCELoss(): shares,
        nn.BCEWithLogitsLoss(): shares,
        nn.SoftMarginLoss(): shares.sign(),
        nn.NLLLoss(): torch.arange(6) % 3,
    }
    for loss, target in losses.items():
        x = shares.flip(0).requires_grad_()
        checked = check(loss, (x, target), local)
        assert checked.passed, checked
        assert [row.shape for row in checked.rows] == [(6, 3)]


def test_what_no_operator_has_is_named(local: Client) -> None:
    model = Model(nn.Softsign(), nn.GELU())
    checked = check(model, inputs(), local)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert checked.unknown == ("body.1 (Softsign)",)
    assert "not checked, for no operator has its gradient: body.1 (Softsign)" in str(checked)


def test_a_wrong_gradient_is_found_and_named(
    local: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = runs.OnClient.__call__

    def wrong(self: Any, operator: str, /, **arguments: Any) -> Any:
        found = own(self, operator, **arguments)
        return found * 1.01 if operator == "aclnnGeluBackwardV2" else found

    monkeypatch.setattr(runs.OnClient, "__call__", wrong)
    checked = check(Model(nn.GELU(), nn.Tanh()), inputs(), local)
    assert not checked.passed
    (row,) = (row for row in checked.rows if row.problem)
    assert (row.layer, row.function) == ("body.1", "gelu")
    assert row.ratio > 1 > row.torchs
    assert re.search(r"^body\.1: element .* of the tolerance", str(checked), re.MULTILINE)
    assert str(checked).endswith("1 of 9 gradients by cann-standard failed")


def test_what_a_device_refuses_does_not_pass(local: Client) -> None:
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    given = {"input": torch.randn(3, 4, requires_grad=True), "target": torch.tensor([0, 1, 2])}
    checked = check(loss, given, local)
    assert not checked.passed
    assert "cross_entropy was refused: label_smoothing: expected 0" in str(checked)


@each("layer", [nn.GELU(), nn.ReLU(inplace=True), nn.PReLU()])
def test_inputs_need_no_gradient_of_their_own(local: Client, layer: Any) -> None:
    x = torch.randn(3, 4)
    before = x.clone()
    for given in (x, [x], {"input": x}):
        checked = check(layer, given, local)
        assert checked.passed
        assert checked.rows[0].argument == "input"
    assert not x.requires_grad
    assert torch.equal(x, before)


def test_without_the_suite_it_says_what_to_install(
    local: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npucall_client.torch.checking.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"torch\.check: .* pip install \./conformance, in"):
        check(nn.GELU(), torch.randn(3), local)


def test_calls_that_nothing_judges_are_named_and_counted(local: Client) -> None:
    class Other(nn.Module):  # type: ignore[misc]  # torch has no types here
        def forward(self, x: Any) -> Any:
            return nn.functional.softsign(
                torch.relu(x).view(-1) + nn.functional.softsign(x).view(-1)
            )

    checked = check(Other(), torch.randn(3, 4), local)
    assert checked.passed
    assert checked.others == {"softsign": 2, "add": 1}
    assert "not checked, for npucall has no gradient of them: softsign (2), add (1)" in str(checked)


def test_what_torch_computes_past_its_functions_or_for_nobody_is_named_too(local: Client) -> None:
    class Doubled(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return 2 * grad

    class Other(nn.Module):  # type: ignore[misc]  # torch has no types here
        def forward(self, x: Any) -> Any:
            torch.relu(x)
            shares = torch.sigmoid(Doubled.apply(x))
            return nn.functional.binary_cross_entropy(shares, target.requires_grad_())

    target = torch.rand(3)
    checked = check(Other(), torch.randn(3), local)
    assert checked.passed
    assert [row.function for row in checked.rows] == ["sigmoid", "binary_cross_entropy"]
    assert checked.others == {"Doubled": 1, "binary_cross_entropy's target": 1}
    assert str(checked).splitlines()[-2] == "not checked, for no output depends on them: relu (1)"


def test_a_module_in_which_nothing_can_be_checked_does_not_pass(local: Client) -> None:
    for module, given in ((nn.Softsign(), torch.ones(4)), (nn.ReLU(), torch.ones(3).long())):
        checked = check(module, given, local)
        assert not checked.passed
        assert str(checked).endswith("failed, because the module called nothing to check")


@each("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_are_judged_by_their_own_tolerance(local: Client, dtype: Any) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Softmax(1)).to(dtype)
    checked = check(model, torch.randn(4, 8, dtype=dtype), local)
    assert checked.passed, checked
    assert {row.dtype for row in checked.rows} == {str(dtype).removeprefix("torch.")}
