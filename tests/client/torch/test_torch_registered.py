"""What torch sees of the functions: signatures, operators, compilation, and what sessions hold."""

import gc
import inspect
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

from tests.client.torch.test_torch_functional import (  # noqa: E402
    CASES,
    ONE_OF_EACH,
    Case,
    compare,
    run,
    tensor,
)
from tests.rows import each  # noqa: E402

import npucall_client  # noqa: E402
from npucall_client import Client  # noqa: E402
from npucall_client.torch import WireWarning, functional, places, runs  # noqa: E402
from npucall_client.torch.functional import FUNCTIONS, Functional  # noqa: E402

FORWARDS = ["aclnn", pytest.param("torch", marks=pytest.mark.long)]


def test_signatures_are_those_of_torch() -> None:
    for name, function in FUNCTIONS.items():
        try:
            own = inspect.signature(function.torch).parameters.values()
        except ValueError:  # a builtin
            continue
        public = inspect.signature(getattr(Functional, name)).parameters
        given = inspect.signature(function.steps).parameters if "args" in public else public
        mine = [p for n, p in given.items() if n not in ("self", "stays")]  # drawn before
        assert [p.name for p in mine] == [p.name for p in own], name
        defaults = [(p.name, p.default) for p in mine]
        assert defaults == [(p.name, p.default) for p in own] or name in ("sigmoid", "tanh"), name


@pytest.mark.parametrize("forward", FORWARDS)
def test_torch_finds_each_operator_registered_as_it_should_be(local: Client, forward: str) -> None:
    functions = functional(local, forward=forward)
    wrong = []
    for case in ONE_OF_EACH:
        operator = getattr(torch.ops.npucall, case.function).default
        before = (functions.number, forward == "torch", True)
        given = case.made(torch.float32)
        checks = torch.library.opcheck(operator, before, given, raise_exception=False)
        wrong += [
            f"{case.title}: {name} {what}" for name, what in checks.items() if what != "SUCCESS"
        ]
    assert wrong == []


@pytest.mark.parametrize("forward", FORWARDS)
def test_a_compiled_function_is_one_node_and_has_the_same_gradients(
    local: Client, forward: str
) -> None:
    functions = functional(local, forward=forward)
    wrong = []
    for case in ONE_OF_EACH:
        function = getattr(functions, case.function)
        graphs: list[Any] = []

        def doubled(function: Any = function, **given: Any) -> Any:
            return function(**given) * 2

        def backend(graph: Any, inputs: Any, graphs: list[Any] = graphs) -> Any:
            graphs.append(
                [node.name for node in graph.graph.nodes if "npucall" in str(node.target)]
            )
            return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

        torch._dynamo.reset()
        compiled = torch.compile(doubled, fullgraph=True, backend=backend)
        found = run(compiled, case.made(torch.float32))
        wrong += compare(case, found, run(doubled, case.made(torch.float32)))
        wrong += [] if [len(names) for names in graphs] == [1] else [f"{case.title}: {graphs}"]
    assert wrong == []


def test_a_second_derivative_is_refused_by_a_sentence(local: Client) -> None:
    functions = functional(local, forward="torch")
    for case in ONE_OF_EACH:
        given = case.made(torch.float32)
        first = given[FUNCTIONS[case.function].gradients[0]]
        result = getattr(functions, case.function)(**given).sum()
        (gradient,) = torch.autograd.grad(result, first, create_graph=True)
        with pytest.raises(RuntimeError, match=f"^{case.function}: expected a first derivative"):
            gradient.sum().backward()


@each(
    ("name", "given", "sentence"),
    [
        ("relu", {"inplace": True}, "inplace: expected False, found True"),
        ("softmax", {}, "dim: expected a dimension, found None"),
        ("mse_loss", {"reduction": "batchmean"}, "reduction: expected one of none, mean, sum"),
        ("mse_loss", {"size_average": True}, "reduction: expected neither size_average nor reduce"),
        ("mse_loss", {"weight": torch.ones(3)}, "weight: expected None, found a tensor"),
        ("gelu", {"approximate": "erf"}, "approximate: expected 'none' or 'tanh', found 'erf'"),
        ("cross_entropy", {}, "target: expected labels of classes, found torch.float32"),
        ("soft_margin_loss", {"target": torch.ones(1)}, "target: expected the shape of input"),
    ],
)
def test_what_operators_do_not_have_is_refused_by_a_sentence(
    local: Client, name: str, given: dict[str, Any], sentence: str
) -> None:
    x = torch.ones(3)
    pair = {"input": x, "target": x} if "target" in FUNCTIONS[name].arguments else {"input": x}
    with pytest.raises(ValueError, match=sentence):
        getattr(functional(local, forward="torch"), name)(**{**pair, **given})


def test_gradients_that_no_operator_gives_are_refused_before_the_function_runs(
    local: Client,
) -> None:
    x = torch.rand(3, requires_grad=True)
    functions = functional(local, forward="torch")
    with pytest.raises(ValueError, match="target: expected a tensor that needs no gradient"):
        functions.binary_cross_entropy(x, x)
    with torch.no_grad():
        functions.binary_cross_entropy(x, x)


def test_another_forward_is_refused(local: Client) -> None:
    with pytest.raises(ValueError, match="forward: expected 'aclnn' or 'torch', found 'npu'"):
        functional(local, forward="npu")


def test_what_nobody_has_any_more_is_named(local: Client) -> None:
    number = functional(local).number
    with pytest.raises(LookupError, match=r"the functional\(...\) with number .* is gone"):
        torch.ops.npucall.relu(number, True, False, torch.ones(1))


def test_a_result_keeps_the_place_of_its_gradient(local: Client) -> None:
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    functional(local, forward="torch").relu(x).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_a_compiled_function_takes_other_extents_without_being_compiled_again(
    local: Client,
) -> None:
    functions = functional(local)
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def loss(x: Any, labels: Any) -> Any:
        return functions.cross_entropy(functions.softmax(functions.gelu(x), 1), labels)

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend=backend, dynamic=True)
    for rows in 4, 6, 9:
        given = {"x": torch.randn(rows, 3, requires_grad=True), "labels": torch.arange(rows) % 3}
        case = Case("gelu", given)
        found = run(compiled, given)
        assert compare(case, found, run(loss, given)) == []
    assert len(graphs) == 1


# What a backward needs stays in a session, and comes from there.


def test_gradients_are_the_same_with_a_session_and_without(client: Client) -> None:
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
    client: Client, monkeypatch: pytest.MonkeyPatch
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


def test_a_result_that_is_dropped_leaves_nothing_in_the_session(client: Client) -> None:
    with client.session() as session:
        functions = functional(client, session=session)
        loss = functions.cross_entropy(
            torch.rand(3, 2, requires_grad=True), torch.tensor([0, 1, 1])
        )
        assert len(places._held) == 1
        del loss
        gc.collect()
        assert places._held == {}


def test_without_gradients_nothing_stays(client: Client) -> None:
    with client.session() as session, torch.no_grad():
        functional(client, session=session).cross_entropy(torch.rand(1, 2), torch.tensor([1]))
        assert places._held == {}


@each("backend", ["aot_eager", "eager"])
def test_compiled_functions_find_what_their_session_holds(client: Client, backend: str) -> None:
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


def test_a_backward_tells_its_time(npucall_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
