"""Calls that a server knows: they pass what others pass, and each caller's have their own bound."""

from dataclasses import asdict

import pytest
from tests.server.fakes import FakeCaller
from tests.server.serving import Offline, record

from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.messages import join_request

_NAMES = "grad_output", "self", "target"


def message(elements: int) -> bytes:
    call = encode(
        "aclnnKlDivBackward", "", dict.fromkeys(_NAMES, TensorSpec(FLOAT, (elements,))), _NAMES
    )
    return join_request(call, [memoryview(bytes(4 * elements))] * 3)


def tried(service: Offline, elements: int) -> tuple[str, set[str]]:
    """How a call ends, and the fields of its record that say something."""
    noted = record()
    with service.executions.begin(FakeCaller(who="lab/ann"), noted) as execution:
        try:
            execution.prepare(message(elements))
            execution.admit(at_once=True)
            execution.run()
            execution.reply_message()
        except NpucallError as error:
            noted.reason = error.reason
    return noted.reason, {name for name, value in asdict(noted).items() if value}


@pytest.mark.parametrize("refused", ["RESERVED", "QUOTA", "QUEUE_FULL", "DRAINING"])
def test_a_known_call_is_admitted_noted_and_refused_as_one_that_is_new(refused: str) -> None:
    service = Offline(tenants={"lab": {"calls": 1}}, memory_limit=1 << 22)
    (new, first), (known, again) = (tried(service, 8) for _ in range(2))
    assert service.executions.calls.received(message(8)) is not None
    assert (new, known) == ("OK", "OK")
    assert first - again <= {"check_ns"}
    assert again <= first
    if refused == "RESERVED":
        service.gate.reserve(FakeCaller(who="other/bob"), 60.0, 0.0)
    elif refused == "QUOTA":
        other = service.executions.begin(FakeCaller(who="lab/bob"), record())
        other.prepare(message(9))
        other.admit()
    elif refused == "QUEUE_FULL":
        service.executor.memory.hold("other", service.executor.memory.limit)
    else:
        service.executor.drain()
    assert [tried(service, elements)[0] for elements in (8, 10)] == [refused] * 2


def test_a_caller_with_calls_without_end_pushes_out_none_of_another_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("npucall.wire.calls.KNOWN_CALLS_BYTES", 100_000)
    service = Offline()
    one, another = FakeCaller(who="one"), FakeCaller(who="another")

    def is_known(elements: int) -> bool:
        return service.executions.calls.received(message(elements)) is not None

    def sends(caller: FakeCaller, elements: int) -> None:
        with service.executions.begin(caller, record()) as execution:
            execution.prepare(message(elements))

    sends(one, 1)
    for elements in range(2, 50):
        sends(another, elements)
        sends(FakeCaller(peer=f"ipv4:10.0.0.9:{elements}"), 100 + elements)  # of one host
    assert is_known(1)
    assert not is_known(102)
    assert not is_known(2)
    assert is_known(49)
    assert service.executions.calls.kept.used <= 100_000
