"""What annoyed new users of operators in their first hour, one test a friction."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import linecache
import multiprocessing
import pickle
import pydoc
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import npucall.operators
import npucall_client
import npucall_client.aio
from npucall.declare.catalogue import Catalogue
from npucall.declare.parameters import Attribute, Kind
from npucall.errors import AttributeValueError, DTypeError, NpucallError, OperatorUnknownError
from npucall.operators import CATALOGUE
from npucall.operators.cross_entropy_loss import cross_entropy_loss
from npucall.operators.gelu_v2 import gelu_v2
from npucall.operators.kl_div import kl_div
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.l1_loss import l1_loss
from npucall.operators.nll_loss import nll_loss
from npucall.wire.listing import declare
from npucall_client.argument_texts import arguments_of

from .scripted import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXP2 = listed("aclnnExp2", self="in const aclTensor*", n="int64_t", out="out aclTensor*")

# Operators in a notebook.


def test_an_operator_is_one_line_with_its_arguments() -> None:
    assert repr(kl_div_backward) == (
        "<operator aclnnKlDivBackward"
        "(grad_output, self, target, reduction=1, log_target=False)>"
    )  # fmt: skip
    assert repr(kl_div_target_backward_builtin).endswith(
        "log_target=False) of the variant builtin>"
    )


def test_an_operator_of_a_header_is_one_line_too() -> None:
    assert repr(EXP2) == "<operator aclnnExp2(*, self=None, n), no reference>"


def test_every_operator_is_one_line() -> None:
    assert all("\n" not in repr(operator) for operator in CATALOGUE)


def test_inspect_knows_the_parameters_of_an_operator() -> None:
    parameters = inspect.signature(kl_div_backward).parameters
    assert list(parameters) == ["grad_output", "self", "target", "reduction", "log_target"]
    assert parameters["reduction"].default == 1


def test_inspect_shows_the_source_of_the_formula() -> None:
    assert "kl_factor(facts, reduction" in inspect.getsource(kl_div_backward)


@pytest.mark.parametrize(
    "line",
    [
        "Gradient of ``kl_div(self, target)`` with respect to ``self``.",
        "grad_output (gradOutput in C): tensor. gradient of the loss",
        "reduction: int64_t, 1 if not given. 0 none, 1 mean, 2 sum, 3 batchmean",
        "out: gradient with respect to self; shape: self, dtype: self",
        "Ascend910 (Atlas training): FLOAT, FLOAT16",
        "self and target broadcast to one shape (common)",
        "client.run(kl_div_backward, ...)",
    ],
)
def test_help_shows_the_operator_s_own_text_and_parameters(line: str) -> None:
    assert line in pydoc.plain(pydoc.render_doc(kl_div_backward))
    assert line in (kl_div_backward.__doc__ or "")


def test_the_class_of_operators_keeps_its_own_text() -> None:
    text = type(kl_div_backward).__doc__ or ""
    assert text.startswith("A declared operator.")
    assert "Operator" in pydoc.render_doc(type(kl_div_backward))


def test_every_operator_has_a_page_of_help() -> None:
    pages = [operator.__doc__ or "" for operator in [*CATALOGUE, EXP2]]
    assert all("Parameters of aclnn" in page for page in pages)
    assert 'client.run("aclnnExp2", ...)' in pages[-1]


def test_an_operator_that_is_called_says_who_calls_it() -> None:
    called: Any = kl_div_backward
    with pytest.raises(
        TypeError, match=r"through a client: client\.run\(kl_div_backward, \.\.\.\)"
    ):
        called()


# The catalogue.


def test_the_catalogue_says_how_many_it_has_and_how_to_look() -> None:
    assert repr(CATALOGUE) == (
        f"<catalogue of {len(list(CATALOGUE))} operators: print(CATALOGUE) lists them, "
        'CATALOGUE["aclnnKlDiv"] is one of them>'
    )
    assert len(CATALOGUE) == len(list(CATALOGUE)) > 70


def test_the_catalogue_is_printed_as_a_line_an_operator() -> None:
    lines = str(CATALOGUE).splitlines()
    assert len(lines) == len(CATALOGUE)
    assert any(
        line.startswith("aclnnKlDivTargetBackward (builtin) ") and "Gradient of" in line
        for line in lines
    )
    assert not str(Catalogue([]))


def test_the_catalogue_gives_an_operator_by_its_name_and_completes_names() -> None:
    assert CATALOGUE["aclnnKlDivBackward"] is kl_div_backward
    named = CATALOGUE["aclnnKlDivTargetBackward", "builtin"]
    assert named is kl_div_target_backward_builtin
    assert "aclnnKlDivBackward" in CATALOGUE._ipython_key_completions_()
    with pytest.raises(OperatorUnknownError):
        CATALOGUE["aclnnNope"]


# Copies.


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_operator_is_that_of_the_catalogue(protocol: int) -> None:
    for operator in CATALOGUE:
        assert pickle.loads(pickle.dumps(operator, protocol)) is operator


def test_a_copied_operator_is_the_same() -> None:
    assert copy.copy(kl_div_backward) is kl_div_backward
    assert copy.deepcopy([cross_entropy_loss])[0] is cross_entropy_loss


def test_an_operator_of_a_header_is_pickled_with_its_parameters() -> None:
    again = pickle.loads(pickle.dumps(EXP2))
    assert (again.name, again.parameters, again.reference) == ("aclnnExp2", EXP2.parameters, False)
    assert again.prototype == copy.deepcopy(EXP2).prototype == EXP2.prototype


def test_an_operator_goes_to_another_process() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(repr, (kl_div_backward,)) == repr(kl_div_backward)


def test_operators_stay_frozen_and_compare_as_objects() -> None:
    changed: Any = kl_div_backward
    with pytest.raises(AttributeError):
        changed.name = "aclnnOther"
    assert kl_div_backward == copy.deepcopy(kl_div_backward) != cross_entropy_loss
    assert len({kl_div_backward, copy.copy(kl_div_backward), cross_entropy_loss}) == 2


# Names.

ONES = np.ones((2, 3), np.float32)


def ways(client: npucall_client.Client) -> Iterator[Callable[..., Any]]:
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


@pytest.mark.parametrize("operator", [kl_div_backward, "aclnnKlDivBackward"])
def test_names_of_c_are_taken_on_every_way(client: npucall_client.Client, operator: Any) -> None:
    for way in ways(client):
        way(operator, gradOutput=ONES, self=ONES, target=ONES, logTarget=True)
    value = client.run(operator, gradOutput=ONES, self=ONES, target=ONES, logTarget=True)
    np.testing.assert_array_equal(
        value, client.run(kl_div_backward, ONES, ONES, ONES, log_target=True)
    )


def test_names_of_c_are_taken_where_calls_are_awaited() -> None:
    async def run() -> Any:
        async with npucall_client.aio.connect("local:") as client:
            given: Any = {"gradOutput": ONES, "self": ONES, "target": ONES}
            return await client.run("aclnnKlDivBackward", **given)

    assert asyncio.run(run()).shape == (2, 3)


def test_an_output_may_have_its_name_in_c(client: npucall_client.Client) -> None:
    mine = np.zeros_like(ONES)
    options = client.options(outputs={"gradTarget": mine})
    assert options.run(kl_div_target_backward_builtin, ONES, ONES, ONES) is mine


def test_an_argument_by_both_its_names_is_refused(client: npucall_client.Client) -> None:
    called: Any = kl_div_backward
    both = (
        "aclnnKlDivBackward: got grad_output and gradOutput, which are the names of one argument "
        "in Python and in C; give one of them"
    )
    for way in ways(client):
        with pytest.raises(TypeError, match=both):
            way(called, grad_output=ONES, gradOutput=ONES, self=ONES, target=ONES)
        with pytest.raises(TypeError, match=both):
            way(called, gradOutput=ONES, grad_output=ONES, self=ONES, target=ONES)
    with pytest.raises(TypeError, match="multiple values for argument 'grad_output'"):
        client.run(called, ONES, ONES, ONES, gradOutput=ONES)


def test_a_declared_name_wins_over_another_parameter_s_name_in_c() -> None:
    odd = dataclasses.replace(
        EXP2, parameters=(*EXP2.parameters[1:2], Attribute("m", Kind.INT64, "", c_name="n"))
    )
    assert odd.bind((), {"n": 1, "m": 2}) == {"n": 1, "m": 2}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("aclnnKLDivBackward", "aclnnKlDivBackward"),
        ("kl_div_backward", "aclnnKlDivBackward"),
        ("KlDivBackward", "aclnnKlDivBackward"),
        ("KLDIV", "aclnnKlDiv"),
        ("aclnnKlDivv", "aclnnKlDiv"),
        ("aclnnNllLoss", "aclnnNLLLoss"),
        ("cross_entropy", "aclnnCrossEntropyLoss"),
    ],
)
def test_a_name_that_is_nearly_an_operator_s_is_told_which(
    client: npucall_client.Client, typed: str, meant: str
) -> None:
    with pytest.raises(OperatorUnknownError, match=rf"found '{typed}'; did you mean .*{meant}\b"):
        client.run(typed, x=ONES)
    with pytest.raises(OperatorUnknownError, match="did you mean"):
        CATALOGUE[typed]


@pytest.mark.parametrize("typed", ["", "aclnn", "add_everything_up", "aclnnAdd" * 1000])
def test_a_name_that_is_like_no_operator_s_gets_no_guess(
    client: npucall_client.Client, typed: str
) -> None:
    with pytest.raises(OperatorUnknownError) as caught:
        client.run(typed, x=ONES)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("grad_ouput", "grad_output"), ("log_targets", "log_target"), ("Self", "self")],
)
def test_a_name_that_is_nearly_an_argument_s_is_told_which(
    client: npucall_client.Client, typed: str, meant: str
) -> None:
    called: Any = kl_div_backward
    for way in ways(client):
        with pytest.raises(TypeError, match=f"'{typed}'; it has .*; did you mean {meant}"):
            way(called, **{typed: ONES}, target=ONES)
    with pytest.raises(ValueError, match=f"did you mean {meant}"):
        arguments_of([f"{typed}=1"], kl_div_backward, "float32")


def test_an_argument_that_is_typed_may_have_its_name_in_c() -> None:
    given, _ = arguments_of(["gradOutput=[1]", "logTarget=true"], kl_div_backward, "float32")
    assert list(given) == ["grad_output", "log_target"]
    with pytest.raises(ValueError, match="gradOutput=2: expected grad_output once, found it twice"):
        arguments_of(["grad_output=1", "gradOutput=2"], kl_div_backward, "float32")


def test_a_module_in_place_of_its_operator_is_told_what_to_write(
    client: npucall_client.Client,
) -> None:
    for way in ways(client):
        with pytest.raises(
            TypeError,
            match=r"found the module npucall\.operators\.kl_div_backward; "
            r"write: from npucall\.operators\.kl_div_backward import kl_div_backward",
        ):
            way(npucall.operators.kl_div_backward, ONES, ONES, ONES)
    with pytest.raises(TypeError, match=r"found the module numpy$"):
        client.run(np, ONES)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"expected an operator, or its name .*, found int"):
        client.run(3, ONES)  # type: ignore[call-overload]


# Words for numbers.


@pytest.mark.parametrize(
    ("operator", "word", "number"),
    [
        (kl_div, "none", 0),
        (kl_div, "mean", 1),
        (kl_div, "sum", 2),
        (kl_div, "batchmean", 3),
        ("aclnnKlDivBackward", "batchmean", 3),
        (kl_div_target_backward_builtin, "batchmean", 3),
        ("aclnnL1Loss", "sum", 2),
    ],
)
def test_a_reduction_may_be_given_as_a_word(
    client: npucall_client.Client, operator: Any, word: str, number: int
) -> None:
    name = operator if isinstance(operator, str) else operator.name
    tensors = [np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)] * 2
    tensors += [ONES] * (len(CATALOGUE.of_name(name)[0].inputs) - 2)
    for way in ways(client):
        way(operator, *tensors, reduction=word)
    np.testing.assert_array_equal(
        client.run(operator, *tensors, reduction=word),
        client.run(operator, *tensors, reduction=number),
    )


def test_gelu_knows_its_forms_by_their_words(client: npucall_client.Client) -> None:
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    tanh = client.run(gelu_v2, x, approximate="tanh")
    np.testing.assert_array_equal(tanh, client.run(gelu_v2, x, 1))
    np.testing.assert_array_equal(client.run(gelu_v2, x, "none"), client.run(gelu_v2, x))
    assert (tanh != client.run(gelu_v2, x)).any()


@pytest.mark.parametrize("word", ["men", "MEAN", "", "1", "batchmean"])
def test_a_wrong_word_is_told_which_there_are(client: npucall_client.Client, word: str) -> None:
    called: Any = l1_loss
    for way in ways(client):
        with pytest.raises(
            AttributeValueError,
            match="reduction: expected an integer of 64 bits, or one of 'none', 'mean', 'sum', "
            f"found '{word}'",
        ):
            way(called, ONES, ONES, reduction=word)


def test_the_words_of_a_variant_are_its_own(client: npucall_client.Client) -> None:
    given: Any = {"reduction": "batchmean", "variant": "builtin"}
    client.run("aclnnKlDivTargetBackward", ONES, ONES, ONES, **given)
    given["variant"] = "documented"
    with pytest.raises(AttributeValueError, match="'none', 'mean', 'sum', found 'batchmean'"):
        client.run("aclnnKlDivTargetBackward", ONES, ONES, ONES, **given)


def test_the_words_of_an_attribute_are_in_its_description() -> None:
    for operator in CATALOGUE:
        for attribute in operator.attributes:
            for number, word in enumerate(attribute.words):
                assert f"{number} {word}" in attribute.description, operator


def test_every_reduction_by_number_knows_words() -> None:
    numbered = [
        attribute
        for operator in CATALOGUE
        for attribute in operator.attributes
        if attribute.name == "reduction" and attribute.kind is Kind.INT64
    ]
    assert len(numbered) > 20
    assert all(attribute.words[:3] == ("none", "mean", "sum") for attribute in numbered)


@pytest.mark.parametrize("typed", ["reduction=mean", 'reduction="mean"'])
def test_a_word_may_be_typed(client: npucall_client.Client, typed: str) -> None:
    for described in (l1_loss, declare(client.operator("aclnnL1Loss"))):
        given, _ = arguments_of(["self=[1]", "target=[3]", typed], described, "float32")
        assert given["reduction"] == "mean"
        assert client.run("aclnnL1Loss", **given) == 2


def test_a_wrong_word_that_is_typed_is_told_which_there_are(client: npucall_client.Client) -> None:
    given, _ = arguments_of(["self=[1]", "target=[3]", "reduction=men"], l1_loss, "float32")
    with pytest.raises(AttributeValueError, match="'none', 'mean', 'sum', found 'men'"):
        client.run("aclnnL1Loss", **given)


def test_a_name_in_c_may_be_typed_for_what_the_server_lists(client: npucall_client.Client) -> None:
    described = declare(client.operator("aclnnKlDivBackward"))
    assert list(arguments_of(["gradOutput=[1]"], described, "float32")[0]) == ["grad_output"]


# float64, which NumPy makes unless it is told otherwise.

DOUBLES = np.ones((2, 3))
HINT = "; NumPy makes float64 unless it is told otherwise; give "


def test_float64_is_told_to_be_float32_where_the_operator_has_none(
    client: npucall_client.Client,
) -> None:
    for way in ways(client):
        with pytest.raises(DTypeError) as caught:
            way(kl_div_backward, ONES, ONES, DOUBLES)
        message = f"found DOUBLE{HINT}target.astype(numpy.float32)"
        assert str(caught.value).endswith(message)
        assert str(caught.value).count(HINT) == 1


def test_all_that_is_float64_is_told_where_several_are_to_blame(
    client: npucall_client.Client,
) -> None:
    with pytest.raises(DTypeError) as caught:
        client.run("aclnnL1Loss", DOUBLES, DOUBLES)
    both = "self.astype(numpy.float32) and target.astype(numpy.float32)"
    assert str(caught.value).endswith(HINT + both)
    with pytest.raises(DTypeError) as caught:
        client.run("aclnnL1Loss", ONES, DOUBLES)
    assert str(caught.value).endswith(HINT + "target.astype(numpy.float32)")


@pytest.mark.torch
def test_a_tensor_of_float64_is_told_what_torch_calls_it(client: npucall_client.Client) -> None:
    torch = pytest.importorskip("torch")
    doubles: Any = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(DTypeError) as caught:
        client.run(kl_div_backward, ONES, ONES, doubles)
    assert str(caught.value).endswith("found DOUBLE; give target.float()")


def test_labels_that_are_float64_are_not_told_to_be_float32(client: npucall_client.Client) -> None:
    with pytest.raises(DTypeError, match=r"target: expected INT64, INT32 or UINT8, found DOUBLE$"):
        client.run(nll_loss, ONES, np.ones(2), np.ones(3, np.float32))


def test_another_dtype_is_told_nothing(client: npucall_client.Client) -> None:
    with pytest.raises(DTypeError, match=r"found INT32$"):
        client.run(kl_div_backward, ONES, ONES, np.ones((2, 3), np.int32))


def test_float64_is_told_nothing_where_the_product_has_no_such_operator() -> None:
    with npucall_client.connect("local:", soc="Ascend310") as client:
        with pytest.raises(DTypeError, match="expected a product that has") as caught:
            client.run(kl_div_backward, DOUBLES, DOUBLES, DOUBLES)
        assert HINT not in str(caught.value)


def test_float64_is_told_nothing_where_the_operator_takes_it(client: npucall_client.Client) -> None:
    assert client.run("aclnnExp", np.zeros(2)).dtype == np.float64
    with pytest.raises(NpucallError) as caught:
        client.run("aclnnExp", np.zeros((1,) * 9))
    assert HINT not in str(caught.value)


# Warnings.

ODD = {"reduction": 7}
WARNING = r"reduction: 7 is not one of \(0, 1, 2, 3\); the device scales as for none"


def warned(run: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return caught


def test_run_warns_of_what_the_reply_warns_of(client: npucall_client.Client) -> None:
    with pytest.warns(npucall_client.CallWarning, match=WARNING):
        client.run(kl_div_backward, ONES, ONES, ONES, **ODD)
    with pytest.warns(npucall_client.CallWarning, match=WARNING):
        client.run("aclnnKlDivBackward", ONES, ONES, ONES, **ODD)
    assert issubclass(npucall_client.CallWarning, UserWarning)
    assert not warned(lambda: client.run(kl_div_backward, ONES, ONES, ONES))


def test_execute_and_plan_keep_warnings_in_what_they_answer(client: npucall_client.Client) -> None:
    given = (kl_div_backward, ONES, ONES, ONES)
    assert "reduction: 7" in client.execute(*given, **ODD).warnings[0]
    assert "reduction: 7" in client.plan(*given, **ODD).warnings[0]


def line_of(caught: warnings.WarningMessage) -> str:
    """What stands where a warning points."""
    return linecache.getline(caught.filename, caught.lineno).strip()


GIVEN = (kl_div_backward, ONES, ONES, ONES)


def test_a_warning_points_at_the_line_that_made_the_call() -> None:
    with npucall_client.connect("local:") as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.run(*GIVEN, **ODD)
        with client.session() as session:
            session.run(*GIVEN, **ODD)
            with session.program() as program:
                kept = program.run(*GIVEN, **ODD)
        with client.pipeline() as pipeline:
            pending = pipeline.submit(*GIVEN, **ODD)
        pending.answer()
        pending.result()
        del kept
    assert list(map(line_of, caught)) == [
        "client.run(*GIVEN, **ODD)",
        "session.run(*GIVEN, **ODD)",
        "with session.program() as program:",
        "pending.result()",
    ]
    assert {each.category for each in caught} == {npucall_client.CallWarning}


def test_a_warning_points_at_the_line_that_awaited_the_call() -> None:
    async def run() -> None:
        async with npucall_client.aio.connect("local:") as client:
            await client.run(*GIVEN, **ODD)
            async with client.session() as session:
                await session.run(*GIVEN, **ODD)
            async with client.pipeline() as pipeline:
                pending = await pipeline.submit(*GIVEN, **ODD)
            assert "reduction: 7" in (await pending.answer()).warnings[0]
            await pending

    caught = warned(lambda: asyncio.run(run()))
    assert list(map(line_of, caught)) == [
        "await client.run(*GIVEN, **ODD)",
        "await session.run(*GIVEN, **ODD)",
        "await pending",
    ]


def test_a_warning_comes_once_a_place() -> None:
    with npucall_client.connect("local:") as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            client.run(*GIVEN, **ODD)
        client.run(*GIVEN, **ODD)
    assert len(caught) == 2
