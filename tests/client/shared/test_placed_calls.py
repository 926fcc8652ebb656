"""What of a call stays in shared memory, and what a client does when the server's goes."""

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client import fake_server, fake_side_socket, prototypes
from tests.client.fake_server import MIB, ONE, PATIENCE, connected, refusing, reply_of, submit
from tests.client.fake_side_socket import SharingServer, side_socket
from tests.rows import each

from npucall.errors import InternalError, SharedMemoryError, TooLargeError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_client import Client, SharedMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory")
BOTH_SENDERS = pytest.mark.usefixtures("sender")
COUNT = 1000
"""Numbers of an array; it takes 4,000 bytes, the next one begins at 4,032."""
NUMBERS = np.arange(COUNT, dtype=np.float32)
TWICE = (NUMBERS * 2).tolist()
LARGE = np.arange(MIB, dtype=np.float32)
LISTS = prototypes.operator("aclnnLists", x="in aclTensorList*", y="out aclTensorList*")
UPDATE = prototypes.operator("aclnnUpdate", x="in aclTensor*", y="in/out aclTensor*")
FORGOTTEN = "the server no longer knows the shared memory"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SharingServer]:
    with side_socket(tmp_path / "side") as memory:
        yield SharingServer(memory)


@pytest.fixture
def client(server: SharingServer) -> Iterator[Client]:
    with connected(server, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def memory(client: Client) -> Iterator[SharedMemory]:
    with client.shared(16 * MIB) as memory:
        yield memory


def run(client: Client, array: Any, out: Any = None, **given: Any) -> Any:
    outputs = {} if out is None else {"grad_input": out}
    arguments = {"self": ONE, "target": ONE, **given}
    return client.options(outputs=outputs).run("aclnnL1LossBackward", array, **arguments)


def placed(
    client: Client, called: Any, outputs: Any, *, keep_layout: bool = False, **inputs: Any
) -> tuple[set[str], set[str]]:
    """The storages and the outputs of a call that stay in open memory."""
    request = prototypes.bound(called, outputs, keep_layout=keep_layout, **inputs)
    client._transport.link.place(request)
    if request.placement is None:
        return set(), set()
    return set(request.placement.storage), set(request.placement.outputs)


def regions_of(request: pb.ExecuteRequest) -> list[tuple[int, int] | None]:
    """Offset and length of each storage, None for one that travels."""
    regions = [s.region if s.HasField("region") else None for s in request.storage]
    return [region and (region.offset, region.length) for region in regions]


def places_of(request: pb.ExecuteRequest) -> dict[str, tuple[int, int]]:
    return {p.output: (p.region.offset, p.region.length) for p in request.output_places}


@BOTH_SENDERS
def test_inputs_and_outputs_in_the_memory_stay_and_others_travel(
    client: Client, memory: SharedMemory, server: SharingServer
) -> None:
    memory.empty(1, np.uint8)
    array, out = memory.array(NUMBERS), memory.empty(COUNT, np.float32)
    assert run(client, array).tolist() == TWICE
    assert run(client, array, out) is out
    assert out.tolist() == TWICE
    out[:] = 0
    run(client, NUMBERS, out)
    assert out.tolist() == TWICE
    in_place, travels = [(64, 4000), None, None], [None, None, None]
    assert list(map(regions_of, server.requests)) == [in_place, in_place, travels]
    there = {"grad_input": (4096, 4000)}
    assert list(map(places_of, server.requests)) == [{}, there, there]


VIEWS: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda array: array[10:20], (40, 40)),
    (lambda array: array.reshape(10, 100)[3], (1200, 400)),
    (lambda array: array.view(np.int32)[5:6].view(np.float32), (20, 4)),
    (lambda array: array.reshape(10, 100).T, (0, 4000)),  # with its strides
    (lambda array: array[::2], None),  # which has to be gathered
    (lambda array: array[:0], None),
]


@each(("view", "region"), VIEWS)
def test_slices_views_and_reshapes_are_found(
    client: Client, memory: SharedMemory, server: SharingServer, view: Any, region: Any
) -> None:
    memory.clear()
    array = memory.array(NUMBERS)
    found = run(client, view(array))
    assert regions_of(server.requests[-1]) == [region, None, None]
    assert sorted(found.ravel().tolist()) == sorted((view(NUMBERS) * 2).ravel().tolist())


def test_an_output_without_bytes_or_that_shares_one_with_an_input_comes_in_the_answer(
    client: Client, memory: SharedMemory, server: SharingServer
) -> None:
    assert run(client, memory.empty(0, np.float32), memory.empty(0, np.float32)).size == 0
    array = memory.empty(COUNT + 999, np.float32)
    array[:COUNT] = NUMBERS
    out = array[999:]
    run(client, array[:COUNT], out)
    assert list(map(places_of, server.requests)) == [{}, {}]
    assert out.tolist() == TWICE


def test_two_memories_are_told_apart(
    client: Client, memory: SharedMemory, server: SharingServer
) -> None:
    with client.shared(MIB) as other:
        array, out = memory.array(NUMBERS), other.empty(COUNT, np.float32)
        run(client, array, out)
    (request,) = server.requests
    assert request.storage[0].region.id == fake_side_socket.ID
    assert request.output_places[0].region.id not in (b"", fake_side_socket.ID)
    assert out.tolist() == TWICE


@each("second", [False, True])
def test_outputs_that_overlap_have_no_place(
    client: Client, memory: SharedMemory, second: bool
) -> None:
    x = [memory.array(NUMBERS)]
    with client.shared(MIB) as other:
        many = (other if second else memory).empty(100, np.float32)
        outputs = {"y": [many[:20], many[20:41], many[40:50], many[60:70], np.empty(3, np.float32)]}
        assert placed(client, LISTS, outputs, x=x) == ({"x[0]"}, {"y[0]", "y[3]"})
        for given in ([many[:20], many[10:30]], [many[10:30], many[:20]]):
            assert placed(client, LISTS, {"y": given}, x=x) == ({"x[0]"}, set())
        outputs = {"y": [many, many[10:12], many[50:60]]}
        assert placed(client, LISTS, outputs, x=[ONE]) == (set(), set())
        assert placed(client, LISTS, {"y": [many[:20]]}, x=[many[20:30]])[1] == {"y[0]"}
        same = [many, many, many[3:]]  # inputs may share theirs
        assert placed(client, LISTS, {"y": []}, x=same)[0] == {"x[0]", "x[1]", "x[2]"}


def test_an_output_with_strides_has_no_place_unless_it_keeps_its_layout(
    client: Client, memory: SharedMemory
) -> None:
    first, second = memory.empty((10, 10), np.float32), memory.empty((10, 10), np.float32)
    outputs = {"y": [first.T, second[:, ::2], second[0, 1::2]]}
    assert placed(client, LISTS, outputs, x=[ONE]) == (set(), set())
    out = {"y": [first[:, ::2]]}
    assert placed(client, LISTS, out, x=[ONE], keep_layout=True) == ({"y[0]"}, {"y[0]"})


def test_an_output_that_the_operator_reads_is_read_there_and_comes_in_the_answer(
    client: Client, memory: SharedMemory
) -> None:
    outputs = {"y": memory.array(NUMBERS)}
    for keep_layout in False, True:
        assert placed(client, UPDATE, outputs, x=ONE, keep_layout=keep_layout) == ({"y"}, set())


def test_only_bytes_that_travel_count_for_chunks(server: SharingServer) -> None:
    told: list[tuple[int, ...]] = []
    with connected(server, stream_from=4001) as client, client.shared(8 * MIB) as memory:
        run(client, memory.array(np.zeros(50_000, np.float32)))
        assert (server.unary, server.streams) == (1, 0)
        telling = client.options(progress=lambda *progress: told.append(progress))
        run(telling, memory.array(LARGE), self=LARGE, target=LARGE)
    assert (server.unary, server.streams, sum(server.chunks)) == (1, 1, 12 * MIB)
    assert not server.begins[0].request.output_places
    assert (told[-1][0], told[-1][2]) == (12 * MIB, 16 * MIB)  # all of it


def test_a_message_that_is_too_long_is_sent_in_chunks_but_for_shared_bytes(
    server: SharingServer,
) -> None:
    server.limits.max_message_bytes = 10_000
    numbers = np.arange(5000, dtype=np.float32)
    with connected(server) as client, client.shared(MIB) as memory:
        run(client, memory.array(NUMBERS), self=NUMBERS)
        assert (server.unary, server.streams) == (1, 0)
        out = run(client, memory.array(numbers))  # whose answer may be too long
    assert (server.unary, server.streams, server.chunks) == (1, 1, [])
    assert regions_of(server.requests[1])[0] == (4032, 20_000)
    assert out.tolist() == (numbers * 2).tolist()


def test_a_call_whose_answer_was_too_long_names_no_memory_if_it_travels_in_chunks(
    server: SharingServer, client: Client, memory: SharedMemory
) -> None:
    server.answer = fake_server.fail(TooLargeError("response: too long", method="ExecuteStream"))
    array = np.arange(3 * MIB // 8, dtype=np.float32)
    out = memory.empty(array.shape, np.float32)
    assert run(client, array, out) is out
    np.testing.assert_array_equal(out, array)
    assert server.begins[0].chunked


@BOTH_SENDERS
def test_calls_of_a_pipeline_name_regions_unless_much_travels(
    client: Client, memory: SharedMemory, server: SharingServer
) -> None:
    large, out = memory.zeros(MIB, np.float32), memory.empty(MIB, np.float32)
    with client.pipeline() as pipeline:
        call = submit(pipeline, large, outputs={"grad_input": out})
        assert call.result(PATIENCE) is out
        assert regions_of(server.requests[0])[0] == (0, 4 * MIB)
        assert (server.chunks, out.sum()) == ([], 0.0)
        call = submit(pipeline, memory.array(NUMBERS), self=np.zeros(MIB, np.float32))
        assert call.result(PATIENCE).tolist() == NUMBERS.tolist()
    assert sum(server.chunks) == 4 * MIB + 4000 + 4


# A server that forgot the memory.


@BOTH_SENDERS
def test_a_server_that_forgot_the_memory_gets_the_bytes_which_is_told_once(
    client: Client, memory: SharedMemory, server: SharingServer
) -> None:
    array, out = memory.array(NUMBERS), memory.empty(COUNT, np.float32)
    server.forgets = True
    with pytest.warns(RuntimeWarning, match=FORGOTTEN):
        assert run(client, array, out) is out
    assert out.tolist() == TWICE
    assert regions_of(server.requests[1]) == [None, None, None]
    assert not memory.shared
    run(client, array)
    assert len(server.requests) == 3
    assert server.memory.ended.acquire(timeout=PATIENCE)
    assert memory.zeros(1, np.float32) == 0


@BOTH_SENDERS
def test_a_pipeline_sends_the_bytes_to_a_server_that_forgot_the_memory(
    client: Client, memory: SharedMemory, server: SharingServer
) -> None:
    array, out = memory.array(NUMBERS), memory.empty(COUNT, np.float32)
    server.forgets = True
    with client.pipeline() as pipeline:
        with pytest.warns(RuntimeWarning, match=FORGOTTEN):
            first = submit(pipeline, array, outputs={"grad_input": out}).result(PATIENCE)
        second = submit(pipeline, array).result(PATIENCE)
    assert first is out
    assert [first.tolist(), second.tolist()] == [TWICE] * 2
    assert server.streams == 1


def test_a_pipeline_whose_warnings_are_errors_ends_the_call_with_it(
    client: Client, memory: SharedMemory, server: SharingServer
) -> None:
    array = memory.array(NUMBERS)
    server.forgets = True
    with warnings.catch_warnings(), client.pipeline() as pipeline:
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            submit(pipeline, array).result(PATIENCE)
        assert submit(pipeline, array).result(PATIENCE).tolist() == TWICE


def test_the_same_error_of_other_calls_is_theirs(client: Client, server: SharingServer) -> None:
    error = SharedMemoryError("memory: unknown")
    server.answer, server.behaviours = fake_server.fail(error), [refusing(error)]
    with pytest.raises(SharedMemoryError):
        run(client, NUMBERS)
    with client.pipeline() as pipeline, pytest.raises(SharedMemoryError):
        submit(pipeline, NUMBERS).result(PATIENCE)


def answer_of(*offsets: int) -> pb.ExecuteResponse:
    response = reply_of(bytes(12))
    del response.storage[:]
    for offset in offsets:
        region = tensor_pb2.Region(id=fake_side_socket.ID, offset=offset, length=12)
        response.storage.append(tensor_pb2.Storage(region=region))
    return response


BYTES = "expected the bytes of grad_input, found Region"


@each(
    ("offsets", "has_place", "said"),
    [([0], False, BYTES), ([64], True, BYTES), ([0, 0], True, "expected storages of")],
)
def test_a_region_that_was_not_asked_for_is_an_internal_error(
    client: Client, memory: SharedMemory, server: SharingServer,
    offsets: list[int], has_place: bool, said: str,
) -> None:  # fmt: skip
    memory.clear()
    server.answers = [answer_of(*offsets)] * 2
    out = memory.empty(3, np.float32) if has_place else None
    with pytest.raises(InternalError, match=said):
        run(client, NUMBERS, out)
    with client.pipeline() as pipeline, pytest.raises(InternalError, match=said):
        submit(pipeline, NUMBERS, outputs={"grad_input": out} if has_place else {}).result(PATIENCE)


def test_bytes_instead_of_the_region_asked_for_are_taken(
    client: Client, memory: SharedMemory, server: SharingServer
) -> None:
    server.answers = [reply_of(np.array([1, 2, 3], np.float32).tobytes())]
    out = memory.empty(3, np.float32)
    assert run(client, NUMBERS, out) is out
    assert out.tolist() == [1.0, 2.0, 3.0]


# The life of the memory.


def test_memory_that_nobody_closed_warns(client: Client, server: SharingServer) -> None:
    kept = [client.shared(MIB)]
    array = kept[0].array(NUMBERS)
    with pytest.warns(ResourceWarning, match="not closed: <SharedMemory of 1048576 bytes"):
        kept.clear()
    assert server.memory.ended.acquire(timeout=PATIENCE)
    assert run(client, array).tolist() == TWICE
    assert regions_of(server.requests[0]) == [None, None, None]


@BOTH_SENDERS
def test_memory_that_is_closed_goes_back_and_arrays_stay(server: SharingServer) -> None:
    with connected(server) as client:
        with client.shared(MIB) as closed:
            array = closed.array(NUMBERS)
        assert server.memory.ended.acquire(timeout=PATIENCE)
        assert run(client, array).tolist() == TWICE
        assert regions_of(server.requests[0]) == [None, None, None]
        memory = client.shared(MIB)
        array = memory.array(NUMBERS)
    assert server.memory.ended.acquire(timeout=PATIENCE)
    assert not memory.shared
    assert array.tolist() == NUMBERS.tolist()
    memory.close()


def test_where_the_socket_is_the_server_or_a_setting_says(
    server: SharingServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, server.socket = server.socket, ""
    with pytest.raises(SharedMemoryError, match=r"its setting shared_memory \(--shared-memory"):
        client.shared(MIB)
    server.socket = "/in/the/server's/own/container"
    with connected(server, shared_memory_socket=path) as other, other.shared(MIB) as memory:
        assert memory.shared
    monkeypatch.setenv("NPUCALL_SHARED_MEMORY_SOCKET", path)
    with connected(server) as other, other.shared(MIB) as memory:
        assert memory.shared
