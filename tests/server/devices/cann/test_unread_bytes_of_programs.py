"""No program sees bytes of another caller, nor does a handle: what nobody writes is zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall import buffers
from npucall_server.devices.base import Step
from npucall_server.devices.cann.program import pace_of

from .asked import declared, installed, like
from .opened import FreeTurn
from .situations import l1, numbers, unread
from .test_programs import in_handles, release
from .test_unread_bytes import COUNT, SECRET, device, keep_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .asked import Asked
    from .opened import Opened

    Open = Callable[..., Opened]

__all__ = ["device"]


@pytest.fixture(autouse=True)
def _as_in_production() -> Iterator[None]:
    """The debug mode would fill the memory of each call anew."""
    buffers.poison(False)
    yield
    buffers.poison()


def exp2(device: Opened) -> Asked:
    """An operator that nobody here can say writes all of its output."""
    self = numbers(COUNT)
    return installed(device.device, "aclnnExp2", np.zeros_like(self), self=self, out=like(self))


def test_outputs_that_may_be_left_as_they_are_are_cleared(device: Opened) -> None:
    device.simulator.set_kernels("none")
    asked = exp2(device)
    kept = device.device.allocate(4 * COUNT)
    kept.write(0, SECRET * kept.nbytes)
    steps = [
        Step(asked.call, asked.storages),
        Step(asked.call, asked.storages, {"out": kept}),
    ]
    outputs = device.device.run_program(steps, FreeTurn()).outputs
    assert not any(bytes(outputs[0][0]))  # type: ignore[arg-type]
    assert not any(bytes(kept.read(0, kept.nbytes)))
    kept.write(0, SECRET * kept.nbytes)
    device.device.run(asked.call, asked.storages, FreeTurn(), {"out": kept})
    assert not any(bytes(kept.read(0, kept.nbytes)))
    kept.free()


def test_an_input_that_nobody_reads_is_zeros(device: Opened) -> None:
    """KlDivBackward of log-probabilities that are not sent: its kernel reads them all the same."""
    asked = unread(device.device)
    steps = [Step(asked.call, asked.storages)] * 2
    found = seen_inputs(device, "self", lambda: device.device.run_program(steps, FreeTurn()))
    assert found == [bytes(24)] * 2


def seen_inputs(device: Opened, name: str, work: Callable[[], object]) -> list[bytes]:
    """What kernels find in an input."""
    import ctypes
    import json
    import sys

    assert device.serves(l1(device.device))  # loads the kernels
    kernels = sys.modules["npucall_simulator.kernels"]
    real, found = kernels.run, []

    def run(description: str) -> None:
        for argument in json.loads(description)["arguments"]:
            if argument["name"] == name:
                value = argument["value"]
                found.append(ctypes.string_at(value["address"], value["bytes"]))
        real(description)

    kernels.run = run  # type: ignore[attr-defined]
    try:
        work()
    finally:
        kernels.run = real  # type: ignore[attr-defined]
    return found


def ones(device: Opened) -> Asked:
    tensors = dict.fromkeys(("grad_output", "self", "target"), np.ones(COUNT, np.float32))
    return declared(device.device, "aclnnL1LossBackward", reduction=2, **tensors)


def test_a_program_of_another_caller_finds_nothing_in_kept_memory(device: Opened) -> None:
    asked = ones(device)
    storages = in_handles(device, asked)  # so that its outputs lie where the secrets were
    device.simulator.set_kernels("none")
    steps = [Step(asked.call, storages)] * 2
    outputs = device.device.run_program(steps, FreeTurn(owner="another")).outputs
    assert SECRET * 4 not in b"".join(bytes(o) for (o,) in outputs)  # type: ignore[arg-type]
    release(storages)


def test_a_caller_finds_nothing_of_a_program_of_another(open_device: Open) -> None:
    """Also where the memory came back from one that was left in the middle."""
    device = open_device()
    secret = np.frombuffer(SECRET * (4 * COUNT), np.float32)
    tensors = dict.fromkeys(("grad_output", "self", "target"), secret)
    asked = declared(device.device, "aclnnL1LossBackward", reduction=2, **tensors)
    other = ones(device)

    class Leaving(FreeTurn):
        def pause(self) -> None:
            assert device.serves(l1(device.device))  # as "somebody"
            raise KeyError

    pace_of(asked.call).nanoseconds = 11e6
    with pytest.raises(KeyError):
        device.device.run_program([Step(asked.call, asked.storages)] * 2, Leaving(owner="first"))
    device.simulator.set_kernels("none")
    for owner in ("somebody", "third"):
        (output,) = device.run(other, owner=owner).outputs
        assert SECRET * 4 not in bytes(output)  # type: ignore[arg-type]


def test_steps_that_need_more_workspace_each_are_right(open_device: Open) -> None:
    """The workspace grows while work that is queued still uses the smaller one."""
    device = open_device()
    buffers.poison()
    asked = [l1(device.device, count) for count in (10, 300_000, 10, 700_000)]
    for each in asked:
        pace_of(each.call).nanoseconds = 1
    steps: list[Any] = [Step(each.call, each.storages) for each in asked]
    outputs = device.device.run_program(steps, FreeTurn()).outputs
    assert [[bytes(o) for o in step] for step in outputs] == [each.answers for each in asked]  # type: ignore[arg-type]
    assert device.simulator.live_objects()["aclrtMalloc"] == 2  # tensors, and one workspace


_ = keep_secrets
