"""Results in shared memory have the bits of results that travel: every operator, dtype, layout."""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tests.server.fakes import ledger, opened

from npucall.compute.helpers import Unlimited
from npucall.declare.prepare import Prepared
from npucall.operators import CATALOGUE
from npucall.places import RegionPart
from npucall.products import A2
from npucall.wire.calls import PreparedCalls
from npucall.wire.messages import Response
from npucall_client.client import Client
from npucall_client.local.transport import LocalTransport
from npucall_client.sending.request import Request
from npucall_client.settings import ClientSettings
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.running.runner import Runner
from npucall_conformance.running.subject import open_subject
from npucall_conformance.statements import statements
from npucall_server.devices.base import Step
from npucall_server.devices.cpu import CpuDevice
from npucall_server.shared.regions import Regions

pytestmark = pytest.mark.more

FREE: Any = Unlimited()
SOC, VARIANT = "Ascend910B1", "documented"
TITLES = [statement.title for statement in statements() if A2.soc in statement.takes]
POISON = b"\xa5"


class Recording(LocalTransport):
    """Keeps the calls that it gets."""

    def __init__(self) -> None:
        super().__init__(SOC)
        self.calls: list[tuple[bytes, list[bytes]]] = []

    async def execute(self, request: Request) -> Response:
        response = await super().execute(request)
        call: Any = request.call
        self.calls.append((call.call, [bytes(each) for each in call.storage.values()]))
        return response


@cache
def calls_of(title: str) -> list[tuple[Prepared, list[bytes]]]:
    """Calls that the conformance suite makes in a quick run, those that are not refused."""
    transport = Recording()
    subject = open_subject(Client(transport, ClientSettings(target="local:")), "local:")
    for _ in Runner(subject, None).run(select(statements(), Selection((), (title,), quick=True))):
        pass
    prepared = PreparedCalls(CATALOGUE, CpuDevice(SOC, VARIANT, 1).product, VARIANT)
    return [(prepared.of(call), storages) for call, storages in transport.calls]


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    device = CpuDevice(SOC, VARIANT, 2)
    yield device
    device.close()


class Shared:
    """Memory of a client's, into which tensors go one behind the other."""

    def __init__(self, size: int, alignment: int) -> None:
        self.regions = Regions(1 << 30, ledger())
        self.id, descriptor = self.regions.create(size)
        os.close(descriptor)
        self._alignment, self._end = alignment, 1 if alignment == 1 else 0

    def put(self, data: bytes) -> RegionPart:
        region = RegionPart(self.id, self._end, len(data))
        self.bytes_of(region)[:] = data
        self._end += -(-len(data) // self._alignment) * self._alignment
        return region

    def bytes_of(self, region: RegionPart) -> memoryview:
        return self.regions.view(region, "test")


def travelled(device: CpuDevice, call: Prepared, sent: list[bytes]) -> list[bytes]:
    outputs = device.run([Step(call, call.storages(sent))], FREE)[0][0]
    return [bytes(output) for output in outputs]


def in_place(
    device: CpuDevice, call: Prepared, sent: list[bytes], alignment: int, *, over: bool = False
) -> list[bytes]:
    """The outputs found in shared memory; ``over``: those that were sent are written over."""
    sizes = [*map(len, sent), *(spec.storage_bytes for spec in call.outputs.values())]
    shared = Shared(sum(sizes) + 64 * len(sizes) + 1, alignment)
    storages = dict(zip(call.stored, map(shared.put, sent), strict=True))
    own = storages if over else {}
    places = {
        name: own[name] if name in own else shared.put(POISON * spec.storage_bytes)
        for name, spec in call.outputs.items()
    }
    placed = opened(call, shared.regions, list(storages.values()), places)
    (step,) = placed.steps({})
    outputs = device.run([step], FREE)[0][0]
    assert placed.replied(0, outputs) == list(places.values())
    for (name, region), data in zip(storages.items(), sent, strict=True):
        assert name in (own.keys() & places.keys()) or shared.bytes_of(region) == data
    return [bytes(shared.bytes_of(place)) for place in places.values()]


LAYOUTS: dict[str, dict[str, Any]] = {
    "one behind the other": {"alignment": 64},
    "at any byte": {"alignment": 1},
    "written over the storage that was sent for them": {"alignment": 64, "over": True},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("share", [24, pytest.param(1, marks=pytest.mark.long)])
def test_outputs_in_place_have_the_bits_of_outputs_that_travel(
    device: CpuDevice, layout: str, share: int
) -> None:
    """Of ``share`` operators each layout takes one."""
    wrong, given = [], LAYOUTS[layout]
    for title in TITLES[list(LAYOUTS).index(layout) % share :: share]:
        calls = calls_of(title)
        assert calls
        for call, sent in calls:
            if "over" in given and not call.outputs.keys() & {*call.stored}:
                continue
            if in_place(device, call, sent, **given) != travelled(device, call, sent):
                wrong.append((title, call))
    assert wrong == []
