"""What the ``.proto`` files say of single calls, each statement tried over a socket."""

import struct
from typing import Any

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_client.testing import ServerProcess

from . import wire
from .contract import (
    ANSWER,
    COMMENTS,
    GOOD,
    KL,
    PAIR,
    Caller,
    floats,
    kl,
    numbers,
    request,
    says,
)

INT64 = tensor_pb2.DATA_TYPE_INT64
NOWHERE = tensor_pb2.Storage()


def test_an_argument_that_cannot_be_absent_says_so(caller: Caller) -> None:
    says(
        "An attribute of a C type that is no pointer cannot be absent: ATTRIBUTE_INVALID",
        "that is ARGUMENT_MISSING with aclnn status 161001",
    )
    for name in "reduction", "log_target":
        arguments = [*kl(2)[:3], pb.Argument(name=name, absent=pb.Absent())]
        refusal = caller.refused(request(KL, arguments, [PAIR, PAIR]))
        assert (refusal.reason, "aclnn_status" in refusal.facts) == ("ATTRIBUTE_INVALID", False)
    arguments = [*kl(2)[:2], pb.Argument(name="target", absent=pb.Absent())]
    refusal = caller.refused(request(KL, arguments, [PAIR]))
    assert (refusal.reason, refusal.facts["aclnn_status"]) == ("ARGUMENT_MISSING", "161001")


def test_extents_of_0_count_as_1_where_the_length_is_limited(caller: Caller) -> None:
    says("where extents of 0 count as 1: shape (0, 2^62) of FLOAT is too large")
    assert caller.refused(request(KL, kl(0, 2**62), [b"", b""])).reason == "TENSOR_LAYOUT"
    assert caller.numbers(request(KL, kl(0, 2**61 - 1), [b"", b""])) == [()]


def test_a_parameter_has_its_name_in_c(caller: Caller) -> None:
    says('Name in the C function, for example "gradOutput". Calls use `name`.')
    asked = pb.GetOperatorRequest(operator=KL)
    listed = caller.stub.GetOperator(asked, timeout=wire.PATIENCE).operator.parameters
    assert {each.name: each.c_name for each in listed}["grad_output"] == "gradOutput"
    arguments = [wire.tensor("gradOutput", 2), *kl(2)[1:]]
    assert caller.refused(request(KL, arguments)).reason == "ARGUMENT_UNKNOWN"


def test_an_operator_that_a_cpu_server_does_not_have_breaks_a_rule() -> None:
    says("there the rule about dtypes refuses the call", "DTYPE_UNSUPPORTED, aclnn status 161002")
    with (
        wire.server_here(soc="Ascend310B1") as server,
        wire.bare_channel(server.address) as channel,
    ):
        caller = Caller(channel)
        asked = pb.GetOperatorRequest(operator=KL)
        listed = caller.stub.GetOperator(asked, timeout=wire.PATIENCE).operator
        refusal = caller.refused(GOOD)
    assert not listed.available
    assert "does not have it" in listed.unavailable_because
    assert (refusal.reason, refusal.facts["aclnn_status"]) == ("DTYPE_UNSUPPORTED", "161002")


def test_a_storage_of_0_bytes_has_a_place_too(caller: Caller) -> None:
    says("So a storage of 0 bytes has `data` set, to no bytes.")
    assert caller.numbers(request(KL, kl(0, 5), [b"", b""])) == [()]
    refusal = caller.refused(request(KL, kl(0, 5), [NOWHERE, NOWHERE]))
    assert refusal.reason == "MESSAGE_MALFORMED"
    assert caller.refused(request(KL, kl(0, 5))).reason == "TENSOR_LAYOUT"


def test_a_result_is_for_programs(caller: Caller) -> None:
    says("In a single call it is INVALID_ARGUMENT, reason MESSAGE_MALFORMED.")
    result = tensor_pb2.Storage(result=tensor_pb2.StepOutput(output="out"))
    assert caller.refused(request(KL, kl(2), [result, PAIR])).reason == "MESSAGE_MALFORMED"


def test_an_output_of_a_reply_is_always_stored(caller: Caller) -> None:
    says("In a reply it is set for every output, also for one that was kept or discarded")
    response = caller.execute(
        request(KL, kl(2), [PAIR, PAIR], [pb.OutputPlace(output="out", discard=True)])
    )
    (output,) = response.reply.outputs
    (storage,) = response.storage
    assert (output.stored, storage.WhichOneof("place")) == (True, None)


def test_an_output_that_is_not_stored_comes_back_dense(caller: Caller) -> None:
    says("comes back as the dense, row-major elements of its view")
    view: Any = {"strides": [2], "offset": 1, "storage_shape": [6]}
    out = wire.tensor("out", 2, stored=False, **view)
    response = caller.execute(request(KL, [*kl(2), out], [PAIR, PAIR]))
    assert numbers(response.storage[0].data) == ANSWER
    (output,) = response.reply.outputs
    assert output.tensor == tensor_pb2.TensorSpec(dtype=wire.FLOAT, shape=[2])


def test_bytes_outside_the_view_of_a_stored_output_come_back(caller: Caller) -> None:
    says("bytes outside the view come back as they were sent")
    out = wire.tensor("out", 2, strides=[2], offset=1, storage_shape=[6])
    sent = floats(1, 2, 3, 4, 5, 6)
    (found,) = caller.numbers(request(KL, [*kl(2), out], [PAIR, PAIR, sent]))
    assert found == (1, ANSWER[0], 3, ANSWER[1], 5, 6)


def nll_loss(*more: pb.Argument) -> list[pb.Argument]:
    """Without reduction, so that the device leaves ``total_weight_out`` as it was."""
    target = wire.tensor("target", 2, dtype=INT64)
    tensors = wire.tensor("self", 2, 3), target, wire.tensor("weight", 3)
    return [*tensors, pb.Argument(name="reduction", integer=0), *more]


def test_where_the_operator_writes_nothing_there_are_zeros(caller: Caller) -> None:
    says("Where the operator writes nothing", "these elements are 0")
    storage = [floats(1, 2, 3, 4, 5, 6), struct.pack("<2q", 0, 2), floats(1, 1, 1)]
    given = nll_loss(wire.tensor("total_weight_out"))
    for arguments, more in (nll_loss(), []), (given, [floats(7)]):
        found = caller.numbers(request("aclnnNLLLoss", arguments, [*storage, *more]))
        assert found == [(-1, -6), (0,)]


def test_the_mean_of_no_elements_is_nan_and_the_sum_0(caller: Caller) -> None:
    says("the mean of no elements is NaN")
    for reduction, expected in (1, "(nan,)"), (2, "(0.0,)"):
        tensors = [wire.tensor("self", 0), wire.tensor("target", 0)]
        asked = request(
            "aclnnL1Loss", [*tensors, pb.Argument(name="reduction", integer=reduction)], [b"", b""]
        )
        (found,) = caller.numbers(asked)
        assert str(found) == expected


def test_a_long_request_id_is_cut_and_a_missing_one_made(caller: Caller) -> None:
    says("It cuts a longer one to its first 128 characters", "the server makes one")
    wrong = request(KL, kl(2))
    given = caller.refused(wrong, ("npucall-request-id", "x" * 200)).facts["request_id"]
    made = caller.refused(wrong, ("npucall-request-id", "")).facts["request_id"]
    assert given == "x" * 128
    assert made


def test_a_client_has_to_raise_its_own_limit_for_long_answers(
    caller: Caller, endless_server: ServerProcess
) -> None:
    says("gRPC's clients receive at most 4 MiB in one message unless they are told otherwise.")
    data = bytes(4 * 1_200_000)
    long = request(KL, kl(1_200_000), [data, data])
    (storage,) = caller.execute(long).storage
    assert len(storage.data) == len(data)
    with wire.bare_channel(endless_server.target) as channel:
        refusal = Caller(channel).refused(long)
        assert (refusal.reason, refusal.facts) == ("RESOURCE_EXHAUSTED", {})


def test_fields_of_errors_have_the_numbers_that_the_contract_prints() -> None:
    from google.rpc import error_details_pb2, status_pb2

    files = {**error_details_pb2.DESCRIPTOR.message_types_by_name}
    files |= status_pb2.DESCRIPTOR.message_types_by_name
    for name, fields in {
        "Status": {"code": 1, "message": 2, "details": 3},
        "ErrorInfo": {"reason": 1, "domain": 2, "metadata": 3},
        "BadRequest": {"field_violations": 1},
        "RetryInfo": {"retry_delay": 1},
    }.items():
        for field, number in fields.items():
            assert files[name].fields_by_name[field].number == number
            assert f"{field} = {number}" in COMMENTS
