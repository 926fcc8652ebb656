"""``put``, ``run`` and what a Remote is, on ``local:`` and on a server."""

import gc
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.rows import each

import npucall_client
from npucall import errors
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.operators.prelu_backward import prelu_backward
from npucall_client import Client, Remote, Session

BOTH_SENDERS = pytest.mark.usefixtures("sender")

ONE = np.ones((), np.float32)
X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
Y = np.linspace(0.1, 0.9, 48, dtype=np.float32).reshape(6, 8)
WEIGHT = np.full(8, 0.25, np.float32)
MIB = 2**20


@each(
    "array",
    [
        X,
        X[::2, 1:5],
        X.T,
        X[::-1],
        np.float32(3),
        np.zeros((0, 4), np.int64),
        np.arange(7, dtype=np.int32),
        X.astype(ml_dtypes.bfloat16),
        X.astype(">f4"),
        X > 0,
    ],
)
def test_what_was_put_comes_back(session: Session, array: Any) -> None:
    remote = session.put(array)
    assert (remote.shape, remote.dtype) == (array.shape, array.dtype.newbyteorder("="))
    back = remote.numpy()
    assert np.array_equal(back, array)
    assert back.flags.writeable
    for make in np.array, np.asarray:
        with pytest.raises(TypeError, match="expected an array, found a Remote; its numpy"):
            make(remote)
    if remote.dtype.isbuiltin == 1 and remote.dtype != bool:
        assert np.array_equal(np.from_dlpack(remote), array)
    assert remote.fetch().dtype == back.dtype


@each("constant", [False, True])
def test_what_was_put_stays_when_the_array_changes(session: Session, constant: bool) -> None:
    array = np.arange(100_000, dtype=np.float32)
    for _ in range(2):
        remote, given = session.put(array, constant=constant), array.copy()
        array += 1
        assert np.array_equal(remote.numpy(), given)
    empty = np.zeros((0, 3), np.float32)
    assert session.put(empty, constant=constant).numpy().shape == (0, 3)


def test_what_cannot_travel_is_refused(session: Session) -> None:
    with pytest.raises(TypeError, match="array: expected an array, found list"):
        session.put([1.0])  # type: ignore[arg-type]
    with pytest.raises(errors.NpucallError, match="array: expected a dtype among"):
        session.put(np.array(["text"]))


@BOTH_SENDERS
def test_results_stay_there_and_are_those_of_one_call(connected: Client, session: Session) -> None:
    teacher = session.put(Y)
    gradient = session.run(kl_div_backward, ONE, self=X, target=teacher)
    assert isinstance(gradient, Remote)
    expected = connected.run(kl_div_backward, ONE, self=X, target=Y)
    assert (gradient.shape, gradient.dtype, gradient.nbytes) == (X.shape, X.dtype, X.nbytes)
    assert gradient.numpy().tobytes() == expected.tobytes()
    of_input, of_weight = session.run(prelu_backward, session.put(X), Y, WEIGHT)
    both = connected.run(prelu_backward, X, Y, WEIGHT)
    assert of_input.numpy().tobytes() == both[0].tobytes()
    assert of_weight.numpy().tobytes() == both[1].tobytes()


@BOTH_SENDERS
def test_a_call_of_the_client_takes_remotes(connected: Client, session: Session) -> None:
    there = session.put(X)
    found = connected.run(l1_loss_backward, ONE, there, Y)
    assert found.tobytes() == connected.run(l1_loss_backward, ONE, X, Y).tobytes()
    planned = connected.plan(l1_loss_backward, ONE, there, Y)
    assert planned.outputs["grad_input"].shape == X.shape
    assert connected.options(timeout=9.0).execute(l1_loss_backward, ONE, there, Y).value.size


@BOTH_SENDERS
def test_a_pipeline_takes_remotes_that_may_be_forgotten(
    connected: Client, session: Session
) -> None:
    there = session.put(X)
    with connected.pipeline() as pipeline:
        calls = [pipeline.submit(l1_loss_backward, ONE, there, Y) for _ in range(20)]
        calls.append(pipeline.submit(l1_loss_backward, ONE, X, Y))
        for _ in range(20):
            calls.append(pipeline.submit(l1_loss_backward, ONE, session.put(X), Y))
            session.release([])
    assert len({call.result().tobytes() for call in calls}) == 1


def test_an_output_that_an_array_is_given_for_is_written_there(session: Session) -> None:
    gradient = np.zeros_like(X)
    with_outputs = session.options(outputs={"grad_input": gradient})
    found: Any = with_outputs.run(prelu_backward, X, Y, WEIGHT)
    assert found.grad_input is gradient
    assert gradient.any()
    assert isinstance(found.grad_weight, Remote)


def test_several_threads_use_one_session(connected: Client, session: Session) -> None:
    expected = connected.run(l1_loss_backward, ONE, X, Y).tobytes()

    def work(_: int) -> bool:
        remote = session.put(X)
        return session.run(l1_loss_backward, ONE, remote, Y).numpy().tobytes() == expected

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(80)))


def test_a_remote_says_what_it_is_and_numpy_does_not_download_it_unasked(
    connected: Client, session: Session
) -> None:
    remote = session.put(X)
    with pytest.raises(TypeError, match=r"its numpy\(\) downloads it"):
        np.asarray(remote)
    with pytest.raises(TypeError):
        remote + 1
    host = connected._settings.target
    told = r"<Remote float32 \(6, 8\) on " + host.replace(".", r"\.")
    assert re.fullmatch(rf"{told}, \d+ s old>", repr(remote))
    remote.release()
    assert re.fullmatch(rf"{told}, released>", repr(remote))
    assert host in repr(session)


@BOTH_SENDERS
def test_what_was_released_cannot_be_used(connected: Client, session: Session) -> None:
    remote, other = session.put(X), session.put(Y)
    session.release([remote, other])
    remote.release()
    for use in (
        remote.numpy,
        lambda: session.run(l1_loss_backward, ONE, remote, Y),
        lambda: connected.run(l1_loss_backward, ONE, remote, Y),
        lambda: session.program().run(l1_loss_backward, ONE, other, Y),
    ):
        with pytest.raises(errors.HandleReleasedError, match="released"):
            use()


@BOTH_SENDERS
def test_a_closed_session_says_so_and_a_client_closes_its_sessions(connected: Client) -> None:
    session = connected.session()
    remote = session.put(X)
    session.close()
    session.close()
    for use in (
        remote.numpy,
        lambda: session.put(X),
        lambda: connected.run(l1_loss_backward, ONE, remote, Y),
    ):
        with pytest.raises(errors.CancelledError, match="the session is closed"):
            use()
    with npucall_client.connect(connected._settings.target) as client:
        another = client.session()
        remote = another.put(X)
    for use in remote.numpy, lambda: another.put(X), client.session:
        with pytest.raises(errors.CancelledError):
            use()


def test_remotes_of_two_sessions_or_connections_cannot_meet_in_a_call(
    connected: Client, session: Session
) -> None:
    mine = session.put(X)
    with connected.session() as other:
        theirs = other.put(Y)
        for run in session.run, connected.run, other.run:
            with pytest.raises(ValueError, match="same session"):
                run(l1_loss_backward, ONE, mine, theirs)
    with (
        npucall_client.connect(connected._settings.target) as client,
        pytest.raises(ValueError, match="this connection"),
    ):
        client.run(l1_loss_backward, ONE, mine, Y)


def test_collected_remotes_make_room(connected: Client) -> None:
    with connected.session(budget=4 * MIB) as session:
        assert session.budget == 4 * MIB
        for _ in range(20):
            session.put(np.zeros(MIB, np.uint8))
        held = [session.put(np.zeros(MIB, np.uint8)) for _ in range(4)]
        with pytest.raises(errors.HandleMemoryError) as full:
            session.put(np.zeros(MIB, np.uint8))
        assert full.value.details["limit"] == str(4 * MIB)
        with pytest.raises(errors.HandleMemoryError):
            session.run(l1_loss_backward, ONE, np.zeros(MIB // 4, np.float32), ONE)
        held.pop()
        del full
        gc.collect()  # the error's traceback
        session.run(l1_loss_backward, ONE, np.zeros(MIB // 4, np.float32), ONE)


@BOTH_SENDERS
def test_progress_hears_of_uploads_and_downloads(session: Session) -> None:
    array = np.arange(5 * MIB, dtype=np.uint8)
    sent: list[tuple[int, int, int]] = []
    got: list[tuple[int, int, int]] = []
    remote = session.put(array, progress=lambda *now: sent.append(now))
    assert np.array_equal(remote.numpy(progress=lambda *now: got.append(now)), array)
    assert sent[-1] == (array.nbytes, 0, array.nbytes)
    assert got[-1] == (0, array.nbytes, array.nbytes)
    assert sent == sorted(sent)
    assert got == sorted(got)


@BOTH_SENDERS
def test_what_progress_raises_ends_the_upload_or_the_download(session: Session) -> None:
    def stop(*_: int) -> None:
        raise KeyError("enough")

    array = np.zeros(5 * MIB, np.uint8)
    with pytest.raises(KeyError, match="enough"):
        session.put(array, progress=stop)
    remote = session.put(array)
    with pytest.raises(KeyError, match="enough"):
        remote.numpy(progress=stop)
    assert remote.numpy().nbytes == array.nbytes
