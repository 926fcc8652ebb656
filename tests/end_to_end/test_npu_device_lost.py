"""An NPU that breaks or hangs: what the caller is told, how the process ends, who is next.

``tests/server/lifetime/test_device_lost.py`` says what those are told who wait for the device.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.more import only
from tests.npu import running_npu_server

import npucall_client
from npucall.errors import DeviceError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import ServerProcess

from . import wire

ONE = np.ones(1, np.float32)
CALL = (kl_div_backward, ONE, ONE, ONE, 2)
WAIT = "aclrtSynchronizeStreamWithTimeout"
TIMEOUT = {"setting": "device_timeout", "limit": "0.5"}
BREAKS: dict[str, tuple[str, dict[str, str]]] = {
    "the kernel fails": (
        "aclnnKlDivBackward:1:at_sync:507015",
        {"device_status": "507015", "function": WAIT},
    ),
    "phase two does not return": ("aclnnKlDivBackward:1:hang:507000", TIMEOUT),
    "every function of the device fails": (
        "aclnnKlDivBackward:1:sticky:507018",
        {"device_status": "507018"},
    ),
    "the kernel does not end": (
        "aclnnKlDivBackward:1:stall:0",
        {"device_status": "507046", "function": WAIT},
    ),
    "phase one does not return": ("aclnnKlDivBackwardGetWorkspaceSize:1:hang:507000", TIMEOUT),
    "the synchronise does not return": (f"{WAIT}:1:hang:507000", TIMEOUT),
}


def events(server: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log.read_text().splitlines()]


@pytest.mark.parametrize("broken", only(*BREAKS))
def test_the_call_gets_its_error_the_log_says_what_broke_and_the_process_ends_with_70(
    broken: str,
) -> None:
    fault, facts = BREAKS[broken]
    with (
        running_npu_server("--device-timeout=0.5", NPUCALL_SIM_FAULTS=fault) as server,
        npucall_client.connect(server.target) as client,
    ):
        with pytest.raises(DeviceError) as caught:
            client.run(*CALL)
        assert server.process.wait(wire.PATIENCE) == 70
        log = events(server)
    (lost,) = (line for line in log if line["event"] == "device lost")
    assert caught.value.details.items() >= facts.items()
    assert lost.items() >= {**facts, "message": str(caught.value)}.items()
    assert (log[-1]["event"], log[-1]["code"]) == ("exit", 70)


@pytest.mark.more
def test_a_plan_that_meets_a_broken_device_loses_it_too() -> None:
    fault = "aclnnKlDivBackwardGetWorkspaceSize:1:sticky:507015"
    with (
        running_npu_server(NPUCALL_SIM_FAULTS=fault) as server,
        npucall_client.connect(server.target) as client,
    ):
        with pytest.raises(DeviceError):
            client.plan(*CALL[:-1])
        assert server.process.wait(wire.PATIENCE) == 70


@pytest.mark.more
def test_a_call_that_was_sent_back_is_answered_by_the_next_server() -> None:
    """It waits while another call has the only lane, until the watchdog finds that one hanging."""
    fault = f"{WAIT}:1:hang:507000"
    with ThreadPoolExecutor() as pool:
        flags = "--lanes=1", "--device-timeout=2"
        with running_npu_server(*flags, NPUCALL_SIM_FAULTS=fault) as server:
            client = npucall_client.connect(server.target)
            with wire.bare_channel(server.target) as channel:
                breaking = pool.submit(client.run, l1_loss_backward, ONE, ONE, ONE)
                wire.until(lambda: wire.calls_in_flight(channel) == 1, "it hangs")
            answer = pool.submit(client.run, *CALL)  # sent back, or too late for this server
            assert isinstance(breaking.exception(wire.PATIENCE), DeviceError)
            assert server.process.wait(wire.PATIENCE) == 70
        with running_npu_server(listen=server.target), client:
            assert answer.result(wire.PATIENCE).tolist() == [-1.0]


@pytest.mark.more
def test_a_call_that_hangs_keeps_no_server_that_is_asked_to_stop() -> None:
    fault = f"{WAIT}:1:hang:507000"
    with (
        running_npu_server("--drain-timeout=0.2", NPUCALL_SIM_FAULTS=fault) as server,
        wire.bare_channel(server.target) as channel,
    ):
        hanging = wire.method(channel, "Execute").future(wire.long_call(1))
        wire.until(lambda: wire.calls_in_flight(channel) == 1, "it hangs")
        assert server.stop() == 75
        assert hanging.exception(wire.PATIENCE) is not None
