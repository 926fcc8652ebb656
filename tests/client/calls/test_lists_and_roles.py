"""calls.arguments: lists of tensors, outputs in place, and roles that a caller states."""

from typing import Any

import numpy as np
import pytest
from tests.client.prototypes import bound, listed, members, parsed
from tests.rows import each

from npucall.declare.catalogue import Catalogue
from npucall.declare.parameters import Input, Output
from npucall.dtypes import FLOAT
from npucall.errors import DTypeError, InternalError, TensorLayoutError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import decode
from npucall.wire.replies import Reply, ServerIdentity
from npucall_client.calls import answers, arguments

PAIR, TRIPLE = np.array([1, 2], np.float32), np.array([3, 4, 5], np.float32)
CAT = listed("aclnnCat", tensors="in const aclTensorList*", dim="int64_t", out="out aclTensor*")
SPLIT = listed("aclnnSplit", self="in const aclTensor*", dim="int64_t", out="out aclTensorList*")
RELU = listed("aclnnInplaceVendorRelu", selfRef="in/out aclTensor*")
EXP2 = listed("aclnnExp2", self="in const aclTensor*", out="in const aclTensor*")
ADD = listed("aclnnAddInto", self="in aclTensor*", y="out aclTensor*", z="out aclTensor*")


def storages(request: arguments.BoundCall) -> dict[str, list[float]]:
    """What is sent, as numbers."""
    sent: Any = request.storage.items()
    return {name: np.frombuffer(data, np.float32).tolist() for name, data in sent}


def reply(outputs: dict[str, TensorSpec]) -> Reply:
    return Reply("", None, outputs, tuple(outputs), (), ServerIdentity("a1", "cpu", "Ascend910B1"))


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(FLOAT, shape)


@each("together", [list, tuple])
def test_the_tensors_of_a_list_are_sent_one_by_one_in_their_order(together: Any) -> None:
    column = np.array([[3, 4], [5, 6]], np.float32).T
    request = bound(CAT, {"out": np.zeros(6, np.float32)}, tensors=together([PAIR, column]), dim=0)
    assert storages(request) == {"tensors[0]": [1, 2], "tensors[1]": [3, 4, 5, 6]}
    assert tuple(request.storage) == decode(request.call, Catalogue([CAT])).stored
    message = parsed(request)["tensors"]
    assert message.stored
    told = [(list(tensor.shape), list(tensor.strides)) for tensor in message.tensors.tensors]
    assert told == [([2], []), ([2, 2], [1, 2])]


def test_a_list_of_one_or_none_is_sent_and_is_not_null() -> None:
    assert members(bound(CAT, {"out": None}, tensors=[PAIR], dim=0))["tensors"] == "tensors"
    request = bound(CAT, {"out": None}, tensors=[], dim=0)
    assert decode(request.call, Catalogue([CAT])).arguments["tensors"] == ()
    assert members(bound(CAT, {"out": None}, tensors=None, dim=0))["tensors"] == "absent"
    assert request.storage == {}


SHARED = np.lib.stride_tricks.as_strided(PAIR, (2,), (0,))
A_LIST, AN_ARRAY = "expected a list of arrays, found", "expected a NumPy array of native byte order"


@each(
    ("called", "output", "given", "kind", "said"),
    [
        *(
            (CAT, None, {"tensors": value, "dim": 0}, TypeError, f"tensors: {A_LIST}")
            for value in (PAIR, PAIR.reshape(1, 2), 1.0, iter([PAIR]), {PAIR.tobytes()})
        ),
        *(
            (CAT, None, {"tensors": [PAIR, value], "dim": 0}, TypeError, r"tensors\[1\]: expected")
            for value in (None, 1.0, [1.0], "x")
        ),
        (CAT, None, {"tensors": [PAIR, np.array(["x"])], "dim": 0}, DTypeError, r"tensors\[1\]: "),
        (CAT, [PAIR], {"tensors": [PAIR], "dim": 0}, TypeError, f"out: {AN_ARRAY}"),
        (SPLIT, PAIR, {"self": PAIR, "dim": 0}, TypeError, f"out: {A_LIST} ndarray"),
        (SPLIT, [PAIR], {"self": [PAIR], "dim": 0}, TypeError, "self: expected an array, found li"),
        (SPLIT, [1.0], {"self": PAIR, "dim": 0}, TypeError, r"out\[0\]: expected a NumPy array"),
        (SPLIT, [PAIR.copy(), SHARED], {"self": PAIR, "dim": 0}, TensorLayoutError, r"out\[1\]: "),
    ],
)
def test_what_is_no_list_or_not_one_of_arrays_is_refused_by_its_place(
    called: Any, output: Any, given: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        bound(called, {"out": output}, **given)
    assert getattr(caught.value, "parameter", "tensors[1]") in ("tensors[1]", "out[1]")


def test_outputs_of_a_list_are_not_sent_unless_the_layout_is_kept() -> None:
    out = [np.zeros(2, np.float32), np.zeros((3, 2), np.float32)[:, 0]]
    request = bound(SPLIT, {"out": out}, self=PAIR, dim=0)
    assert list(request.storage) == ["self"]
    assert not parsed(request)["out"].stored
    kept = bound(SPLIT, {"out": out}, self=PAIR, dim=0, keep_layout=True)
    assert {name: len(data) for name, data in kept.storage.items()} == {
        "self": 8, "out[0]": 8, "out[1]": 20
    }  # fmt: skip


def test_outputs_of_a_list_are_written_to_the_arrays_of_the_caller_in_their_order() -> None:
    out = [np.zeros(1, np.float32) for _ in range(12)]
    request = bound(SPLIT, {"out": out}, self=PAIR, dim=0)
    answer = reply({f"out[{index}]": spec(1) for index in range(12)})
    data = [np.float32(index).tobytes() for index in range(12)]
    found = answers.unpack(request, answer, data)["out"]
    assert all(member is mine for member, mine in zip(found, out, strict=True))
    assert [member.item() for member in found] == list(range(12))


def test_outputs_come_in_the_order_of_the_reply_lists_among_them_empty_ones_too() -> None:
    two = listed("aclnnTwo", n="int64_t", a="out aclTensor*", b="out aclTensorList*")
    outputs = {"b": [PAIR.copy()], "a": PAIR.copy()}
    answer = reply({"a": spec(2), "b[0]": spec(2)})
    found = answers.unpack(bound(two, outputs, n=1), answer, [bytes(8), bytes(8)])
    assert list(found) == ["a", "b"]
    request = bound(SPLIT, {"out": []}, self=PAIR, dim=0)
    assert answers.unpack(request, reply({}), []) == {"out": []}


def test_a_list_with_too_few_bytes_is_a_bug_of_the_server() -> None:
    request = bound(SPLIT, {"out": [PAIR.copy(), TRIPLE.copy()]}, self=PAIR, dim=0)
    answer = reply({"out[0]": spec(2), "out[1]": spec(3)})
    with pytest.raises(InternalError, match=r"storages of \[8, 12\] bytes, found \[8\]"):
        answers.unpack(request, answer, [bytes(8)])


@each("keep_layout", [False, True])
def test_an_output_in_place_with_gaps_is_read_and_written_through_them(keep_layout: bool) -> None:
    memory = np.array([1, 9, 2, 9], np.float32)
    request = bound(RELU, {"selfRef": memory[::2]}, keep_layout=keep_layout)
    assert storages(request) == {"selfRef": [1, 9, 2] if keep_layout else [1, 2]}
    sent = decode(request.call, Catalogue([RELU])).arguments["selfRef"]
    answer: Any = np.array([3, 8, 4] if keep_layout else [3, 4], np.float32)
    answers.unpack(request, reply({"selfRef": sent}), [answer.tobytes()])  # type: ignore[dict-item]
    assert memory.tolist() == [3, 8 if keep_layout else 9, 4, 9]  # as the device left the gap


def test_an_output_in_place_that_runs_backwards_is_gathered_and_scattered() -> None:
    memory = np.array([1, 2, 3], np.float32)
    request = bound(RELU, {"selfRef": memory[::-1]})
    assert storages(request) == {"selfRef": [3, 2, 1]}
    answers.unpack(request, reply({"selfRef": spec(3)}), [TRIPLE.tobytes()])
    assert memory.tolist() == [5, 4, 3]


PLAIN, AS_INPUT, AS_OUTPUT = pb.ROLE_UNSPECIFIED, pb.ROLE_INPUT, pb.ROLE_OUTPUT


@each(
    ("called", "outputs", "given", "roles", "sent"),
    [
        (
            EXP2, {"out": TRIPLE.copy()}, {"self": PAIR}, {"self": PLAIN, "out": AS_OUTPUT},
            {"self": [1, 2], "out": [3, 4, 5]},
        ),
        (
            ADD, {"z": PAIR.copy()}, {"self": PAIR, "y": TRIPLE},
            {"self": PLAIN, "y": AS_INPUT, "z": PLAIN}, {"self": [1, 2], "y": [3, 4, 5]},
        ),
        (  # a null pointer has a role too
            ADD, {"self": None, "z": None}, {"y": None},
            {"self": AS_OUTPUT, "y": AS_INPUT, "z": PLAIN}, {},
        ),
        (
            CAT, {"out": None, "tensors": [PAIR.copy(), TRIPLE.copy()]}, {"dim": 0},
            {"dim": PLAIN, "out": PLAIN, "tensors": AS_OUTPUT},
            {"tensors[0]": [1, 2], "tensors[1]": [3, 4, 5]},
        ),
        (  # what is unknown is left to the server
            EXP2, {"nope": PAIR.copy()}, {"self": PAIR}, {"self": PLAIN, "nope": PLAIN},
            {"self": [1, 2]},
        ),
    ],
)  # fmt: skip
def test_what_is_given_decides_what_is_an_output_whatever_the_listing_guessed(
    called: Any, outputs: Any, given: Any, roles: dict[str, Any], sent: Any
) -> None:
    request = bound(called, outputs, **given)
    assert {name: argument.role for name, argument in parsed(request).items()} == roles
    assert storages(request) == sent
    stored = {name for name, argument in parsed(request).items() if argument.stored}
    assert stored == {name.partition("[")[0] for name in sent}
    call = decode(request.call, Catalogue([called])) if "nope" not in outputs else None
    kinds = {PLAIN: None, AS_INPUT: Input, AS_OUTPUT: Output}
    for name, role in roles.items():
        assert call is None or kinds[role] in (None, type(call.operator.by_name[name]))


def test_what_is_given_both_as_argument_and_as_output_is_refused() -> None:
    for called, name in ((EXP2, "out"), (ADD, "y")):
        given: Any = {name: PAIR}
        with pytest.raises(TypeError, match=f"got an unexpected keyword argument '{name}'"):
            bound(called, {name: PAIR.copy()}, **given)


def test_a_declared_operator_gets_no_roles() -> None:
    ones = np.ones(2, np.float32)
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        bound(kl_div_backward, {}, grad_output=ones, self=ones, target=ones, out=ones)
    outputs = {"self": ones.copy()}
    request = bound(leaky_relu_backward, outputs, ones, ones, 0.5)
    calls = pb.Call.FromString(request.call).arguments
    assert {argument.role for argument in calls} == {pb.ROLE_UNSPECIFIED}
    assert not calls[-1].stored  # so that the server refuses it
