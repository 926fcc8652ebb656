"""Calls in files: what is recorded, and what a file answers instead of a server."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.conftest import HAS_SERVER

from npucall import errors, ops
from npucall.v1 import recording_pb2
from npucall.wire import recordings
from npucall.wire.recordings import Recorded, append, recorded
from npucall_client import Options, aio, connect
from npucall_client.local import recorded as transports

Logged: TypeAlias = pytest.LogCaptureFixture

X = np.array([[1, 2, 3]], np.float32)


def called(target: str, record: Path | None = None) -> list[Any]:
    """What every way to call gives."""
    options = Options(record="" if record is None else record)
    found: list[Any] = []
    with connect(target, options=options) as client:
        found += [client.server_info(), client.plan(ops.softmax, X, 1).outputs]
        found += [client.run(ops.exp, X), client.run("Softmax", X, 1)]
        for wrong in ("Softmx", (X, 1)), (ops.l1_loss_backward, (X, X[0, :2], X[0, :2])):
            with pytest.raises(errors.NpucallError) as failed:
                client.run(wrong[0], *wrong[1])  # type: ignore[operator]
            error = failed.value
            found += [type(error), str(error), error.parameters, error.aclnn_status]
        with client.session() as session:
            kept = session.run(ops.exp, session.put(X))
            with session.program() as program:
                twice = program.run(ops.exp, kept)
            found += [kept.numpy(), twice.numpy()]
        with client.pipeline() as pipeline:
            found += [pipeline.submit(ops.exp, X * number).result() for number in range(3)]
        with client.shared(1000) as memory, client.reserve(1) as quiet:
            found.append(quiet.run(ops.exp, memory.array(X + 1)))
        out = np.empty_like(X)
        client.options(outputs={"out": out}).run(ops.exp, X + 2)
        found.append(out)
    return found + asyncio.run(called_on_a_loop(target, options))


async def called_on_a_loop(target: str, options: Options) -> list[Any]:
    async with aio.connect(target, options=options) as client, client.session() as session:
        kept = await session.run(ops.exp, await session.put(X + 3))
        return [await client.run(ops.exp, X + 4), await kept.numpy()]


def plain(found: list[Any]) -> list[Any]:
    return [each.tobytes() if isinstance(each, np.ndarray) else each for each in found]


def test_a_file_answers_what_a_server_answered(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = tmp_path / "calls.rec"
    target = request.getfixturevalue("npucall_server") if HAS_SERVER else "local:"
    found = plain(called(target, file))
    before = file.read_bytes()
    again = plain(called(f"recorded:{file}"))
    assert again == found
    assert file.read_bytes() == before
    whole = recording_pb2.Recording.FromString(before)  # as any program reads it
    assert [call.method for call in whole.calls] == [call.method for call in recorded(file)]
    with connect(f"recorded:{file}") as client:
        assert client.carrier() == "recorded"
        with pytest.raises(errors.NotRecordedError, match="has no answer to this call of aclnnExp"):
            client.run(ops.exp, X + 5)
        with pytest.raises(errors.NotRecordedError, match="has no answer to GetUsage"):
            client.usage(5)


def test_the_answers_to_one_question_follow_one_another(tmp_path: Path) -> None:
    file = tmp_path / "calls.rec"
    for answer in b"a", b"b":
        append(file, Recorded("GetUsage", b"?", answer))
    append(file, Recorded("GetUsage", b"!", None, errors.QueueFullError("full", retry_after=2)))
    answers = recordings.Answers(file)
    assert [answers.to("GetUsage", b"?") for _ in range(3)] == [b"a", b"b", b"b"]
    with pytest.raises(errors.QueueFullError, match="full") as failed:
        answers.to("GetUsage", b"!")
    assert failed.value.retry_after == 2
    answers.close()


def full(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recordings, "MOST_BYTES", file.stat().st_size + 100)


@contextmanager
def on_a_full_disk(file: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of which there are 100 bytes left."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def moved(file: Path, patch: pytest.MonkeyPatch) -> None:
    file.parent.rename(file.parent.with_name("moved"))


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (full, "it has no room"),
        (on_a_full_disk, "File too large"),
        (moved, "No such file or directory"),
    ],
)
def test_calls_go_on_where_they_cannot_be_recorded_and_the_log_says_so_once(
    happens: Any, why: str, tmp_path: Path, caplog: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "kept").mkdir()
    file = folder / "calls.rec"
    with ExitStack() as stack, connect("local:", options=Options(record=file)) as client:
        client.run(ops.exp, X)
        before = file.read_bytes()
        if isinstance(manager := happens(file, monkeypatch), AbstractContextManager):
            stack.enter_context(manager)
        for number in 2, 3:
            assert client.run(ops.exp, X * number).shape == (1, 3)
    assert caplog.messages == [f"record: {file} takes no more calls: {why}"]
    (kept,) = tmp_path.rglob("calls.rec")
    assert kept.read_bytes() == before
    assert recordings.lacks_calls(kept) is (happens is not moved)


def test_a_file_that_lacks_a_call_takes_none_of_another_process(tmp_path: Path) -> None:
    file = tmp_path / "calls.rec"
    assert append(file, Recorded("GetUsage", b"?", b"a")) == ""
    file.chmod(0o400)
    assert append(file, Recorded("GetUsage", b"?", b"b")) == "a call before was not written"
    assert [call.response for call in recorded(file)] == [b"a"]


def test_a_file_is_read_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, threads = tmp_path / "calls.rec", list[int]()

    class Noted(recordings.Answers):
        def __init__(self, path: Path) -> None:
            threads.append(threading.get_ident())
            super().__init__(path)

    async def opened() -> None:
        async with aio.connect(f"recorded:{file}"):
            pass

    with connect("local:", options=Options(record=file)):
        pass
    monkeypatch.setattr(transports, "Answers", Noted)
    asyncio.run(opened())
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


@pytest.mark.more
def test_processes_write_one_file_and_no_call_is_torn(tmp_path: Path) -> None:
    file = tmp_path / "calls.rec"
    program = (
        "import sys; from pathlib import Path; from npucall.wire.recordings import *\n"
        "for number in range(100): append(Path(sys.argv[1]), "
        "Recorded('Execute', sys.argv[2].encode() * 30_000, bytes(number)))"
    )
    command = [sys.executable, "-c", program, str(file)]
    running = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [each.wait(120) for each in running] == [0, 0, 0]
    calls = list(recorded(file))
    assert len(calls) == 300
    for name in b"abc":
        mine = [len(call.response or b"") for call in calls if set(call.request) == {name}]
        assert mine == list(range(100))


@pytest.mark.parametrize("content", [b"", b"no calls", b"\x0a\x7fshort", b"\x0a\x02\xff\xff"])
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(
        errors.SettingError, match="expected calls that npucall record wrote, found"
    ):
        connect(f"recorded:{file}")
