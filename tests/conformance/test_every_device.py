"""Every device answers and refuses what this process does, of every operator."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import grpc
import numpy as np
import pytest
from tests.more import only
from tests.operators.calls import LOCAL, drawn, results, usual
from tests.operators.defects import ON_A2, Answer, Table, answer_of, changed
from tests.operators.test_labels import CALLS, labels_of, with_label

from npucall.dtypes import FLOAT, FLOAT16
from npucall.errors import ArgumentError, NpucallError, VariantUnavailableError
from npucall_client import Client
from npucall_conformance.cases.case import Maker
from npucall_conformance.cases.made_call import in_lists
from npucall_conformance.stating.parts import Invalid
from npucall_conformance.stating.statement import LEFT_OUT

from . import raw

ASKED = (raw.plan, raw.execute)


@pytest.mark.filterwarnings("ignore::npucall_client.CallWarning")
def test_a_device_plans_and_answers_what_this_process_does(client: Client) -> None:
    wrong, tried = [], 0
    for table, given in calls():
        with suppress(*raw.ABSENT):
            answer = client.execute(table.operator, **given)
            plan = client.plan(table.operator, **given)
            tried += 1
            expected = results(LOCAL.run(table.operator, **given))
            outputs = [(spec.shape, spec.dtype.numpy) for spec in plan.outputs.values()]
            fits = (
                [a.tobytes() for a in results(answer.value)] == [a.tobytes() for a in expected],
                outputs == [(array.shape, array.dtype) for array in expected],
                (plan.kernel_dtype, plan.warnings) == (answer.kernel_dtype, answer.warnings),
                plan.variant == answer.variant == table.operator.variant,
            )
            wrong += [] if all(fits) else [(str(table), fits)]
    assert not wrong
    assert tried > len(ON_A2)


def calls() -> Iterator[tuple[Table, dict[str, Any]]]:
    """An ordinary call of every operator, and one of those that are answered with a warning."""
    for table in ON_A2:
        case, *_ = (*usual(table.statement, FLOAT16), *usual(table.statement, FLOAT))
        tensors, attributes = drawn(case)
        yield table, in_lists({**tensors, **attributes})
        if table.statement.unwarned:
            warned = Maker(table.statement, "warned").case(FLOAT, table.statement.reductions[0])
            tensors, attributes = drawn(warned)
            yield table, {**tensors, **attributes}


def test_a_plan_on_the_reference_needs_no_workspace() -> None:
    assert not [t for t, given in calls() if LOCAL.plan(t.operator, **given).workspace_bytes]


def refusal(client: Client, ask: Any, table: Table, *rows: Invalid) -> NpucallError | None:
    call = table.call(*rows)
    inputs = [p.name for p in table.operator.given]
    try:
        ask(client, table.operator.name, table.operator.variant, dict(call.arguments), inputs)
    except VariantUnavailableError:
        raise
    except NpucallError as error:
        return error
    return None


def told(error: NpucallError | None, table: Table, soc: str) -> Answer | None:
    """The answer, if its status is that of a wrong call, and its details say what was wrong."""
    details = {"operator": table.operator.name, "phase": "prepare", "soc": soc}
    if table.operator.variant:
        details["variant"] = table.operator.variant
    if error is None or error.code is not grpc.StatusCode.INVALID_ARGUMENT:
        return None
    if not details.items() <= error.details.items():
        return None
    return type(error), error.aclnn_status, error.parameters


@pytest.mark.parametrize("every", only(10, 3, 1))
def test_a_device_refuses_defects_as_the_rules_do(client: Client, every: int) -> None:
    soc = client.server_info().server.soc
    wrong, tried = [], 0
    for number, table in enumerate(ON_A2):
        with suppress(*raw.ABSENT):
            for row, ask in product(table.rows()[number % every :: every], ASKED):
                error = refusal(client, ask, table, row)
                tried += 1
                if told(error, table, soc) != answer_of(row):
                    wrong.append((str(table), row.row, ask.__name__, error))
    assert not wrong
    assert every * tried > 40 * len(ON_A2)


def test_an_input_that_is_not_mentioned_counts_as_a_null_and_an_output_does_not(
    client: Client,
) -> None:
    wrong: list[Any] = []
    tried = 0
    for table in ON_A2:
        with suppress(*raw.ABSENT):
            left = [each.name for each in table.operator.outputs if not each.in_place]
            outputs = changed(**dict.fromkeys(left, LEFT_OUT))
            if error := refusal(client, raw.plan, table, outputs):
                wrong.append((str(table), "outputs", error))
            name = next(p.name for p in table.operator.given if not p.optional)
            null = refusal(client, raw.plan, table, changed(**{name: LEFT_OUT}))
            tried += 1
            status = table.statement.null
            if null is None or (null.aclnn_status, null.parameter) != (status, name):
                wrong.append((str(table), name, null))
    assert not wrong
    assert tried >= len(ON_A2) - 2


def test_a_device_refuses_a_label_that_is_no_class_and_serves_on(client: Client) -> None:
    for name, (operator, arguments) in CALLS.items():
        with pytest.raises(ArgumentError, match="labels from 0 to 3, found 4") as caught:
            client.run(operator, **(arguments | with_label(name, 4)))
        assert type(caught.value) is ArgumentError
        assert (caught.value.aclnn_status, caught.value.parameters) == (161002, (labels_of(name),))
        assert caught.value.details["phase"] == "run"
        first, *_ = results(client.run(operator, **arguments))
        assert np.isfinite(first).all()
