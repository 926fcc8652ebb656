"""Operators that a host's headers declare and npucall does not: called by name, through the client.

Every test runs on CANN 8.1, whose operators lie in one library, and on 8.3 and 9.x, where they lie
in many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.npu import running_npu_server

import npucall_client
from npucall.errors import ArgumentError, ArgumentMissingError, OperatorUnknownError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client

pytestmark = pytest.mark.more

RANDOM = np.random.default_rng(7)
A, B = (RANDOM.normal(size=(2, 3)).astype(np.float32) for _ in range(2))


@pytest.fixture(scope="module", params=["8.1", "8.3", "9.x"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with (
        running_npu_server(generation=request.param) as server,
        npucall_client.connect(server.target) as client,
    ):
        yield client


def empty(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, np.dtype[Any]]:
    return np.full(shape, 99, dtype)


def test_a_scalar_with_a_dtype_of_its_own(client: Client) -> None:
    out = empty(2, 3)
    assert client.run("aclnnRsub", self=A, other=B, alpha=2.0, outputs={"out": out}) is out
    np.testing.assert_array_equal(out, B - np.float32(2) * A)


def test_a_list_of_tensors(client: Client) -> None:
    parts, out = [A, B[:1], A[:, ::-1]], empty(5, 3)
    client.run("aclnnCat", tensors=parts, dim=0, outputs={"out": out})
    np.testing.assert_array_equal(out, np.concatenate(parts))


def test_a_list_of_outputs(client: Client) -> None:
    outputs = [empty(2, 1), empty(2, 2)]
    found = client.run(
        "aclnnSplitWithSize", self=A, splitSize=[1, 2], dim=1, outputs={"out": outputs}
    )
    assert [part.tolist() for part in found] == [A[:, :1].tolist(), A[:, 1:].tolist()]


def test_an_operator_that_works_in_place(client: Client) -> None:
    memory = A.copy()
    found = client.run("aclnnInplaceAdd", other=B, alpha=1, outputs={"selfRef": memory})
    assert found is memory
    np.testing.assert_array_equal(memory, A + B)


def test_an_operator_that_works_in_place_between_gaps(client: Client) -> None:
    memory = np.zeros((4, 9), np.float32)
    memory[::2, ::3] = A
    view = memory[::2, ::3]
    options = client.options(keep_layout=True, outputs={"selfRef": view})
    options.run("aclnnInplaceAdd", other=B, alpha=1)
    np.testing.assert_array_equal(view, A + B)
    view[...] = 0
    assert not memory.any()  # what lies between the elements is untouched


def test_lists_of_tensors_and_of_scalars(client: Client) -> None:
    inputs, outputs = [A, B[0]], [empty(2, 3), empty(3)]
    client.run("aclnnForeachAddScalarList", x=inputs, scalars=[1.5, -2.0], outputs={"out": outputs})
    np.testing.assert_array_equal(outputs[0], A + np.float32(1.5))
    np.testing.assert_array_equal(outputs[1], B[0] - np.float32(2))


LAYER_NORM = {
    "gradOut": A,
    "input": B,
    "normalizedShape": [3],
    "mean": B.mean(1, keepdims=True),
    "rstd": 1 / B.std(1, keepdims=True),
}


def test_an_array_of_truth_values_an_absent_tensor_and_an_absent_output(client: Client) -> None:
    outputs = {"gradInputOut": None, "gradWeightOut": None, "gradBiasOut": empty(3)}
    client.run(
        "aclnnLayerNormBackward", **LAYER_NORM, weightOptional=None, biasOptional=None,
        outputMask=[False, False, True], outputs=outputs,
    )  # fmt: skip
    np.testing.assert_allclose(outputs["gradBiasOut"], A.sum(0), rtol=1e-6)


def test_several_outputs_are_a_named_tuple(client: Client) -> None:
    outputs = {"gradInputOut": empty(2, 3), "gradWeightOut": empty(3), "gradBiasOut": empty(3)}
    found = client.run(
        "aclnnLayerNormBackward", **LAYER_NORM, outputMask=[True] * 3, outputs=outputs
    )
    assert found._fields == ("gradInputOut", "gradWeightOut", "gradBiasOut")
    np.testing.assert_allclose(found.gradInputOut.sum(1), 0, atol=1e-5)
    np.testing.assert_allclose(found.gradBiasOut, A.sum(0), rtol=1e-6)


def test_an_element_type(client: Client) -> None:
    out = empty(2, 3, dtype=np.float16)
    client.run("aclnnCumsum", self=A, dim=1, dtype=np.float16, outputs={"out": out})
    sums = A.astype(np.float16).astype(np.float32).cumsum(1)
    np.testing.assert_array_equal(out, sums.astype(np.float16))


def test_an_array_of_integers_a_switch_and_an_element_type(client: Client) -> None:
    out = empty(1, 3)
    client.run(
        "aclnnReduceNansum", self=A, dim=[0], keepDim=True, dtype=np.float32, outputs={"out": out}
    )
    np.testing.assert_allclose(out, A.sum(0, keepdims=True), rtol=1e-6)


def test_an_integer_of_8_bits_behind_the_output(client: Client) -> None:
    out = empty(2, 2)
    client.run("aclnnMm", self=A, mat2=B.T, cubeMathType=3, outputs={"out": out})
    np.testing.assert_allclose(out, A @ B.T, rtol=1e-6)


def test_a_text_and_an_array_of_floats(client: Client) -> None:
    out = empty(4, 6)
    client.run("aclnnResize", self=A, scales=[2.0, 2.0], mode="nearest", outputs={"out": out})
    np.testing.assert_array_equal(out, A.repeat(2, 0).repeat(2, 1))


def test_integers_of_64_bits_without_a_sign(client: Client) -> None:
    out, indices = empty(4, 3), np.array([3, 1])
    client.run(
        "aclnnEmbeddingDenseBackward", grad=A, indices=indices, numWeights=4, paddingIdx=2**63 - 1,
        scaleGradByFreq=False, outputs={"out": out},
    )  # fmt: skip
    np.testing.assert_array_equal(out[[3, 1]], A)
    assert not out[[0, 2]].any()


def test_a_declared_operator_with_a_text_runs_as_declared(client: Client) -> None:
    found = client.run("aclnnGeluBackwardV2", A, B, "tanh")
    with npucall_client.connect("local:") as reference:
        np.testing.assert_array_equal(found, reference.run("aclnnGeluBackwardV2", A, B, "tanh"))


def test_what_the_device_refuses_comes_with_its_status_and_its_words(client: Client) -> None:
    with pytest.raises(ArgumentError) as caught:
        client.run("aclnnRsub", self=A, other=empty(4), alpha=1, outputs={"out": empty(2, 3)})
    error = caught.value
    assert (type(error), error.aclnn_status) == (ArgumentError, 161002)
    assert error.aclnn_name == "ACLNN_ERR_PARAM_INVALID"
    assert (
        "self and other: shapes [2,3] and [4] do not broadcast" in error.details["driver_message"]
    )
    assert "self and other: shapes [2,3] and [4] do not broadcast" in str(error)
    assert error.details["function"] == "aclnnRsubGetWorkspaceSize"
    assert client.run("aclnnRsub", self=A, other=B, alpha=1, outputs={"out": empty(2, 3)}).any()


def test_a_null_that_the_device_refuses_is_a_missing_argument(client: Client) -> None:
    with pytest.raises(ArgumentMissingError) as caught:
        client.run("aclnnRsub", self=A, other=B, alpha=None, outputs={"out": empty(2, 3)})
    assert caught.value.aclnn_status == 161001
    assert "alpha" in caught.value.details["driver_message"]


def test_a_plan_asks_the_device(client: Client) -> None:
    arguments: dict[str, Any] = {"self": A, "other": B, "alpha": 1, "outputs": {"out": empty(2, 3)}}
    assert client.plan("aclnnRsub", **arguments).workspace_bytes == 512 + 16384
    with pytest.raises(ArgumentError, match="do not broadcast"):
        client.plan("aclnnRsub", **(arguments | {"other": empty(4)}))


def test_the_listing_marks_them_as_without_reference(client: Client) -> None:
    listed = client.operator("aclnnRsub")
    assert (listed.reference, listed.available, listed.source) == (False, True, "aclnn_rsub.h")
    assert [parameter.name for parameter in listed.parameters] == ["self", "other", "alpha", "out"]
    assert client.operator("aclnnKlDivBackward").reference


def test_an_operator_of_another_host_is_unknown_here(client: Client) -> None:
    with pytest.raises(OperatorUnknownError):
        client.run("aclnnVendorScale", self=A, factor=2.0, outputs={"out": empty(2, 3)})
