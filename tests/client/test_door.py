"""``import npucall`` is all that a user types."""

import ast
import importlib.metadata
from importlib.metadata import EntryPoints
from pathlib import Path

import numpy as np
import pytest

import npucall
import npucall_client
from npucall.operators import CATALOGUE

STUB = Path(npucall.__file__).with_suffix(".pyi")


def names_of(stub: Path) -> set[str]:
    """What a stub takes from elsewhere."""
    imports = [
        node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    return {node.names[0].name for node in imports if node.module != "npucall"}


def test_the_names_of_the_client_are_those_that_type_checkers_see() -> None:
    assert names_of(STUB) == {"*", "aio", "torch"}
    assert {"connect", "Client"} < set(npucall_client.__all__)
    for name in npucall_client.__all__:
        assert getattr(npucall, name) is getattr(npucall_client, name)
    assert {"ops", "errors", "aio", "torch", *npucall_client.__all__} <= set(dir(npucall))


def test_a_wrong_name_gets_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="'conect'; did you mean connect"):
        npucall.conect  # noqa: B018
    with pytest.raises(AttributeError, match="'kl_div_backwards'; did you mean kl_div_b"):
        npucall.ops.kl_div_backwards  # noqa: B018


def test_without_the_client_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: EntryPoints())
    monkeypatch.delitem(vars(npucall), "connect", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"^npucall.connect: the client is missing; pip"):
        from npucall import connect  # noqa: F401


def test_ops_has_every_operator_by_its_name_in_python() -> None:
    for operator in CATALOGUE:
        assert getattr(npucall.ops, operator.__name__) is operator
    assert len(dir(npucall.ops)) == len(CATALOGUE)
    assert set(dir(npucall.ops)) == names_of(STUB.with_name("ops.pyi"))


def test_an_operator_has_its_name_in_c_and_its_name_in_python_everywhere() -> None:
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    with npucall.connect("local:") as npu:
        expected = npu.run(npucall.ops.gelu_backward, x, x)
        for name in "aclnnGeluBackward", "GeluBackward", "gelu_backward":
            np.testing.assert_array_equal(npu.run(name, x, x), expected)
            assert npu.operator(name).name == "aclnnGeluBackward"
        with pytest.raises(LookupError, match="'aclnnGeluBack'; did you mean aclnnGeluBackward"):
            npu.run("GeluBack", x, x)


def test_what_calls_go_to_says_what_it_is() -> None:
    with npucall.connect("local:") as npu:
        assert repr(npu) == "<Client of local:, local as Ascend910B1>"
        with npu.session() as session, npu.pipeline() as pipeline:
            assert repr(pipeline) == "<Pipeline: 0 calls in flight>"
        assert (repr(session), repr(pipeline)) == (
            "<Session on local:, closed>",
            "<Pipeline: closed>",
        )
    assert repr(npu) == "<Client of local:, closed>"
