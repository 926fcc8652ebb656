"""Tensors near the 2 GiB that a message of gRPC can hold; see also test_streams."""

from __future__ import annotations

import numpy as np
import pytest

import npucall_client
from npucall.errors import TooLargeError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

ONE = np.ones((), np.float32)


@pytest.mark.long
def test_a_gibibyte_goes_there_and_back() -> None:
    array = np.arange(2**28, dtype=np.float32)
    with running_server() as server, npucall_client.connect(server.target) as client:
        out = client.run(l1_loss_backward, ONE, array, np.float32(2**27), reduction=2)
    assert np.array_equal(out, np.sign(array - np.float32(2**27)))


@pytest.mark.long
def test_a_small_request_may_have_an_answer_of_more_than_a_message_holds() -> None:
    unread = np.broadcast_to(np.float32(0), (2**29 + 2**20,))  # only its shape is sent
    with (
        running_server("--memory-limit=8GiB") as server,
        npucall_client.connect(server.target, timeout=300) as client,
    ):
        out = client.run(kl_div_backward, ONE, unread, ONE, reduction=2)
    assert (out.nbytes, out.min(), out.max()) == (2**31 + 2**22, -1, -1)


@pytest.mark.long
def test_more_than_the_server_holds_is_refused_before_it_is_sent() -> None:
    array = np.zeros(2**29, np.float32)
    with (
        running_server("--memory-limit=2GiB") as server,
        npucall_client.connect(server.target) as client,
        pytest.raises(TooLargeError, match="memory_limit"),
    ):
        client.run(l1_loss_backward, ONE, array, ONE)
