"""Operators as Python objects: what they print, how they are copied, what they say when called."""

import copy
import dataclasses
import inspect
import multiprocessing
import pickle
import pydoc
from typing import Any

import pytest
from tests.client.prototypes import listed
from tests.rows import each

from npucall.declare.catalogue import Catalogue
from npucall.declare.parameters import Attribute, Kind
from npucall.errors import OperatorUnknownError
from npucall.operators import CATALOGUE
from npucall.operators.cross_entropy_loss import cross_entropy_loss
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin

EXP2 = listed("aclnnExp2", self="in const aclTensor*", n="int64_t", out="out aclTensor*")


def test_an_operator_is_one_line_with_its_arguments() -> None:
    assert repr(kl_div_backward) == (
        "<operator aclnnKlDivBackward"
        "(grad_output, self, target, reduction=1, log_target=False)>"
    )  # fmt: skip
    assert repr(kl_div_target_backward_builtin).endswith(
        "log_target=False) of the variant builtin>"
    )
    assert repr(EXP2) == "<operator aclnnExp2(*, self=None, n), no reference>"
    assert all("\n" not in repr(operator) for operator in CATALOGUE)


def test_inspect_knows_the_parameters_and_the_source_of_an_operator() -> None:
    parameters = inspect.signature(kl_div_backward).parameters
    assert list(parameters) == ["grad_output", "self", "target", "reduction", "log_target"]
    assert parameters["reduction"].default == 1
    assert "kl_factor(facts, reduction" in inspect.getsource(kl_div_backward)


@each(
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


def test_every_operator_has_a_page_of_help_and_their_class_its_own() -> None:
    pages = [operator.__doc__ or "" for operator in [*CATALOGUE, EXP2]]
    assert all("Parameters of aclnn" in page for page in pages)
    assert 'client.run("aclnnExp2", ...)' in pages[-1]
    assert (type(kl_div_backward).__doc__ or "").startswith("A declared operator.")
    assert "Operator" in pydoc.render_doc(type(kl_div_backward))


def test_the_catalogue_says_how_many_it_has_and_prints_a_line_an_operator() -> None:
    assert repr(CATALOGUE) == (
        f"<catalogue of {len(list(CATALOGUE))} operators: print(CATALOGUE) lists them, "
        'CATALOGUE["aclnnKlDiv"] is one of them>'
    )
    lines = str(CATALOGUE).splitlines()
    assert len(lines) == len(CATALOGUE) == len(list(CATALOGUE)) > 70
    builtin = [line for line in lines if line.startswith("aclnnKlDivTargetBackward (builtin) ")]
    assert any("Gradient of" in line for line in builtin)
    assert not str(Catalogue([]))


def test_the_catalogue_gives_an_operator_by_its_name_and_completes_names() -> None:
    assert CATALOGUE["aclnnKlDivBackward"] is kl_div_backward
    named = CATALOGUE["aclnnKlDivTargetBackward", "builtin"]
    assert named is kl_div_target_backward_builtin
    assert "aclnnKlDivBackward" in CATALOGUE._ipython_key_completions_()
    with pytest.raises(OperatorUnknownError):
        CATALOGUE["aclnnNope"]


def test_a_copied_operator_is_that_of_the_catalogue() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for operator in CATALOGUE:
            assert pickle.loads(pickle.dumps(operator, protocol)) is operator
    assert copy.copy(kl_div_backward) is kl_div_backward
    assert copy.deepcopy([cross_entropy_loss])[0] is cross_entropy_loss


def test_an_operator_of_a_header_is_pickled_with_its_parameters_for_another_process() -> None:
    again = pickle.loads(pickle.dumps(EXP2))
    assert (again.name, again.parameters, again.reference) == ("aclnnExp2", EXP2.parameters, False)
    assert again.prototype == copy.deepcopy(EXP2).prototype == EXP2.prototype
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(repr, (kl_div_backward,)) == repr(kl_div_backward)


def test_operators_stay_frozen_compare_as_objects_and_say_who_calls_them() -> None:
    changed: Any = kl_div_backward
    with pytest.raises(AttributeError):
        changed.name = "aclnnOther"
    said = r"through a client: client\.run\(kl_div_backward, \.\.\.\)"
    with pytest.raises(TypeError, match=said):
        changed()
    assert kl_div_backward == copy.deepcopy(kl_div_backward) != cross_entropy_loss
    assert len({kl_div_backward, copy.copy(kl_div_backward), cross_entropy_loss}) == 2


def test_a_declared_name_wins_over_another_parameter_s_name_in_c() -> None:
    odd = dataclasses.replace(
        EXP2, parameters=(*EXP2.parameters[1:2], Attribute("m", Kind.INT64, "", c_name="n"))
    )
    assert odd.bind((), {"n": 1, "m": 2}) == {"n": 1, "m": 2}


def test_the_words_of_an_attribute_are_in_its_description_and_reductions_have_some() -> None:
    attributes = [attribute for operator in CATALOGUE for attribute in operator.attributes]
    for attribute in attributes:
        for number, word in enumerate(attribute.words):
            assert f"{number} {word}" in attribute.description, attribute
    numbered = [one for one in attributes if (one.name, one.kind) == ("reduction", Kind.INT64)]
    assert len(numbered) > 20
    assert all(attribute.words[:3] == ("none", "mean", "sum") for attribute in numbered)
