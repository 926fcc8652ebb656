"""What is judged follows from the statements; what a server lists is itself judged."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.rows import each

from npucall_conformance.running.subject import Subject
from npucall_conformance.stating.tables import product_of

from .faults import at, of
from .servers import failed, run
from .servers import local as server

GLU = "aclnnGlu"
FORGOTTEN = of("Glu", "", '"aclnnGlu"', '"aclnnGluV1"')
WITHOUT_BF16 = of("KlDiv", "", "shared.PRODUCTS", "dict.fromkeys(shared.PRODUCTS, FLOATS[:2])")
WIRES = "d.wire for d in dtypes"
UNKNOWN_DTYPE = at(".wire.listing", "Glu", "", f"[{WIRES}]", f"[*({WIRES}), 99]")


def test_a_missing_operator_may_be_allowed_and_lowers(monkeypatch: pytest.MonkeyPatch) -> None:
    FORGOTTEN.apply(monkeypatch)
    outcomes = run(server(), operators=(GLU,), quick=True, allow_missing=True)
    missing = [o for o in outcomes if o.problems == ("local: does not have aclnnGlu",)]
    assert failed(outcomes) == []
    assert {outcome.status for outcome in missing} == {"skipped"}
    assert all(outcome.lowers for outcome in missing)
    assert [o for o in outcomes if o.status == "passed"] == []


def test_missing_types_may_be_allowed_and_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    WITHOUT_BF16.apply(monkeypatch)
    some = {"operators": ("aclnnKlDiv",), "blocks": ("listing", "grid", "edge"), "quick": True}
    outcomes = run(server(), **some, allow_missing=True)
    assert failed(outcomes) == []
    assert {o.dtype for o in outcomes if o.status == "skipped" and o.block == "grid"} == {"bf16"}
    assert any(o.lowers for o in outcomes)
    assert any(o.status == "passed" and o.block == "listing" for o in outcomes)


def twice(first: Subject) -> None:
    first.listing = (*(first.listing or ()), *first.entries(GLU))


def from_elsewhere(first: Subject) -> None:
    first.listing = tuple(map(copy.deepcopy, first.listing or ()))
    for info in first.listing:
        info.source = "elsewhere"


def of_another_product(first: Subject) -> None:
    first.server = replace(first.server, product="Ascend910_93")


@each(
    ("lie", "problem"),
    [
        (twice, "expected aclnnGlu once, found it 2 times"),
        (from_elsewhere, "GetOperator: expected the entry of the listing, found another"),
        (of_another_product, "product of Ascend910B1: expected Ascend910B, found Ascend910_93"),
    ],
)
def test_a_server_that_lists_it_wrongly_fails(lie: Callable[[Subject], None], problem: str) -> None:
    first = server()
    lie(first)
    (outcome,) = run(first, operators=(GLU,), blocks=("listing",))
    assert outcome.problems == (f"listing: {problem}",)


def lies(said: Any) -> Iterator[tuple[str, Any]]:
    """What a server says, each time with another of its facts changed, and that fact's name."""
    for field in said.DESCRIPTOR.fields:
        name, values = field.name, getattr(said, field.name)
        if hasattr(values, "extend"):
            yield f"one of {name} less", changed(said, name, list(values)[1:])
            inner = lies(values[0]) if values and field.message_type else ()
            yield from ((f"{name}: {n}", changed(said, name, [v, *values[1:]])) for n, v in inner)
        elif not field.containing_oneof or said.HasField(name):
            other = ("" if values else "x") if isinstance(values, str) else 1 - values
            yield name, changed(said, name, other)


def changed(said: Any, name: str, value: Any) -> Any:
    other = copy.deepcopy(said)
    if isinstance(value, list):
        del getattr(other, name)[:]
        getattr(other, name).extend(value)
    else:
        setattr(other, name, value)
    return other


@each("title", [GLU, "aclnnL1LossBackward", "aclnnNLLLoss"])
def test_every_fact_that_is_listed_is_compared(monkeypatch: pytest.MonkeyPatch, title: str) -> None:
    first = server()
    (info,) = first.entries(title)
    passed = []
    turned = changed(info, "rules", list(info.rules)[::-1])
    for fact, lie in (*lies(info), ("order of rules", turned)):
        first.listing = (lie,)
        monkeypatch.setattr(type(first.client), "operator", lambda *_, lie=lie: lie)
        (outcome,) = run(first, operators=(title,), blocks=("listing",))
        passed += [fact] if outcome.status == "passed" else []
    assert passed == []


def test_a_product_that_no_statement_knows_lowers_the_verdict() -> None:
    first = server("Ascend310")
    first.server = replace(first.server, product="Ascend311")
    outcomes = run(first, operators=(GLU,), quick=True)
    assert {(o.status, o.lowers, *o.problems) for o in outcomes} == {
        ("skipped", True, "no statement knows the product 'Ascend311'")
    }


def test_a_product_without_any_operator_is_asked_what_it_refuses() -> None:
    outcomes = run(
        server("Ascend310"), blocks=("listing", "products", "defaults", "paths"), quick=True
    )
    ran = [outcome for outcome in outcomes if outcome.status != "skipped"]
    assert {outcome.block for outcome in ran} == {"listing", "products"}
    assert failed(ran) == []
    assert not any(outcome.lowers for outcome in outcomes)


def test_a_listed_type_that_is_unknown_here_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    UNKNOWN_DTYPE.apply(monkeypatch)
    (outcome,) = run(server(), operators=(GLU,), blocks=("listing",))
    wanted = "BF16, DOUBLE, FLOAT, FLOAT16"
    assert f"listing: Ascend910B: expected {wanted}, found 99, {wanted}" in outcome.problems


def test_a_default_variant_that_is_not_the_one_that_runs_fails() -> None:
    first = server()
    first.server = replace(first.server, default_variant="builtin")
    outcomes = run(first, operators=("aclnnKlDivTargetBackward",), blocks=("listing", "defaults"))
    assert {o.variant for o in failed(outcomes) if o.block == "listing"} == {
        "builtin", "community", "documented",
    }  # fmt: skip
    assert {o.variant for o in failed(outcomes) if o.block == "defaults"} == {"builtin"}


def test_a_reply_of_another_soc_than_the_servers_fails() -> None:
    first = server()
    first.server = replace(first.server, soc="Ascend910B2")
    outcomes = run(first, operators=(GLU,), blocks=("grid",), quick=True)
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert "found a reply of local on Ascend910B1" in outcomes[0].problems[0]


@each(
    ("soc", "product"),
    [
        ("Ascend910B", "Ascend910"),
        ("Ascend910B4-1", "Ascend910B"),
        ("Ascend910_9391", "Ascend910_93"),
        ("Ascend910_9579", "Ascend950"),
        ("Ascend950PR_957b", "Ascend950"),
        ("Ascend310P3", "Ascend310P"),
        ("Ascend310", "Ascend310"),
        ("Ascend610", ""),
    ],
)
def test_the_family_of_a_soc_is_that_of_the_documents(soc: str, product: str) -> None:
    assert product_of(soc) == product
