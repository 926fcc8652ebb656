"""A whole model computed by functions that stand for those of torch."""

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from npucall_client import Client  # noqa: E402
from npucall_client.torch import convert, functional  # noqa: E402
from npucall_client.torch.runs import OnClient  # noqa: E402

nn = torch.nn


class Model(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Calls by layers, by torch.nn.functional, by torch, as a method, and two that are torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.25)
        )

    def forward(self, x: Any) -> Any:
        z = nn.functional.gelu(self.body(x)) + 1
        return torch.softmax(z, dim=1).sigmoid().sum()


def test_a_converted_model_shares_parameters_and_has_the_results_and_gradients_of_torch(
    local: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    own = OnClient.__call__

    def heard(self: Any, operator: str, /, **arguments: Any) -> Any:
        asked.append(operator)
        return own(self, operator, **arguments)

    monkeypatch.setattr(OnClient, "__call__", heard)
    model, x = Model(), torch.tensor([[1, 0, 6], [3, 3, 2]])
    torch.manual_seed(4)
    expected = model(x)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    assert not asked
    converted = convert(model, functional(local))
    torch.manual_seed(4)
    found = converted(x)
    forward = ["aclnnEmbedding", "aclnnLayerNorm", "aclnnMatmul", "aclnnAdd", "aclnnRelu"]
    forward += ["aclnnDropoutDoMask", "aclnnGeluV2"]
    assert asked == [*forward, "aclnnSoftmax", "aclnnSigmoid"]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        list(torch.autograd.grad(found, list(converted.parameters()))), list(gradients)
    )


class Images(nn.Module):  # type: ignore[misc]  # torch has no types here
    """The layers of images that modules of torch are."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 2), nn.GroupNorm(2, 4), nn.AvgPool2d((2, 1)), nn.AdaptiveAvgPool2d(2),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return self.body(x)


@pytest.mark.parametrize("training", [True, False])
def test_a_converted_model_of_images_is_torchs_with_its_running_numbers(
    local: Client, training: bool
) -> None:
    torch.manual_seed(3)
    model = Images().train(training)
    own, x = copy.deepcopy(model), torch.randn(3, 2, 8, 9)
    converted = convert(model, functional(local))
    for found, expected in ((converted(x), own(x)), (converted(2 * x), own(2 * x))):
        torch.testing.assert_close(found, expected)
        gradient = torch.randn(expected.shape)
        torch.testing.assert_close(
            torch.autograd.grad(found, list(converted.parameters()), gradient),
            torch.autograd.grad(expected, list(own.parameters()), gradient),
        )
    torch.testing.assert_close(list(model.buffers()), list(own.buffers()))


def test_what_operators_do_not_have_is_refused_in_a_converted_model_too(local: Client) -> None:
    with pytest.raises(ValueError, match="inplace: expected False, found True"):
        convert(nn.ReLU(inplace=True), functional(local))(torch.ones(3))


def test_the_operators_of_a_linear_layer_are_one_program_in_a_session(
    local: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    with local.session() as session:
        own = session.program

        def heard() -> Any:
            program = own()
            leave = program._leave

            async def left(kind: Any) -> None:
                ran.append(len(program))
                await leave(kind)

            program._leave = left
            return program

        monkeypatch.setattr(session, "program", heard)
        shapes = (2, 3), (4, 3), (4,)
        x, weight, bias = (torch.ones(*shape, requires_grad=True) for shape in shapes)
        functional(local, session=session).linear(x, weight, bias).sum().backward()
    # Each has copies of what stays: three arguments, a product, a sum; a gradient, three of it.
    assert ran == [5, 4]
    assert weight.grad.tolist() == [[2.0] * 3] * 4
