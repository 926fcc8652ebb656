"""npucall_client.calls.argument_texts: NAME=VALUE becomes the arguments of a call."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.prototypes import listed
from tests.rows import each

from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.nll_loss import nll_loss
from npucall_client.calls.argument_texts import arguments_of

EVERY = listed(
    "aclnnEvery",
    x="in aclTensor*",
    xs="in aclTensorList*",
    n="int64_t",
    flag="bool",
    alpha="const aclScalar*",
    sizes="aclIntArray*",
    mode="char*",
    dtype="aclDataType",
    out="out aclTensor*",
)


def typed(text: str) -> Any:
    (value,) = arguments_of([text], EVERY, "float16")[0].values()
    return value


def test_labels_are_integers_whatever_the_dtype_of_the_others() -> None:
    texts = ["self=[[1,2]]", "target=[2049]", "weight=[1,1]"]
    found = arguments_of(texts, nll_loss, "float16")[0]
    assert {name: str(array.dtype) for name, array in found.items()} == {
        "self": "float16", "target": "int64", "weight": "float16"
    }  # fmt: skip
    assert found["target"].tolist() == [2049]
    assert arguments_of(["target=null"], nll_loss, "float32")[0]["target"] is None


@each(
    ("text", "value"),
    [
        ("n=3", 3),
        ("flag=true", True),
        ("alpha=0.5", 0.5),
        ("alpha=null", None),
        ("sizes=[1,2]", [1, 2]),
        ("mode=tanh", "tanh"),
        ('mode="tanh"', "tanh"),
        ("mode=1", "1"),
        ("mode=a.npy", "a.npy"),
        ("mode=a=b", "a=b"),
        ("mode=null", None),
        ("dtype=bfloat16", "bfloat16"),
        ("x=null", None),
        ("xs=null", None),
        ("xs=[]", []),
    ],
)
def test_an_attribute_is_read_as_its_c_type_asks(text: str, value: Any) -> None:
    found = typed(text)
    assert (found, type(found)) == (value, type(value))


def test_numbers_are_tensors_of_the_type_that_was_named() -> None:
    np.testing.assert_array_equal(typed("x=[[1,2]]"), np.array([[1, 2]], np.float16), strict=True)
    np.testing.assert_array_equal(typed("x=1"), np.array(1, np.float16), strict=True)
    first, second = typed("xs=[[1,2],3]")
    np.testing.assert_array_equal(first, np.array([1, 2], np.float16), strict=True)
    np.testing.assert_array_equal(second, np.array(3, np.float16), strict=True)


def test_a_list_may_come_from_several_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for number, path in enumerate(paths):
        np.save(path, np.full(2, number, np.int8))
    first, second = typed(f"xs={paths[0]},{paths[1]}")
    assert (first.tolist(), second.tolist(), second.dtype) == ([0, 0], [1, 1], np.int8)
    assert typed(f"x={paths[1]}").tolist() == [1, 1]
    assert [array.tolist() for array in typed(f"xs={paths[0]}")] == [[0, 0]]


def test_outputs_are_told_from_arguments() -> None:
    given, outputs = arguments_of(["n=1", "out=[1]", "x=[2]"], EVERY, "float32")
    assert (list(given), list(outputs)) == (["n", "x"], ["out"])
    given, outputs = arguments_of(["n=1", "out=[1]", "x=[2]"], EVERY, "float32", ["x"])
    assert (list(given), list(outputs)) == (["n"], ["out", "x"])


@each(
    ("text", "message"),
    [
        ("y=1", "y=1: expected NAME=VALUE with a name among x, xs, n, flag, alpha,"),
        ("n", "n: expected NAME=VALUE"),
        (
            "n=tanh",
            r"n: expected a \.npy file, DTYPE:SHAPE, or numbers, true, false or null, found 'tanh'",
        ),
        ("x=[1,", r"x: expected a \.npy file"),
        ("xs=1", "xs: expected a list of arrays, found '1'"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arguments_of([text], EVERY, "float32")


def test_a_type_that_does_not_travel_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dtype: expected one such as f32, .* found 'float4'"):
        arguments_of(["x=1"], EVERY, "float4")


@each(
    ("operator", "texts", "outputs", "kind", "said"),
    [
        (
            kl_div_backward,
            ["out=1"],
            [],
            ValueError,
            "out=1: expected NAME=VALUE with a name among",
        ),
        (kl_div_backward, [], ["target"], ValueError, "target: aclnnKlDivBackward knows its outp"),
        (EVERY, [], ["n"], TypeError, "n is not a tensor"),
        (EVERY, [], ["y"], ValueError, "y: expected a name among x, xs,"),
    ],
)
def test_an_output_that_is_none_or_known_is_refused(
    operator: Any, texts: list[str], outputs: list[str], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        arguments_of(texts, operator, "float32", outputs)
