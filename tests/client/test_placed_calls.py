"""What of a call stays in shared memory, and what a client does when the server's goes."""

from __future__ import annotations

import queue
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.errors import InternalError, SharedMemoryError, TooLargeError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_client import answers
from npucall_client.remote import channel
from npucall_client.senders import finished

from . import scripted, side_script, stream_script
from .side_script import SharingScript, connected, places_of, regions_of, reply_of, side
from .stream_script import MIB, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall.dtypes import AnyArray
    from npucall_client import Client, SharedMemory
    from npucall_client.pipeline import Pipeline

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory"),
    pytest.mark.usefixtures("sender"),
]
COUNT = 1000
"""Numbers of an array; it takes 4,000 bytes, the next one begins at 4,032."""
ONE = np.ones((), np.float32)
NUMBERS = np.arange(COUNT, dtype=np.float32)
LISTS = scripted.operator("aclnnLists", x="in aclTensorList*", y="out aclTensorList*")
UPDATE = scripted.operator("aclnnUpdate", x="in aclTensor*", y="in/out aclTensor*")


@pytest.fixture
def script(tmp_path: Path) -> Iterator[SharingScript]:
    with side(tmp_path / "side") as memory:
        yield SharingScript(memory)


@pytest.fixture
def client(script: SharingScript) -> Iterator[Client]:
    with connected(script) as client:
        yield client


@pytest.fixture
def memory(client: Client) -> Iterator[SharedMemory]:
    with client.shared(16 * MIB) as memory:
        yield memory


def run(client: Client, array: Any, out: Any = None) -> Any:
    given = {} if out is None else {"grad_input": out}
    return client.options(outputs=given).run("aclnnL1LossBackward", array, self=ONE, target=ONE)


def submit(pipeline: Pipeline, array: Any, **given: Any) -> Any:
    return pipeline.submit("aclnnL1LossBackward", array, **{"self": ONE, "target": ONE, **given})


def results_of_a_pipeline(client: Client, array: Any, *outputs: Any) -> list[Any]:
    with client.pipeline() as pipeline:
        calls = [submit(pipeline, array, outputs=given) for given in outputs]
        return [call.result(PATIENCE) for call in calls]


def placed(
    client: Client, called: Any, outputs: Any, *, keep_layout: bool = False, **inputs: Any
) -> tuple[set[str], set[str]]:
    """The storages and the outputs of a call that stay in open memory."""
    request = scripted.bound(called, outputs, keep_layout=keep_layout, **inputs)
    client._transport.place(request)
    if request.placement is None:
        return set(), set()
    return set(request.placement.storage), set(request.placement.outputs)


def test_an_input_in_the_memory_is_named_and_others_travel(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    memory.empty(1, np.uint8)
    out = run(client, memory.array(NUMBERS))
    assert regions_of(script.requests[0]) == [(64, 4000), None, None]
    assert out.tolist() == (NUMBERS * 2).tolist()


def test_an_output_in_the_memory_is_written_there(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    array, out = memory.array(NUMBERS), memory.empty(COUNT, np.float32)
    assert run(client, array, out) is out
    assert places_of(script.requests[0]) == {"grad_input": (4032, 4000)}
    assert out.tolist() == (NUMBERS * 2).tolist()


def test_an_output_in_place_keeps_its_inputs_elsewhere(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    out = memory.empty(COUNT, np.float32)
    run(client, NUMBERS, out)
    assert regions_of(script.requests[0]) == [None, None, None]
    assert out.tolist() == (NUMBERS * 2).tolist()


def test_slices_views_and_reshapes_are_found(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    array = memory.array(NUMBERS)
    run(client, array[10:20])
    run(client, array.reshape(10, 100)[3])
    run(client, array.view(np.int32)[5:6].view(np.float32))
    found = [regions_of(request)[0] for request in script.requests]
    assert found == [(40, 40), (1200, 400), (20, 4)]


def test_a_transposed_array_stays_with_its_strides(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    run(client, memory.array(NUMBERS.reshape(10, 100)).T)
    assert regions_of(script.requests[0])[0] == (0, 4000)


def test_what_has_to_be_gathered_travels(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    out = run(client, memory.array(NUMBERS)[::2])
    assert regions_of(script.requests[0]) == [None, None, None]
    assert out.tolist() == (NUMBERS[::2] * 2).tolist()


@pytest.mark.torch
def test_a_tensor_of_torch_is_found(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    torch = pytest.importorskip("torch")
    array, out = memory.array(NUMBERS), memory.zeros(COUNT, np.float32)
    run(client, torch.from_numpy(array), torch.from_numpy(out))
    assert regions_of(script.requests[0])[0] == (0, 4000)
    assert out.tolist() == (NUMBERS * 2).tolist()


def test_an_empty_array_travels(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    assert run(client, memory.empty(0, np.float32), memory.empty(0, np.float32)).size == 0
    assert regions_of(script.requests[0]) == [None, None, None]
    assert places_of(script.requests[0]) == {}


def test_two_memories_are_told_apart(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    with client.shared(MIB) as other:
        array, out = memory.array(NUMBERS), other.empty(COUNT, np.float32)
        run(client, array, out)
    (request,) = script.requests
    assert request.storage[0].region.id == side_script.ID
    assert request.output_places[0].region.id not in (b"", side_script.ID)
    assert out.tolist() == (NUMBERS * 2).tolist()


def test_an_output_that_shares_a_byte_with_an_input_comes_in_the_answer(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    array = memory.empty(COUNT + 999, np.float32)
    array[:COUNT] = NUMBERS
    out = array[999:]
    run(client, array[:COUNT], out)
    assert places_of(script.requests[0]) == {}
    assert out.tolist() == (NUMBERS * 2).tolist()


def test_outputs_that_share_a_byte_have_no_place(client: Client, memory: SharedMemory) -> None:
    x = [memory.array(NUMBERS)]
    many = memory.empty(100, np.float32)
    outputs = {"y": [many[:20], many[20:41], many[40:50], many[60:70]]}
    assert placed(client, LISTS, outputs, x=x) == ({"x[0]"}, {"y[0]", "y[3]"})


def test_an_output_within_another_has_no_place_nor_has_that(
    client: Client, memory: SharedMemory
) -> None:
    many = memory.empty(100, np.float32)
    outputs = {"y": [many, many[10:12], many[50:60]]}
    assert placed(client, LISTS, outputs, x=[ONE]) == (set(), set())


def test_outputs_that_share_a_byte_in_a_second_memory_have_no_place(
    client: Client, memory: SharedMemory
) -> None:
    memory.empty(100, np.float32)
    x = [memory.array(NUMBERS)]
    with client.shared(MIB) as other:
        many = other.empty(100, np.float32)
        for given in ([many[:20], many[10:30]], [many[10:30], many[:20]]):
            assert placed(client, LISTS, {"y": given}, x=x) == ({"x[0]"}, set())
        assert placed(client, LISTS, {"y": [many[:20]]}, x=[many[20:30]])[1] == {"y[0]"}


def test_inputs_may_share_their_memory(client: Client, memory: SharedMemory) -> None:
    array = memory.array(NUMBERS)
    given = {"x": [array, array, array[3:]]}
    assert placed(client, LISTS, {"y": []}, **given)[0] == {"x[0]", "x[1]", "x[2]"}


def test_an_output_with_strides_has_no_place(client: Client, memory: SharedMemory) -> None:
    first, second = memory.empty((10, 10), np.float32), memory.empty((10, 10), np.float32)
    outputs = {"y": [first.T, second[:, ::2], second[0, 1::2]]}
    assert placed(client, LISTS, outputs, x=[ONE]) == (set(), set())


def test_an_output_that_keeps_its_layout_stays_where_its_storage_is(
    client: Client, memory: SharedMemory
) -> None:
    out = memory.empty((10, 10), np.float32)[:, ::2]
    shared = placed(client, LISTS, {"y": [out]}, x=[ONE], keep_layout=True)
    assert shared == ({"y[0]"}, {"y[0]"})


def test_an_output_that_the_operator_reads_is_read_there_and_comes_in_the_answer(
    client: Client, memory: SharedMemory
) -> None:
    outputs = {"y": memory.array(NUMBERS)}
    assert placed(client, UPDATE, outputs, x=ONE) == ({"y"}, set())
    assert placed(client, UPDATE, outputs, x=ONE, keep_layout=True) == ({"y"}, set())


def test_only_bytes_that_travel_count_for_chunks(script: SharingScript) -> None:
    with connected(script, stream_from=4001) as client, client.shared(MIB) as memory:
        array = memory.array(np.zeros(50_000, np.float32))
        run(client, array)
        assert (script.unary, script.streams) == (1, 0)


def test_a_call_of_which_much_travels_is_sent_in_chunks_as_a_whole(script: SharingScript) -> None:
    numbers = np.arange(MIB, dtype=np.float32)
    with connected(script) as client, client.shared(8 * MIB) as memory:
        client.run("aclnnL1LossBackward", memory.array(numbers), self=numbers, target=numbers)
    assert (script.unary, script.streams, sum(script.chunks)) == (0, 1, 12 * MIB)
    assert not script.begins[0].request.output_places


def test_the_progress_of_such_a_call_counts_all_of_it(script: SharingScript) -> None:
    numbers, told = np.arange(MIB, dtype=np.float32), []
    with connected(script) as client, client.shared(8 * MIB) as memory:
        telling = client.options(progress=lambda *progress: told.append(progress))
        telling.run("aclnnL1LossBackward", memory.array(numbers), self=numbers, target=ONE)
    sent, _, of = told[-1]
    assert (sent, of) == (8 * MIB + 4, 12 * MIB + 4)


def test_a_region_in_the_answer_to_a_call_in_chunks_was_not_asked_for(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    def answer(frames: Any, _: Any) -> Any:
        region = tensor_pb2.Region(id=side_script.ID, offset=0, length=12)
        yield stream_script.answer(stream_script.complete(frames), reply=answer_of(region))

    script.behaviours = [answer]
    large, out = np.zeros(MIB, np.float32), memory.empty(3, np.float32)
    with client.pipeline() as pipeline:
        call = submit(pipeline, NUMBERS[:3], self=large, outputs={"grad_input": out})
        with pytest.raises(InternalError, match="expected the bytes of grad_input, found Region"):
            call.result(PATIENCE)


@pytest.mark.threads("it looks inside, where threads are")
def test_an_output_with_a_place_has_no_chunks(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    def answer(frames: Any, _: Any) -> Any:
        call_id = stream_script.complete(frames)
        spec = reply_of(bytes(12)).reply.outputs[0].tensor
        outputs = [pb.Argument(name=f"y[{i}]", stored=True, tensor=spec) for i in range(2)]
        reply = pb.ExecuteResponse(reply=pb.Reply(outputs=outputs))
        data = np.array([4, 5, 6], np.float32).tobytes()
        yield stream_script.answer(call_id, reply=reply)
        yield stream_script.answer(call_id, chunk=pb.Chunk(storage=1, data=data))
        yield stream_script.answer(call_id, end=pb.End())

    script.behaviours = [answer]
    request = scripted.bound(
        LISTS, {"y": [memory.array(NUMBERS[:3]), np.empty(3, np.float32)]}, x=[ONE]
    )
    calls, heard = client._transport.calls(), queue.Queue[Any]()
    finished(calls.send(request, PATIENCE, "", heard.put))
    response = heard.get(timeout=PATIENCE)
    outputs = answers.unpack(request, answers.decode_reply(response.reply), response.storage)
    assert [y.tolist() for y in outputs["y"]] == [[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]]
    finished(calls.close())


def test_a_message_that_is_too_long_travels_in_chunks_but_for_shared_bytes(
    script: SharingScript,
) -> None:
    script.limits.max_message_bytes = 10_000
    with connected(script) as client, client.shared(MIB) as memory:
        client.run("aclnnL1LossBackward", memory.array(NUMBERS), self=NUMBERS, target=ONE)
        assert (script.unary, script.streams) == (1, 0)


def test_a_call_whose_answer_was_too_long_names_no_memory_if_it_travels_in_chunks(
    script: SharingScript, client: Client, memory: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> Any:
        raise TooLargeError("response: too long", method="ExecuteStream")

    def in_chunks(frames: Any, _: Any) -> Any:
        call_id = stream_script.complete(frames)
        reply = reply_of(array.tobytes())
        del reply.storage[:]
        yield stream_script.answer(call_id, reply=reply)
        chunk = pb.Chunk(storage=0, offset=0, data=array.tobytes())
        yield stream_script.answer(call_id, chunk=chunk)
        yield stream_script.answer(call_id, end=pb.End())

    monkeypatch.setattr(channel.ChannelTransport, "send", refuse)
    script.behaviours = [in_chunks]
    array = np.arange(3 * MIB // 8, dtype=np.float32)
    out = memory.empty(array.shape, np.float32)
    assert run(client, array, out) is out
    np.testing.assert_array_equal(out, array)
    assert script.begins[0].chunked


def test_a_call_whose_answer_may_be_too_long_has_a_stream(script: SharingScript) -> None:
    script.limits.max_message_bytes = 10_000
    with connected(script) as client, client.shared(MIB) as memory:
        numbers = np.arange(5000, dtype=np.float32)
        out = run(client, memory.array(numbers))
    assert (script.unary, script.streams, script.chunks) == (0, 1, [])
    assert regions_of(script.requests[0])[0] == (0, 20_000)
    assert out.tolist() == (numbers * 2).tolist()


def test_calls_of_a_pipeline_name_regions_too(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    large, out = memory.zeros(MIB, np.float32), memory.empty(MIB, np.float32)
    with client.pipeline() as pipeline:
        call = submit(pipeline, large, outputs={"grad_input": out})
        assert call.result(PATIENCE) is out
    assert regions_of(script.requests[0])[0] == (0, 4 * MIB)
    assert (script.chunks, out.sum()) == ([], 0.0)


def test_a_call_of_a_pipeline_of_which_much_travels_is_sent_in_chunks(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    large = np.zeros(MIB, np.float32)
    with client.pipeline() as pipeline:
        call = submit(pipeline, memory.array(NUMBERS), self=large)
        assert call.result(PATIENCE).tolist() == NUMBERS.tolist()
    assert sum(script.chunks) == 4 * MIB + 4000 + 4


def test_a_server_that_forgot_the_memory_gets_the_bytes(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    array, out = memory.array(NUMBERS), memory.empty(COUNT, np.float32)
    script.forgets = True
    with pytest.warns(RuntimeWarning, match="the server no longer knows the shared memory"):
        assert run(client, array, out) is out
    assert out.tolist() == (NUMBERS * 2).tolist()
    assert regions_of(script.requests[1]) == [None, None, None]
    assert not memory.shared


def test_forgotten_memory_is_ordinary_from_then_on_and_told_of_once(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    array = memory.array(NUMBERS)
    script.forgets = True
    with pytest.warns(RuntimeWarning, match="shared memory"):
        run(client, array)
    run(client, array)
    assert len(script.requests) == 3
    assert script.memory.ended.acquire(timeout=PATIENCE)
    assert memory.zeros(1, np.float32) == 0


def test_a_pipeline_sends_the_bytes_to_a_server_that_forgot_the_memory(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    array, out = memory.array(NUMBERS), memory.empty(COUNT, np.float32)
    script.forgets = True
    with pytest.warns(RuntimeWarning, match="shared memory"):
        first, second = results_of_a_pipeline(client, array, {"grad_input": out}, {})
    assert first is out
    assert [first.tolist(), second.tolist()] == [(NUMBERS * 2).tolist()] * 2
    assert script.streams == 1


def test_a_pipeline_whose_warnings_are_errors_ends_the_call_with_it(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    array = memory.array(NUMBERS)
    script.forgets = True
    with warnings.catch_warnings(), client.pipeline() as pipeline:
        warnings.simplefilter("error")
        call = submit(pipeline, array)
        with pytest.raises(RuntimeWarning):
            call.result(PATIENCE)
        call = submit(pipeline, array)
        assert call.result(PATIENCE).tolist() == (NUMBERS * 2).tolist()


def test_the_same_error_without_shared_memory_is_the_callers(
    client: Client, script: SharingScript
) -> None:
    def refuse(request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        raise SharedMemoryError("memory: unknown")

    script.answer = refuse  # type: ignore[method-assign]  # the test's own answer
    with pytest.raises(SharedMemoryError):
        run(client, NUMBERS)
    with client.pipeline() as pipeline:
        call = submit(pipeline, NUMBERS)
        with pytest.raises(SharedMemoryError):
            call.result(PATIENCE)


def answer_of(region: Any, *more: Any) -> pb.ExecuteResponse:
    response = reply_of(bytes(12))
    del response.storage[:]
    response.storage.extend(tensor_pb2.Storage(region=r) for r in (region, *more))
    return response


def test_a_region_that_was_not_asked_for_is_an_internal_error(
    client: Client, script: SharingScript
) -> None:
    script.answers = [answer_of(tensor_pb2.Region(id=side_script.ID, offset=0, length=12))]
    with pytest.raises(InternalError, match="expected the bytes of grad_input, found Region"):
        run(client, NUMBERS)


def test_a_region_beside_the_one_asked_for_is_an_internal_error(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    region = tensor_pb2.Region(id=side_script.ID, offset=64, length=12)
    script.answers = [answer_of(region)]
    with pytest.raises(InternalError, match="expected the bytes of grad_input, found Region"):
        run(client, NUMBERS, memory.empty(3, np.float32))


def test_more_regions_than_outputs_are_an_internal_error(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    region = tensor_pb2.Region(id=side_script.ID, offset=0, length=12)
    script.answers = [answer_of(region, region)]
    with pytest.raises(InternalError, match="expected storages of"):
        run(client, NUMBERS, memory.empty(3, np.float32))


def test_bytes_instead_of_the_region_asked_for_are_taken(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    script.answers = [reply_of(np.float32([1, 2, 3]).tobytes())]
    out = memory.empty(3, np.float32)
    assert run(client, NUMBERS, out) is out
    assert out.tolist() == [1.0, 2.0, 3.0]


def test_arrays_travel_after_their_memory_is_closed(client: Client, script: SharingScript) -> None:
    with client.shared(MIB) as memory:
        array = memory.array(NUMBERS)
    assert script.memory.ended.acquire(timeout=PATIENCE)
    assert run(client, array).tolist() == (NUMBERS * 2).tolist()
    assert regions_of(script.requests[0]) == [None, None, None]


@pytest.mark.threads("a task that made it keeps it a little longer")
def test_memory_that_nobody_closed_is_given_back_with_a_warning(
    client: Client, script: SharingScript
) -> None:
    kept = [client.shared(MIB)]
    with pytest.warns(ResourceWarning, match="not closed: <SharedMemory of 1048576 bytes"):
        kept.clear()
    assert script.memory.ended.acquire(timeout=PATIENCE)


@pytest.mark.threads("a task that made it keeps it a little longer")
def test_an_array_of_memory_that_nobody_keeps_is_an_ordinary_one(
    client: Client, script: SharingScript
) -> None:
    with pytest.warns(ResourceWarning, match="not closed"):
        array = client.shared(MIB).array(NUMBERS)
    assert run(client, array).tolist() == (NUMBERS * 2).tolist()
    assert regions_of(script.requests[0]) == [None, None, None]


def test_a_client_that_closes_gives_its_memory_back(script: SharingScript) -> None:
    with connected(script) as client:
        memory = client.shared(MIB)
        array = memory.array(NUMBERS)
    assert script.memory.ended.acquire(timeout=PATIENCE)
    assert not memory.shared
    assert array.tolist() == NUMBERS.tolist()
    memory.close()


def test_a_server_without_shared_memory_names_its_setting(
    client: Client, script: SharingScript
) -> None:
    script.socket = ""
    with pytest.raises(SharedMemoryError, match=r"its setting shared_memory \(--shared-memory"):
        client.shared(MIB)


def test_the_socket_may_be_mounted_elsewhere(script: SharingScript) -> None:
    path, script.socket = script.socket, "/in/the/server's/own/container"
    with connected(script, shared_memory_socket=path) as client, client.shared(MIB) as memory:
        assert memory.shared


def test_the_environment_tells_where_the_socket_is(
    script: SharingScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUCALL_SHARED_MEMORY_SOCKET", script.socket)
    script.socket = "/nowhere"
    with connected(script) as client, client.shared(MIB) as memory:
        assert memory.shared


def array_of(memory: SharedMemory) -> AnyArray:
    return memory.array(NUMBERS)


def test_a_client_with_other_options_shares_the_same_memory(
    client: Client, memory: SharedMemory, script: SharingScript
) -> None:
    run(client.options(request_id="mine"), array_of(memory))
    assert regions_of(script.requests[0])[0] == (0, 4000)


def test_another_client_sends_the_bytes(script: SharingScript, memory: SharedMemory) -> None:
    with connected(script) as other:
        run(other, array_of(memory))
    assert regions_of(script.requests[0]) == [None, None, None]
