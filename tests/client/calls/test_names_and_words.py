"""Names in Python and in C, words for numbers, and what is said of those that are wrong."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.client.conftest import EVERY_CLIENT
from tests.rows import each

import npucall.operators
from npucall.errors import AttributeValueError, OperatorUnknownError
from npucall.operators import CATALOGUE
from npucall.operators.gelu_v2 import gelu_v2
from npucall.operators.kl_div import kl_div
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.l1_loss import l1_loss
from npucall.wire.listing import declare
from npucall_client import Client
from npucall_client.calls.argument_texts import arguments_of

ONES = np.ones((2, 3), np.float32)


def ways(client: Client) -> Iterator[Callable[..., Any]]:
    """Every way of a client that takes arguments by name."""
    yield client.run
    yield client.execute
    yield client.plan
    with client.pipeline() as pipeline:
        yield lambda *args, **kwargs: pipeline.submit(*args, **kwargs).result()
    with client.session() as session:
        yield session.run
        with session.program() as program:
            yield program.run


@EVERY_CLIENT
def test_names_of_c_and_words_are_taken_on_every_way(client: Client) -> None:
    given: dict[str, Any] = {"gradOutput": ONES, "self": ONES, "target": ONES, "logTarget": True}
    called: Any
    for called in kl_div_backward, "aclnnKlDivBackward":
        for way in ways(client):
            way(called, **given, reduction="batchmean")
        np.testing.assert_array_equal(
            client.run(called, **given, reduction="batchmean"),
            client.run(kl_div_backward, ONES, ONES, ONES, 3, log_target=True),
        )


def test_an_output_may_have_its_name_in_c(client: Client) -> None:
    mine = np.zeros_like(ONES)
    options = client.options(outputs={"gradTarget": mine})
    assert options.run(kl_div_target_backward_builtin, ONES, ONES, ONES) is mine


BOTH = (
    "aclnnKlDivBackward: got grad_output and gradOutput, which are the names of one argument "
    "in Python and in C; give one of them"
)
A_MODULE = (
    r"found the module npucall\.operators\.kl_div_backward; "
    r"write: from npucall\.operators\.kl_div_backward import kl_div_backward"
)
WORDS = "reduction: expected an integer of 64 bits, or one of 'none', 'mean', 'sum', found "


@each(
    ("called", "args", "given", "kind", "said"),
    [
        (kl_div_backward, (), {"grad_output": 0, "gradOutput": 0}, TypeError, BOTH),
        (kl_div_backward, (), {"gradOutput": 0, "grad_output": 0}, TypeError, BOTH),
        *(
            (kl_div_backward, (), {typed: 0}, TypeError, f"'{typed}'; it has .*; did you mean {it}")
            for typed, it in {
                "grad_ouput": "grad_output", "log_targets": "log_target", "Self": "self"
            }.items()
        ),
        (npucall.operators.kl_div_backward, (ONES,), {}, TypeError, A_MODULE),
        (kl_div_backward, (ONES, ONES), {"gradOutput": 0}, TypeError, "multiple values for argum"),
        (np, (ONES,), {}, TypeError, r"found the module numpy$"),
        (3, (ONES,), {}, TypeError, r"expected an operator, or its name .*, found int"),
        *(
            (l1_loss, (ONES,), {"reduction": word}, AttributeValueError, f"{WORDS}'{word}'")
            for word in ("men", "MEAN", "", "1", "batchmean")
        ),
    ],
)  # fmt: skip
def test_a_wrong_call_is_refused_alike_on_every_way(
    client: Client, called: Any, args: Any, given: dict[str, Any], kind: Any, said: str
) -> None:
    arrays = {name: ONES if value == 0 else value for name, value in given.items()}
    for way in ways(client):
        with pytest.raises(kind, match=said):
            way(called, *args, **arrays, target=ONES)


@each(
    ("typed", "meant"),
    [
        ("aclnnKLDivBackward", "aclnnKlDivBackward"),
        ("kl_div_backwards", "aclnnKlDivBackward"),
        ("aclnnKlDivv", "aclnnKlDiv"),
        ("aclnnNllLoss", "aclnnNLLLoss"),
        ("cross_entropy", "aclnnCrossEntropyLoss"),
    ],
)
def test_a_name_that_is_nearly_one_is_told_which(client: Client, typed: str, meant: str) -> None:
    with pytest.raises(OperatorUnknownError, match=rf"found '{typed}'; did you mean .*{meant}\b"):
        client.run(typed, x=ONES)
    with pytest.raises(OperatorUnknownError, match="did you mean"):
        CATALOGUE[typed]


@each("typed", ["", "aclnn", "add_everything_up", "aclnnAdd" * 1000])
def test_a_name_that_is_like_no_operator_s_gets_no_guess(client: Client, typed: str) -> None:
    with pytest.raises(OperatorUnknownError) as caught:
        client.run(typed, x=ONES)
    assert "did you mean" not in str(caught.value)


@each(
    ("operator", "word", "number"),
    [
        *((kl_div, word, number) for number, word in enumerate(("none", "mean", "sum"))),
        (kl_div, "batchmean", 3),
        (kl_div_target_backward_builtin, "batchmean", 3),
        (CATALOGUE["aclnnL1Loss"], "sum", 2),
    ],
)
def test_a_reduction_may_be_a_word(client: Client, operator: Any, word: str, number: int) -> None:
    tensors = [np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)] * 2
    tensors += [ONES] * (len(operator.inputs) - 2)
    by_number = client.run(operator, *tensors, reduction=number)
    np.testing.assert_array_equal(client.run(operator, *tensors, reduction=word), by_number)


def test_gelu_knows_its_forms_by_their_words(client: Client) -> None:
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    tanh = client.run(gelu_v2, x, approximate="tanh")
    np.testing.assert_array_equal(tanh, client.run(gelu_v2, x, 1))
    np.testing.assert_array_equal(client.run(gelu_v2, x, "none"), client.run(gelu_v2, x))
    assert (tanh != client.run(gelu_v2, x)).any()


def test_the_words_of_a_variant_are_its_own(client: Client) -> None:
    given: Any = {"reduction": "batchmean", "variant": "builtin"}
    client.run("aclnnKlDivTargetBackward", ONES, ONES, ONES, **given)
    given["variant"] = "documented"
    with pytest.raises(AttributeValueError, match="'none', 'mean', 'sum', found 'batchmean'"):
        client.run("aclnnKlDivTargetBackward", ONES, ONES, ONES, **given)


def test_an_argument_that_is_typed_may_have_its_name_in_c(client: Client) -> None:
    given, _ = arguments_of(["gradOutput=[1]", "logTarget=true"], kl_div_backward, "float32")
    assert list(given) == ["grad_output", "log_target"]
    described = declare(client.operator("aclnnKlDivBackward"))
    assert list(arguments_of(["gradOutput=[1]"], described, "float32")[0]) == ["grad_output"]
    with pytest.raises(ValueError, match="gradOutput=2: expected grad_output once, found it twice"):
        arguments_of(["grad_output=1", "gradOutput=2"], kl_div_backward, "float32")
    with pytest.raises(ValueError, match="did you mean grad_output"):
        arguments_of(["grad_ouput=1"], kl_div_backward, "float32")


@each("typed", ["reduction=mean", 'reduction="mean"'])
def test_a_word_may_be_typed(client: Client, typed: str) -> None:
    for described in (l1_loss, declare(client.operator("aclnnL1Loss"))):
        given, _ = arguments_of(["self=[1]", "target=[3]", typed], described, "float32")
        assert given["reduction"] == "mean"
        assert client.run("aclnnL1Loss", **given) == 2
