"""The declarations: what the catalogue has and finds, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each

from npucall import operators
from npucall.declare import rules
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator, operator
from npucall.declare.domain import elementwise
from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall.dtypes import FLOATS
from npucall.errors import OperatorUnknownError
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_community import kl_div_target_backward_community
from npucall.products import A2, A3, ASCEND_310P, Product


def test_the_catalogue_has_an_operator_of_every_file_that_declares_one() -> None:
    (folder,) = operators.__path__
    declaring = {
        path.stem
        for path in Path(folder).glob("[a-z]*.py")
        if re.search(
            r"^(@operator|\w+ = (declared|version)\(|    return operator\()",
            path.read_text(),
            re.MULTILINE,
        )
    }
    assert {found.formula.__module__.rpartition(".")[2] for found in CATALOGUE} == declaring
    assert "kl_div_backward" in declaring


def test_the_catalogue_lists_operators_by_name_then_variant() -> None:
    listed = [(found.name, found.variant) for found in CATALOGUE]
    assert listed == sorted(listed)
    assert len(set(listed)) == len(listed)


def test_the_catalogue_finds_an_operator_by_name_and_variant() -> None:
    assert all(CATALOGUE.find(each.name, each.variant) is each for each in CATALOGUE)


def test_the_default_variant_counts_only_where_there_are_several() -> None:
    assert (
        CATALOGUE.find("aclnnKlDivTargetBackward", "", "community")
        is kl_div_target_backward_community
    )
    assert CATALOGUE.find("aclnnKlDivBackward", "", "community") is kl_div_backward


@each(
    "name variant",
    [
        ("aclnnKlDivLoss", ""),
        ("", ""),
        ("aclnnKlDivTargetBackward", ""),
        ("aclnnKlDivTargetBackward", "Builtin"),
        ("aclnnKlDivBackward", "builtin"),
    ],
)
def test_the_catalogue_refuses_what_it_does_not_have(name: str, variant: str) -> None:
    with pytest.raises(OperatorUnknownError):
        CATALOGUE.find(name, variant)


def test_the_message_about_an_unknown_variant_names_those_that_there_are() -> None:
    with pytest.raises(OperatorUnknownError, match="builtin, community, documented, found 'fast'"):
        CATALOGUE.find("aclnnKlDivTargetBackward", "fast")


def test_variants_are_named_as_far_as_a_product_has_them() -> None:
    assert {"builtin", "community", "documented"} <= {*CATALOGUE.variants()}
    name = "aclnnKlDivTargetBackward"
    assert CATALOGUE.variants_on(name, A2) == ("builtin", "community", "documented")
    assert CATALOGUE.variants_on(name, A3) == ("builtin",)
    assert CATALOGUE.variants(A3) == ("builtin",)


@each(
    "product wanted default",
    [
        (A2, "community", "community"),
        (A3, "builtin", "builtin"),
        (A3, "documented", "builtin"),
        (ASCEND_310P, "documented", "documented"),  # it has none
    ],
)
def test_the_default_variant_is_the_one_wanted_or_else_one_that_the_product_has(
    product: Product, wanted: str, default: str
) -> None:
    assert CATALOGUE.default_variant(product, wanted) == default


@each("variant", ["", "fast"])
def test_the_catalogue_refuses_two_operators_of_one_name_and_variant(variant: str) -> None:
    with pytest.raises(ValueError, match="declared twice"):
        Catalogue([declared(variant), declared(variant)])


def test_the_catalogue_takes_one_operator_twice() -> None:
    one = declared("")
    assert list(Catalogue([one, one])) == [one]  # a module may import another's operator


@each(
    "formula",
    [
        lambda whole, x: x,
        lambda whole, x, mode, more: x,
        lambda whole, mode, x: x,
        lambda whole, x, kind: x,
        lambda x, mode: x,
    ],
)
def test_a_formula_whose_parameters_are_not_the_declared_ones_is_refused(formula: Any) -> None:
    with pytest.raises(TypeError, match=r"\['x', 'mode'\] are declared"):
        declared("", formula)


def test_a_formula_takes_the_declared_inputs_and_attributes_behind_whole() -> None:
    assert list(declared("").signature.parameters) == ["x", "mode"]


def test_a_parameter_in_snake_case_is_printed_in_the_camel_case_of_c() -> None:
    assert declared("").prototype == (
        "aclnnStatus aclnnCopyGetWorkspaceSize(const aclTensor* x, int64_t mode, "
        "aclTensor* gradOut, uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


def declared(variant: str, formula: Any = lambda whole, x, mode=0: x) -> Operator[..., Any]:
    declare = operator(
        "aclnnCopy",
        Input("x", "what is copied"),
        Attribute("mode", Kind.INT64, "ignored"),
        Output("grad_out", "the copy", shape="x", dtype="x"),
        variant=variant,
        products={A2: FLOATS},
        checks=(rules.present("x", "grad_out"),),
        kernel_dtype=rules.dtype_of("x"),
        over=elementwise("x"),
        source="this test",
        area="arithmetic",
    )
    return declare(formula)
