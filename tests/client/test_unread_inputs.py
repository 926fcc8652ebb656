"""Inputs whose values an operator never reads: their shape and dtype go, their bytes do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import npucall_client
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.wire.calls import decode
from npucall_client import arguments
from npucall_client.settings import ClientSettings

if TYPE_CHECKING:
    from npucall_client import Client

ONES = np.ones((2, 3), np.float32)
HUGE = np.broadcast_to(np.float16(1), (2**20, 2**20))
"""Two TiB, should anybody gather it."""


def bound(*, send_unread: bool, unread: np.ndarray = ONES) -> arguments.BoundCall:
    given = {"grad_output": ONES, "self": unread, "target": ONES}
    return arguments.bind(
        kl_div_backward, "", (), given, {}, keep_layout=False, send_unread=send_unread
    )


def test_the_bytes_of_an_input_that_is_not_read_stay_at_home() -> None:
    request = bound(send_unread=False)
    assert list(request.storage) == ["grad_output", "target"]
    assert decode(request.call, CATALOGUE).stored == ("grad_output", "target")


def test_its_shape_and_dtype_travel() -> None:
    spec = decode(bound(send_unread=False, unread=HUGE).call, CATALOGUE).arguments["self"]
    assert (str(spec.dtype), spec.shape) == ("FLOAT16", (2**20, 2**20))


def test_a_setting_sends_them_all_the_same() -> None:
    assert list(bound(send_unread=True).storage) == ["grad_output", "self", "target"]


def test_every_other_input_is_sent() -> None:
    given = {"grad_output": ONES, "self": ONES, "target": ONES}
    request = arguments.bind(l1_loss_backward, "", (), given, {}, keep_layout=False)
    assert list(request.storage) == ["grad_output", "self", "target"]


def test_the_environment_can_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ClientSettings.of().send_unread
    monkeypatch.setenv("NPUCALL_SEND_UNREAD", "true")
    assert ClientSettings.of().send_unread


@pytest.mark.parametrize("keep_layout", [False, True])
def test_the_result_is_the_same(client: Client, keep_layout: bool) -> None:
    target = np.arange(6, dtype=np.float32).reshape(2, 3)
    wanted = client.options(keep_layout=keep_layout).run(kl_div_backward, ONES, ONES, target, 2)
    np.testing.assert_array_equal(wanted, -target)


def test_connect_takes_the_setting() -> None:
    with npucall_client.connect("local:", send_unread=True) as sending:
        assert sending.run(kl_div_backward, ONES, ONES, ONES, 2).tolist() == (-ONES).tolist()
