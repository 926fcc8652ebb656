"""What a client adds to an error of float64, and the warnings of calls."""

import asyncio
import linecache
import warnings
from typing import Any

import numpy as np
import pytest
from tests.client.calls.test_names_and_words import ways
from tests.client.conftest import EVERY_CLIENT
from tests.rows import each

import npucall_client
import npucall_client.aio
from npucall.errors import DTypeError, NpucallError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss import l1_loss
from npucall.operators.nll_loss import nll_loss
from npucall_client import Client

ONES = np.ones((2, 3), np.float32)
DOUBLES = np.ones((2, 3))
HINT = "; NumPy makes float64 unless it is told otherwise; give "


@EVERY_CLIENT
def test_float64_is_told_to_be_float32_on_every_way(client: Client) -> None:
    for way in ways(client):
        with pytest.raises(DTypeError) as caught:
            way(kl_div_backward, ONES, ONES, DOUBLES)
        message = f"found DOUBLE{HINT}target.astype(numpy.float32)"
        assert str(caught.value).endswith(message)
        assert str(caught.value).count(HINT) == 1


BOTH = "self.astype(numpy.float32) and target.astype(numpy.float32)"


@each(
    ("call", "said"),
    [
        ((l1_loss, DOUBLES, DOUBLES), HINT + BOTH),
        ((l1_loss, ONES, DOUBLES), HINT + "target.astype(numpy.float32)"),
        (
            (nll_loss, ONES, np.ones(2), np.ones(3, np.float32)),
            "target: expected INT64, INT32 or UINT8, found DOUBLE",
        ),
        ((kl_div_backward, ONES, ONES, np.ones((2, 3), np.int32)), "found INT32"),
    ],
)
def test_float64_is_told_where_float32_would_do(client: Client, call: Any, said: str) -> None:
    with pytest.raises(DTypeError) as caught:
        client.run(*call)
    assert str(caught.value).endswith(said)


@pytest.mark.torch
def test_a_tensor_of_float64_is_told_what_torch_calls_it(client: Client) -> None:
    torch = pytest.importorskip("torch")
    doubles: Any = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(DTypeError) as caught:
        client.run(kl_div_backward, ONES, ONES, doubles)
    assert str(caught.value).endswith("found DOUBLE; give target.float()")


def test_float64_is_told_nothing_where_it_is_not_to_blame(client: Client) -> None:
    with npucall_client.connect("local:", soc="Ascend310") as other:
        with pytest.raises(DTypeError, match="expected a product that has") as refused:
            other.run(kl_div_backward, DOUBLES, DOUBLES, DOUBLES)
        assert HINT not in str(refused.value)
    assert client.run("aclnnExp", np.zeros(2)).dtype == np.float64
    with pytest.raises(NpucallError) as caught:
        client.run("aclnnExp", np.zeros((1,) * 9))
    assert HINT not in str(caught.value)


GIVEN = (kl_div_backward, ONES, ONES, ONES)
ODD: dict[str, Any] = {"reduction": 7}
WARNING = r"reduction: 7 is not one of \(0, 1, 2, 3\); the device scales as for none"


def lines_of(caught: list[warnings.WarningMessage]) -> list[str]:
    """What stands where warnings point."""
    assert {each.category for each in caught} == {npucall_client.CallWarning}
    return [linecache.getline(each.filename, each.lineno).strip() for each in caught]


@EVERY_CLIENT
def test_run_warns_of_what_the_reply_warns_of_which_others_answer(client: Client) -> None:
    for called in kl_div_backward, "aclnnKlDivBackward":
        with pytest.warns(npucall_client.CallWarning, match=WARNING):
            client.run(called, ONES, ONES, ONES, **ODD)  # type: ignore[arg-type]
    assert issubclass(npucall_client.CallWarning, UserWarning)
    client.run(*GIVEN)  # a warning would be an error here
    assert "reduction: 7" in client.execute(*GIVEN, **ODD).warnings[0]
    assert "reduction: 7" in client.plan(*GIVEN, **ODD).warnings[0]


def test_a_warning_points_at_the_line_that_made_the_call() -> None:
    with npucall_client.connect("local:") as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.run(*GIVEN, **ODD)
        with client.session() as session:
            session.run(*GIVEN, **ODD)
            with session.program() as program:
                kept = program.run(*GIVEN, **ODD)
        with client.pipeline() as pipeline:
            pending = pipeline.submit(*GIVEN, **ODD)
        pending.answer()
        pending.result()
        del kept
    assert lines_of(caught) == [
        "client.run(*GIVEN, **ODD)",
        "session.run(*GIVEN, **ODD)",
        "with session.program() as program:",
        "pending.result()",
    ]


def test_a_warning_points_at_the_line_that_awaited_the_call() -> None:
    async def run() -> None:
        async with npucall_client.aio.connect("local:") as client:
            await client.run(*GIVEN, **ODD)
            async with client.session() as session:
                await session.run(*GIVEN, **ODD)
            async with client.pipeline() as pipeline:
                pending = await pipeline.submit(*GIVEN, **ODD)
            assert "reduction: 7" in (await pending.answer()).warnings[0]
            await pending

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(run())
    assert lines_of(caught) == [
        "await client.run(*GIVEN, **ODD)",
        "await session.run(*GIVEN, **ODD)",
        "await pending",
    ]
