"""What torch sees of the functions: their signatures, operators, compilation, and refusals."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
]

from tests.client.test_torch_functional import ONE_OF_EACH, Case, compare, run  # noqa: E402
from tests.rows import each  # noqa: E402

import npucall_client  # noqa: E402
from npucall_client.torch import functional  # noqa: E402
from npucall_client.torch.functional import FUNCTIONS  # noqa: E402

FORWARDS = ["aclnn", pytest.param("torch", marks=pytest.mark.long)]


def test_signatures_are_those_of_torch() -> None:
    for name, function in FUNCTIONS.items():
        try:
            own = inspect.signature(function.torch).parameters.values()
        except ValueError:  # a builtin
            continue
        mine = list(inspect.signature(function.steps).parameters.values())
        assert [p.name for p in mine] == [p.name for p in own], name
        defaults = [(p.name, p.default) for p in mine]
        assert defaults == [(p.name, p.default) for p in own] or name in ("sigmoid", "tanh"), name


@pytest.mark.parametrize("forward", FORWARDS)
def test_torch_finds_each_operator_registered_as_it_should_be(
    local: npucall_client.Client, forward: str
) -> None:
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
    local: npucall_client.Client, forward: str
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


def test_a_second_derivative_is_refused_by_a_sentence(local: npucall_client.Client) -> None:
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
    local: npucall_client.Client, name: str, given: dict[str, Any], sentence: str
) -> None:
    x = torch.ones(3)
    pair = {"input": x, "target": x} if "target" in FUNCTIONS[name].arguments else {"input": x}
    with pytest.raises(ValueError, match=sentence):
        getattr(functional(local, forward="torch"), name)(**{**pair, **given})


def test_gradients_that_no_operator_gives_are_refused_before_the_function_runs(
    local: npucall_client.Client,
) -> None:
    x = torch.rand(3, requires_grad=True)
    functions = functional(local, forward="torch")
    with pytest.raises(ValueError, match="target: expected a tensor that needs no gradient"):
        functions.binary_cross_entropy(x, x)
    with torch.no_grad():
        functions.binary_cross_entropy(x, x)


def test_another_forward_is_refused(local: npucall_client.Client) -> None:
    with pytest.raises(ValueError, match="forward: expected 'aclnn' or 'torch', found 'npu'"):
        functional(local, forward="npu")


def test_what_nobody_has_any_more_is_named(local: npucall_client.Client) -> None:
    number = functional(local).number
    with pytest.raises(LookupError, match=r"the functional\(...\) with number .* is gone"):
        torch.ops.npucall.relu(number, True, False, torch.ones(1))


def test_a_result_keeps_the_place_of_its_gradient(local: npucall_client.Client) -> None:
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    functional(local, forward="torch").relu(x).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_a_compiled_function_takes_other_extents_without_being_compiled_again(
    local: npucall_client.Client,
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
