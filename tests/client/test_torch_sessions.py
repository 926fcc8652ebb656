"""What a backward needs stays in a session, and comes from there."""

from __future__ import annotations

import gc
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:this backward spent"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
]

from tests.client.test_torch_functional import CASES, compare, run, tensor  # noqa: E402
from tests.rows import each  # noqa: E402

import npucall_client  # noqa: E402
from npucall_client.torch import WireWarning, functional, places, runs  # noqa: E402


def test_gradients_are_the_same_with_a_session_and_without(client: npucall_client.Client) -> None:
    wrong = []
    with client.session() as session:
        for case in CASES:
            alone = run(getattr(functional(client), case.function), case.made(torch.float32))
            held = functional(client, session=session)
            wrong += compare(
                case, run(getattr(held, case.function), case.made(torch.float32)), alone
            )
    assert wrong == []


def test_a_backward_sends_nothing_but_its_gradient(
    client: npucall_client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.rand(8, 5, requires_grad=True)
    labels = torch.arange(8) % 5
    sent: list[list[str]] = []
    own = runs.InSession.placed

    def placed(self: Any, arguments: Any) -> Any:
        told = own(self, arguments)
        sent.append([name for name, value in told.items() if tensor(value)])
        return told

    monkeypatch.setattr(runs.InSession, "placed", placed)
    with client.session() as session:
        functions = functional(client, session=session)
        losses = [functions.mse_loss(x, x.detach() / 2), functions.cross_entropy(x, labels)]
        losses += [functions.sigmoid(x).sum(), functions.softmax(x, 1).sum()]
        sent.clear()
        for loss in losses:
            loss.backward()
    assert sent == [["grad_output"], ["grad_loss"], ["grad_output"], ["grad_output"]]


def test_a_result_that_is_dropped_leaves_nothing_in_the_session(
    client: npucall_client.Client,
) -> None:
    with client.session() as session:
        functions = functional(client, session=session)
        loss = functions.cross_entropy(
            torch.rand(3, 2, requires_grad=True), torch.tensor([0, 1, 1])
        )
        assert len(places._held) == 1
        del loss
        gc.collect()
        assert places._held == {}


def test_without_gradients_nothing_stays(client: npucall_client.Client) -> None:
    with client.session() as session, torch.no_grad():
        functional(client, session=session).cross_entropy(torch.rand(1, 2), torch.tensor([1]))
        assert places._held == {}


@each("backend", ["aot_eager", "eager"])
def test_compiled_functions_find_what_their_session_holds(
    client: npucall_client.Client, backend: str
) -> None:
    torch._dynamo.reset()
    x = torch.rand(4, 3, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0])
    with client.session() as session:
        functions = functional(client, session=session)

        def loss(x: Any) -> Any:
            return functions.cross_entropy(functions.tanh(x * 2), labels)

        (found,) = torch.autograd.grad(torch.compile(loss, backend=backend, fullgraph=True)(x), x)
    own = torch.nn.functional.cross_entropy(torch.tanh(x * 2), labels)
    torch.testing.assert_close(found, torch.autograd.grad(own, x)[0])


def test_torch_finds_the_operators_of_a_session_registered_as_they_should_be() -> None:
    with npucall_client.connect("local:") as client, client.session() as session:
        functions = functional(client, session=session)
        for name in "cross_entropy", "sigmoid", "mse_loss":
            (case, *_) = (case for case in CASES if case.function == name)
            operator = getattr(torch.ops.npucall, name).default
            before = (functions.number, False, True)
            torch.library.opcheck(operator, before, case.made(torch.float32))


def test_who_waits_for_the_wire_is_told_once(npucall_server: str) -> None:
    some, nearly_all = (SimpleNamespace(total_ns=10**7, timings=(own,)) for own in (10**6, 10**5))
    with npucall_client.connect(npucall_server) as client:
        place = places.Place(client, None)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for result in some, nearly_all, nearly_all:
                place._note(result)  # type: ignore[arg-type]
            places.Place(client, None)._note(nearly_all)  # type: ignore[arg-type]
    (warning,) = told
    assert warning.category is WireWarning
    assert str(warning.message).startswith(
        "this backward spent 99% of its 10.0 ms on sending and receiving"
    )


def test_a_backward_tells_how_long_it_took(
    npucall_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Any] = []
    monkeypatch.setattr(places.Place, "_note", lambda _, result: noted.append(result))
    x = torch.rand(3, requires_grad=True)
    with npucall_client.connect(npucall_server) as client, client.session() as session:
        for within in None, session:
            functional(client, session=within).relu(x).sum().backward()
    assert [result.total_ns > sum(result.timings) for result in noted] == [True, True]


def test_float64_is_refused_by_a_server(npucall_server: str) -> None:
    with npucall_client.connect(npucall_server) as client:
        functions = functional(client)
        with pytest.raises(TypeError, match="input: expected float32, float16 or bfloat16, found"):
            functions.relu(torch.ones(1, dtype=torch.float64))
