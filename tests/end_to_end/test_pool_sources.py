"""The same calls through each source of a pool's members, and whose certificate is checked."""

from __future__ import annotations

import gc
import json
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.certificates import Authority
from tests.client.pool.directory_script import member, scripted_directory
from tests.client.pool.heard import threads_named, until

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.pool.sources import names
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

PATIENCE = 30.0
ONE, X = np.ones(1, np.float32), np.ones(4, np.float32)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The ready files of two servers, with what they say: one port at two addresses."""
    folder = tmp_path_factory.mktemp("ready")
    with running_server() as first:
        port = first.target.rpartition(":")[2]
        with running_server(listen=f"127.0.0.2:{port}") as second:
            texts = {str(folder / "0"): first.target, str(folder / "1"): second.target}
            for path, text in texts.items():
                Path(path).write_text(text, encoding="utf-8")
            yield texts


def resolver_of(addresses: list[str]) -> Any:
    def resolve(name: str, port: int, **_: Any) -> list[Any]:
        assert name == "npu.lab"
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses
        ]

    return resolve


@contextmanager
def pool_from(kind: str, ready: dict[str, str], folder: Path, patch: Any) -> Iterator[str]:
    """The target of a pool of these servers, by a source of that kind."""
    targets = [*ready.values()]
    with ExitStack() as stack:
        if kind == "static":
            yield f"pool:{','.join(targets)}"
        elif kind == "dns":
            patch.setattr(names.socket, "getaddrinfo", resolver_of(["127.0.0.1", "127.0.0.2"]))
            yield f"pool:dns:npu.lab:{targets[0].rpartition(':')[2]}"
        elif kind == "file":
            path = folder / "members.json"
            path.write_text(json.dumps({"members": [{"address": each} for each in targets]}))
            yield f"pool:file:{path}"
        elif kind == "folder":
            yield f"pool:file:{next(iter(ready)).rpartition('/')[0]}"
        else:
            directory = stack.enter_context(scripted_directory())
            directory.say(*(said(each) for each in targets))
            yield f"pool:directory:{directory.address}"


def said(target: str) -> Any:
    announced = member(target)
    announced.server.soc = "Ascend910B1"
    return announced


@pytest.mark.parametrize("kind", ["static", "dns", "file", "folder", "directory"])
def test_the_same_calls_go_to_all_members_whatever_lists_them(
    kind: str, ready: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pool_from(kind, ready, tmp_path, monkeypatch) as target,
        npucall_client.connect(target, timeout=PATIENCE, connect_timeout=PATIENCE) as client,
    ):
        instances = set()
        for _ in range(200):
            result = client.execute(l1_loss_backward, ONE, X, X)
            assert not result.value.any()
            instances.add(result.server.instance)
            if len(instances) == 2:
                break
        assert len(instances) == 2


def test_the_name_that_is_resolved_is_the_one_that_members_have_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    right, wrong = (
        authority.server("right", ("npu.lab",)),
        authority.server("wrong", ("127.0.0.1",)),
    )
    monkeypatch.setattr(names.socket, "getaddrinfo", resolver_of(["127.0.0.1"]))
    for pair, answers in (right, True), (wrong, False):
        with running_server(*pair.flags) as server, ExitStack() as stack:
            target = f"pool:dns:npu.lab:{server.target.rpartition(':')[2]}"
            seconds = PATIENCE if answers else 2.0
            if not answers:
                stack.enter_context(pytest.raises(ServerUnreachableError))
            client = npucall_client.connect(target, ca=authority.ca, connect_timeout=seconds)
            stack.enter_context(client)
            assert not client.run(l1_loss_backward, ONE, X, X).any()


def test_a_client_hears_of_members_that_come_later_and_of_those_that_go(
    ready: dict[str, str],
) -> None:
    first, second = ready.values()
    with scripted_directory() as directory:
        directory.say(said(first))
        target = f"pool:directory:{directory.address}"
        with npucall_client.connect(target, timeout=PATIENCE) as client:
            one = client.execute(l1_loss_backward, ONE, X, X).server.instance
            gc.collect()
            directory.say(said(second), gone=(first,))
            until(lambda: client.execute(l1_loss_backward, ONE, X, X).server.instance != one)
            directory.say(said(first), gone=(second,))
            until(lambda: client.execute(l1_loss_backward, ONE, X, X).server.instance == one)
    until(lambda: not threads_named("npucall-directory"))


def test_a_client_that_nobody_has_any_more_ends_the_threads_of_its_source(
    ready: dict[str, str],
) -> None:
    with scripted_directory() as directory:
        directory.say(*map(said, ready.values()))
        client = npucall_client.connect(f"pool:directory:{directory.address}", timeout=PATIENCE)
        client.run(l1_loss_backward, ONE, X, X)
        del client
        gc.collect()
        directory.say(complete=True)
        until(lambda: not threads_named("npucall-directory"))


def test_where_no_directory_answers_at_first_the_error_names_each_and_why(
    ready: dict[str, str],
) -> None:
    target = "pool:directory:127.0.0.1:1,127.0.0.1:2"
    with pytest.raises(ServerUnreachableError, match="refused") as caught:
        npucall_client.connect(target, connect_timeout=1)
    assert "directory 127.0.0.1:1: " in str(caught.value)
    assert "directory 127.0.0.1:2: " in str(caught.value)
    assert target in str(caught.value)
