"""Sessions of a server on a simulated NPU, up to the end of its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.npu import spotless_npu_server

import npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward

if TYPE_CHECKING:
    from pathlib import Path


def test_a_server_that_stops_gives_back_what_open_sessions_hold(tmp_path: Path) -> None:
    """No memory of the device is left, which the server looks at when the process ends."""
    ones = np.ones(1000, np.float32)
    with spotless_npu_server(tmp_path) as server, npucall_client.connect(server.target) as client:
        session = client.session()
        session.__enter__()
        held = session.put(ones)
        gradient = session.run(l1_loss_backward, held, held, np.zeros_like(ones), reduction=2)
        assert (gradient.numpy() == ones).all()
        assert server.stop() == 0
