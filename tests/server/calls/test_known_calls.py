"""Calls that a server knows: what one caller brings has its own bound."""

import pytest
from tests.server.fakes import FakeCaller
from tests.server.serving import Offline, record

from npucall.dtypes import FLOAT
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.messages import join_request

_NAMES = "grad_output", "self", "target"


def message(elements: int) -> bytes:
    call = encode(
        "aclnnKlDivBackward", "", dict.fromkeys(_NAMES, TensorSpec(FLOAT, (elements,))), _NAMES
    )
    return join_request(call, [memoryview(bytes(4 * elements))] * 3)


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
