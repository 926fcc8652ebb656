"""What asyncio's client is beside the other one: tasks, cancels, and the same methods."""

import asyncio
import inspect
import threading
from typing import Any

import grpc
import numpy as np
import pytest
from tests.client.conftest import HAS_SERVER
from tests.client.fake_server import ONE, PATIENCE, FakeServer, numbers, serving
from tests.rows import each

import npucall_client
from npucall.errors import CancelledError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import aio
from npucall_client.aio import Client
from npucall_client.sending import pipeline
from npucall_client.sending.loop import LoopCondition
from npucall_client.sending.progress import LoopProgress, Telling
from npucall_client.sending.senders import finished

ONES = np.ones((2, 3), np.float32)
CALL: Any = ("aclnnL1LossBackward", numbers(8), ONE, ONE)


class SilentServer(FakeServer):
    """Answers no call until its client has ended it, and says when it has."""

    def __init__(self) -> None:
        super().__init__()
        self.ended, self.cancelled = threading.Event(), threading.Event()
        self.answer = self._wait
        self.behaviours = [self._never]

    def _wait(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        context.add_callback(self.ended.set)
        self.ended.wait(PATIENCE)
        return b""

    def _never(self, frames: Any, context: grpc.ServicerContext) -> Any:
        context.add_callback(self.ended.set)
        for frame in frames:
            self.asked.set()
            if frame.WhichOneof("frame") == "cancel":
                self.cancelled.set()
        yield from ()


async def until(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, PATIENCE)


def test_many_calls_at_once_get_their_own_answers() -> None:
    async def work(target: str) -> list[Any]:
        async with aio.connect(target) as client:
            calls = [
                client.run("aclnnL1LossBackward", np.float32([n]), ONE, ONE) for n in range(100)
            ]
            return [float(answer[0]) for answer in await asyncio.gather(*calls)]

    with serving(FakeServer()) as target:
        assert asyncio.run(work(target)) == list(range(100))


@each(
    ("ends", "raised"),
    [
        (lambda task, _: task.cancel(), asyncio.CancelledError),
        (lambda _, timeout: timeout.reschedule(0.0), TimeoutError),
    ],
)
def test_a_task_that_is_cancelled_or_late_ends_its_call_on_the_server(
    ends: Any, raised: type[BaseException]
) -> None:
    server = SilentServer()

    async def work(target: str) -> None:
        async with aio.connect(target) as client:
            timeout = asyncio.timeout(None)
            task = asyncio.create_task(call(client, timeout))
            assert await until(server.asked)
            ends(task, timeout)
            with pytest.raises(raised):
                await task
            assert await until(server.ended)

    async def call(client: Client, timeout: asyncio.Timeout) -> None:
        async with timeout:
            await client.run(*CALL)

    with serving(server) as target:
        asyncio.run(work(target))


def test_a_cancelled_task_cancels_the_call_of_a_pipeline_that_it_awaits() -> None:
    server = SilentServer()

    async def work(target: str) -> None:
        async with aio.connect(target) as client, client.pipeline() as calls:

            async def one() -> None:
                await (await calls.submit(*CALL))

            task = asyncio.create_task(one())
            assert await until(server.asked)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await until(server.cancelled)

    with serving(server) as target:
        asyncio.run(work(target))


@each("left", [False, True])
def test_a_task_that_is_cancelled_in_a_pipeline_cancels_what_has_no_answer(*, left: bool) -> None:
    """``left``: while it leaves the pipeline, which waits for its calls. Before: they ran on."""
    server = SilentServer()

    async def work(target: str) -> None:
        async with aio.connect(target) as client:
            calls = []

            async def one() -> None:
                async with client.pipeline() as pipeline:
                    calls.append(await pipeline.submit(*CALL))
                    await asyncio.sleep(0 if left else PATIENCE)

            task = asyncio.create_task(one())
            assert await until(server.asked)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert calls[0].cancelled()
            assert await until(server.ended)

    with serving(server) as target:
        asyncio.run(work(target))


def test_the_loop_goes_on_while_a_token_is_asked_for() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def token() -> str:
        asked.set()
        assert go_on.wait(PATIENCE)
        return "secret"

    async def work(target: str) -> None:
        opening = asyncio.create_task(opened(target))
        assert await until(asked)
        go_on.set()  # by the loop, which the function does not keep
        await (await opening).close()

    async def opened(target: str) -> Client:
        return await aio.connect(target, token=token)

    with serving(FakeServer()) as target:
        asyncio.run(work(target))


@each("kind", ["local:", *(["a server", "pool:"] if HAS_SERVER else [])])
def test_a_closed_client_calls_nobody_and_leaves_no_task(
    request: pytest.FixtureRequest, kind: str
) -> None:
    target = "local:"
    if kind != "local:":
        target = kind.removeprefix("a server") + request.getfixturevalue("npucall_server")

    async def work() -> None:
        client = await aio.connect(target)
        async with client.session() as session, client.pipeline() as calls:
            remote = await session.put(ONES)
            await (await calls.submit(l1_loss_backward, ONES, remote, ONES))
        async with client.reserve(60) as quiet:
            await quiet.run(l1_loss_backward, ONES, ONES, ONES)
        await client.close()
        with pytest.raises(CancelledError, match="the client is closed"):
            await client.run(l1_loss_backward, ONES, ONES, ONES)
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            _, pending = await asyncio.wait(others, timeout=PATIENCE)
            assert not pending

    asyncio.run(work())


def test_a_setting_that_cannot_be_is_refused_before_anything_is_awaited() -> None:
    with pytest.raises(ValueError, match="timeout"):
        aio.connect("local:", timeout=-1.0)
    with pytest.raises(TypeError, match="nonsense"):
        aio.connect("local:", nonsense=1)  # type: ignore[call-arg]


def public(kind: type) -> dict[str, Any]:
    """The parameters of its methods, and what else there is, by name."""
    methods = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {
        name: list(inspect.signature(method).parameters.values()) if callable(method) else ""
        for name, method in methods.items()
    }


@each(
    ("blocking", "awaited"),
    [
        (npucall_client.Client, aio.Client),
        (npucall_client.Session, aio.Session),
        (npucall_client.Program, aio.Program),
        (npucall_client.Remote, aio.Remote),
        (pipeline.Pipeline, aio.Pipeline),
        (npucall_client.client.Reserved, aio.client.Reserved),
    ],
)
def test_both_clients_have_the_same_methods_and_parameters(blocking: type, awaited: type) -> None:
    assert public(awaited) == public(blocking)
    ours, theirs = map(inspect.signature, (aio.connect, npucall_client.connect))
    assert ours.parameters == theirs.parameters


def test_a_waiter_that_is_cancelled_leaves_its_place_to_the_next_one() -> None:
    async def work() -> None:
        lock = threading.Lock()
        condition = LoopCondition(lock, asyncio.get_running_loop())
        seen = []

        async def wait(name: str) -> None:
            with lock:
                await condition.wait()
                seen.append(name)

        first, second = (asyncio.create_task(wait(name)) for name in ("first", "second"))
        await asyncio.sleep(0)
        with lock:
            condition.notify()
        first.cancel()
        await asyncio.wait([first, second], timeout=PATIENCE)
        assert seen == ["second"]

    asyncio.run(work())


def test_threads_do_not_run_what_waits_for_a_loop() -> None:
    with pytest.raises(RuntimeError, match="found one that suspends"):
        finished(asyncio.sleep(0))


def test_what_progress_raises_is_raised_though_the_loop_hears_of_it_at_the_end() -> None:
    def stop(*_: int) -> None:
        raise KeyError("enough")

    async def upload() -> None:
        telling = Telling(LoopProgress(stop), 4)
        sending = threading.Thread(target=telling.sent, args=(4,))
        sending.start()
        sending.join()  # meanwhile the loop stands still
        telling.check()

    with pytest.raises(KeyError, match="enough"):
        asyncio.run(upload())
