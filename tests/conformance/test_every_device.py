"""Every device refuses what the rules refuse, of every operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.more import every_twelfth
from tests.operators.collected import SUBJECTS

from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.products import A2

from . import raw

if TYPE_CHECKING:
    from tests.operators.faults import Fault
    from tests.operators.subject import Subject

    from npucall_client import Client

each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)


@pytest.mark.parametrize("subject", every_twelfth(SUBJECTS), ids=str)
def test_a_device_refuses_every_defect_as_the_rules_do(client: Client, subject: Subject) -> None:
    soc = client.server_info().server.soc
    wrong = []
    for fault in subject.table.faults:
        for ask in (raw.plan, raw.execute):
            error = refusal(client, ask, subject, fault)
            found = (type(error), error.aclnn_status, error.parameters)
            details = {"operator": subject.operator.name, "phase": "prepare", "soc": soc}
            details |= {"variant": subject.operator.variant} if subject.operator.variant else {}
            told = details.items() <= error.details.items()
            if found != fault.answer or error.code is not CODE or not told:
                wrong.append((str(fault), ask.__name__, error, error.details))
    assert not wrong


CODE = grpc.StatusCode.INVALID_ARGUMENT


def refusal(client: Client, ask: Any, subject: Subject, fault: Fault) -> NpucallError:
    operator, call = subject.operator, subject.table.call(fault)
    with pytest.raises(NpucallError) as caught:
        ask(client, operator.name, operator.variant, dict(call.arguments), inputs_of(subject))
    return caught.value


@each
def test_an_input_that_is_not_mentioned_counts_as_a_null_and_an_output_does_not(
    client: Client, subject: Subject
) -> None:
    operator = subject.operator
    arguments = dict(subject.table.call().arguments)
    for name in (p.name for p in operator.inputs if not p.optional):
        left = {n: value for n, value in arguments.items() if n != name}
        with pytest.raises(NpucallError) as caught:
            raw.plan(client, operator.name, operator.variant, left, inputs_of(subject))
        assert (caught.value.aclnn_status, caught.value.parameter) == (161001, name)
    names = {output.name for output in operator.outputs}
    given = {n: value for n, value in arguments.items() if n not in names}
    stored = tuple(p.name for p in operator.inputs if p.name in given)
    expected = prepare(Call(operator, given, stored), A2, CATALOGUE).outputs
    reply = raw.plan(client, operator.name, operator.variant, given, inputs_of(subject)).reply
    found = [(each.name, tuple(each.tensor.shape)) for each in reply.outputs]
    assert found == [(name, spec.shape) for name, spec in expected.items()]


def inputs_of(subject: Subject) -> list[str]:
    return [p.name for p in subject.operator.inputs]
