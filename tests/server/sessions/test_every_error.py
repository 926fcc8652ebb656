"""Every error of sessions, handles and digests, on a CPU and on a simulated NPU."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from tests.npu import spotless_npu_server
from tests.server.scripted import until
from tests.server.sessions.asking import Asker, RefusedError, asking
from tests.server.sessions.held import A, B

from npucall.v1 import session_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

DATA = bytes(range(256)) * 100
DIGEST = sha256(DATA).digest()
FLAGS = ("--handle-memory=100000", "--session-memory=60000", "--memory-limit=64MiB")


@pytest.fixture(scope="module", params=["cpu", "cann"])
def target(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("npu")
    server = (
        running_server(*FLAGS) if request.param == "cpu" else spotless_npu_server(folder, *FLAGS)
    )
    with server as running:
        yield running.target


@pytest.fixture
def asker(target: str) -> Iterator[Asker]:
    with asking(target) as asker:
        asker.open()
        yield asker
        asker.close_all()


def _expired(asker: Asker) -> None:
    asker.open(lease_seconds=0.01)

    def has_ended() -> bool:
        try:
            asker.download(A, 1)
        except RefusedError as error:
            return error.reason == "SESSION_EXPIRED"
        return False

    until(has_ended, "the lease has ended")
    asker.renew()


def _lost(asker: Asker) -> None:
    place, _, secret = asker.session.split("-")
    asker.session = f"{place}-abcdef-{secret}"
    asker.release(A)


def _wrong(asker: Asker) -> None:
    asker.session = "00000000" + asker.session[8:]
    asker.renew()


def _unknown(asker: Asker) -> None:
    asker.session = asker.session[:-32] + "0" * 32
    asker.put(A, DATA)


def _released(asker: Asker) -> None:
    asker.put(A, DATA)
    asker.release(A)
    asker.download(A, 1)


def _exists(asker: Asker) -> None:
    asker.put(A, DATA)
    asker.put(A, DATA[::-1])


def _full(asker: Asker) -> None:
    asker.put(A, DATA)
    asker.put(B, bytes(60000))


def _server_is_full(asker: Asker) -> None:
    for _ in range(2):
        asker.open()
        asker.put(A, bytes(60000))


ERRORS: tuple[tuple[str, Callable[[Asker], object]], ...] = (
    ("HANDLE_EMPTY", lambda asker: asker.download(A, 1)),
    ("HANDLE_RELEASED", _released),
    ("SESSION_EXPIRED", _expired),
    ("HANDLE_LOST", _lost),
    ("SESSION_UNKNOWN", _unknown),
    ("WRONG_SERVER", _wrong),
    ("MISSING", lambda asker: asker.upload((pb.UploadEntry(length=9, digest=DIGEST), b""))),
    ("HANDLE_EXISTS", _exists),
    ("HANDLE_MEMORY", _full),
    ("HANDLE_MEMORY", _server_is_full),
    ("DIGEST_MISMATCH", lambda asker: asker.put(A, DATA[::-1], digest=DIGEST)),
    ("TENSOR_LAYOUT", lambda asker: (asker.put(A, DATA), asker.download(A, len(DATA), 1))),
)


@pytest.mark.parametrize(("reason", "act"), ERRORS)
def test_the_error_is_told_and_nothing_is_left(
    asker: Asker, reason: str, act: Callable[[Asker], object]
) -> None:
    with pytest.raises(RefusedError) as caught:
        act(asker)
    assert caught.value.reason == reason
    asker.close_all()
    asker.open()
    asker.put(A, bytes(60000))  # there is room for it
    assert asker.renew().held_bytes == 60000


@pytest.mark.parametrize("dtype", [0, tensor_pb2.DATA_TYPE_INT32, tensor_pb2.DATA_TYPE_FLOAT16])
def test_what_is_uploaded_comes_back_in_parts(asker: Asker, dtype: int) -> None:
    asker.put(A, DATA, dtype=dtype)
    assert asker.download(A, len(DATA)) == DATA
    assert asker.download(A, 1001, offset=333) == DATA[333:1334]


def test_bytes_that_are_kept_fill_a_handle(asker: Asker) -> None:
    data = DATA[7:]
    digest = sha256(data).digest()
    assert asker.put(A, data, digest=digest) == [True]
    assert asker.upload((pb.UploadEntry(handle=B, length=len(data), digest=digest), b"")) == [True]
    assert asker.download(B, len(data)) == data


def test_a_handle_without_bytes_is_one_too(asker: Asker) -> None:
    asker.put(A, b"")
    assert asker.download(A, 0) == b""
