"""Operators that a host's headers declare and npucall does not: called by name, through the client.

Every test runs on CANN 8.1, whose operators lie in one library, and on 8.3 and 9.x, where they lie
in many.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.npu import running_npu_server

import npucall_client
from npucall.errors import ArgumentError, ArgumentMissingError, OperatorUnknownError
from npucall_client import Client

pytestmark = pytest.mark.more

RANDOM = np.random.default_rng(7)
A, B = (RANDOM.normal(size=(2, 3)).astype(np.float32) for _ in range(2))
TWO = np.float32(2)


@pytest.fixture(scope="module", params=["8.1", "8.3", "9.x"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with (
        running_npu_server(generation=request.param) as server,
        npucall_client.connect(server.target) as client,
    ):
        yield client


def empty(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, np.dtype[Any]]:
    return np.full(shape, 99, dtype)


class Case(NamedTuple):
    operator: str
    arguments: dict[str, Any]
    expected: dict[str, Any]
    """What outputs hold in the end; None: an absent one."""
    rtol: float = 0.0


CASES = {
    "a scalar with a dtype of its own": Case(
        "aclnnRsub", {"self": A, "other": B, "alpha": 2.0}, {"out": B - TWO * A}
    ),
    "a list of outputs": Case(
        "aclnnSplitWithSize",
        {"self": A, "splitSize": [1, 2], "dim": 1},
        {"out": [A[:, :1], A[:, 1:]]},
    ),
    "lists of tensors and of scalars": Case(
        "aclnnForeachAddScalarList",
        {"x": [A, B[0]], "scalars": [1.5, -2.0]},
        {"out": [A + np.float32(1.5), B[0] - TWO]},
    ),
    "integers, a switch and an element type": Case(
        "aclnnReduceNansum",
        {"self": A, "dim": [0], "keepDim": True, "dtype": np.float32},
        {"out": A.sum(0, keepdims=True)},
        1e-6,
    ),
}


def like(expected: Any) -> Any:
    """New memory for an output."""
    if isinstance(expected, list):
        return [like(each) for each in expected]
    return None if expected is None else empty(*expected.shape, dtype=expected.dtype)


def differs(found: Any, expected: Any, rtol: float) -> bool:
    if isinstance(expected, list):
        return any(differs(*pair, rtol) for pair in zip(found, expected, strict=True))
    return expected is not None and not np.allclose(found, expected, rtol=rtol, atol=0)


def test_arguments_of_every_kind_reach_the_device_and_outputs_come_back(client: Client) -> None:
    wrong = []
    for name, case in CASES.items():
        outputs = {output: like(expected) for output, expected in case.expected.items()}
        client.run(case.operator, **case.arguments, outputs=outputs)
        for output, expected in case.expected.items():
            if differs(outputs[output], expected, case.rtol):
                wrong.append((name, outputs[output], expected))
    assert wrong == []


def test_what_the_device_refuses_comes_with_its_status_and_its_words(client: Client) -> None:
    """A null is a missing argument. The next call is answered."""
    outputs = {"out": empty(2, 3)}
    with pytest.raises(ArgumentError) as caught:
        client.run("aclnnRsub", self=A, other=empty(4), alpha=1, outputs=outputs)
    error = caught.value
    assert (type(error), error.aclnn_status) == (ArgumentError, 161002)
    assert error.aclnn_name == "ACLNN_ERR_PARAM_INVALID"
    said = "self and other: shapes [2,3] and [4] do not broadcast"
    assert said in error.details["driver_message"]
    assert said in str(error)
    assert error.details["function"] == "aclnnRsubGetWorkspaceSize"
    with pytest.raises(ArgumentMissingError) as missing:
        client.run("aclnnRsub", self=A, other=B, alpha=None, outputs=outputs)
    assert missing.value.aclnn_status == 161001
    assert "alpha" in missing.value.details["driver_message"]
    assert client.run("aclnnRsub", self=A, other=B, alpha=1, outputs=outputs).any()


def test_a_plan_asks_the_device_and_the_listing_says_that_there_is_no_reference(
    client: Client,
) -> None:
    arguments: dict[str, Any] = {"self": A, "other": B, "alpha": 1, "outputs": {"out": empty(2, 3)}}
    assert client.plan("aclnnRsub", **arguments).workspace_bytes == 512 + 16384
    with pytest.raises(ArgumentError, match="do not broadcast"):
        client.plan("aclnnRsub", **(arguments | {"other": empty(4)}))
    listed = client.operator("aclnnRsub")
    assert (listed.reference, listed.available, listed.source) == (False, True, "aclnn_rsub.h")
    assert [parameter.name for parameter in listed.parameters] == ["self", "other", "alpha", "out"]
    assert client.operator("aclnnKlDivBackward").reference
    with pytest.raises(OperatorUnknownError):  # of another host
        client.run("aclnnVendorScale", self=A, factor=2.0, outputs={"out": empty(2, 3)})
