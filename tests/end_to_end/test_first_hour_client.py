"""What annoyed new users, with a server: it is full, and its environment is misspelt."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

import npucall_client
from npucall.errors import QueueFullError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.texts import retry_in
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLERS = 24
ONES = np.ones((64, 1024), np.float32)


@pytest.fixture(scope="module")
def small_server() -> Iterator[str]:
    with running_server("--queue-length=1", "--lanes=1") as server:
        yield server.target


def test_more_callers_than_places_are_all_answered(small_server: str) -> None:
    with npucall_client.connect(small_server) as client, ThreadPoolExecutor(CALLERS) as threads:
        calls = [threads.submit(client.run, l1_loss_backward, ONES, ONES, ONES) for _ in range(96)]
        assert not any(call.result().any() for call in calls)


def test_a_pipeline_with_more_calls_than_places_is_answered(small_server: str) -> None:
    with npucall_client.connect(small_server) as client, client.pipeline() as pipeline:
        calls = [pipeline.submit(l1_loss_backward, ONES, ONES, ONES) for _ in range(96)]
        assert not any(call.result().any() for call in calls)


def test_the_message_of_a_refusal_shows_the_delay(small_server: str) -> None:
    refusals = []
    with (
        npucall_client.connect(small_server, wait=False) as client,
        ThreadPoolExecutor(CALLERS) as threads,
    ):
        while not refusals:
            calls = [
                threads.submit(client.run, l1_loss_backward, ONES, ONES, ONES)
                for _ in range(CALLERS)
            ]
            errors = [call.exception() for call in calls]
            refusals = [error for error in errors if isinstance(error, QueueFullError)]
    assert refusals[0].retry_after is not None
    assert retry_in(refusals[0].retry_after) in str(refusals[0])


def test_a_misspelt_variable_of_a_server_is_a_warning_in_its_log() -> None:
    environment = {**os.environ, "NPUCALL_QUEUE_LENGHT": "5"}
    with running_server(environment=environment) as server:
        npucall_client.connect(server.target).close()
        server.stop()
        log = server.log.read_text()
    assert "NPUCALL_QUEUE_LENGHT" in log
    assert "did you mean NPUCALL_QUEUE_LENGTH?" in log
