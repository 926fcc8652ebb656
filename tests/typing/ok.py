"""Calls that a type checker has to accept, and the types that it has to find."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import npucall_client
from npucall.compute.evaluate import compute
from npucall.operators.cross_entropy_loss import cross_entropy_loss
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.operators.prelu_backward import prelu_backward
from npucall_client import (
    Client,
    Empty,
    Plan,
    Program,
    ProgramPlan,
    Remote,
    Result,
    Session,
    aio,
)


def typed_calls(
    client: Client,
    single: npt.NDArray[np.float32],
    half: npt.NDArray[np.float16],
    unknown: npt.NDArray[Any],
    number: np.float32,
) -> None:
    result = client.run(kl_div_backward, single, self=half, target=unknown)
    assert_type(result, npt.NDArray[Any])
    client.run(kl_div_backward, single, single, single, 2, True)
    client.run(kl_div_backward, grad_output=number, self=unknown, target=half, reduction=0)
    client.run(kl_div_backward, single, self=single, target=single, log_target=True)
    client.run(l1_loss_backward, single, self=half, target=unknown, reduction=1)
    client.run(l1_loss_backward, single, self=half, target=unknown, reduction="mean")
    client.run(kl_div_backward, single, single, single, "batchmean")
    assert_type(client.execute(l1_loss_backward, single, single, single), Result)
    assert_type(client.plan(l1_loss_backward, single, single, single), Plan)
    assert_type(compute(l1_loss_backward, single, single, single), npt.NDArray[Any])


def results_are_arrays(client: Client, single: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    result: npt.NDArray[np.float32] = client.run(kl_div_backward, single, single, single)
    return result[0] + result.sum()


def options(client: Client, single: npt.NDArray[np.float32]) -> None:
    with_options = client.options(timeout=3.0, outputs={"out": single}, request_id="mine")
    assert_type(with_options, Client)
    with_options.run(kl_div_backward, single, self=single, target=single)


def calls_by_name(client: Client, single: npt.NDArray[np.float32]) -> None:
    assert_type(client.run("aclnnAny", self=single, x=[1], flag=True), Any)
    client.run("aclnnAny", self=None, variant="builtin", outputs={"out": None}, timeout=3.0)
    assert_type(client.execute("aclnnAny", self=single, timeout=3.0), Result)
    assert_type(client.plan("aclnnAny", self=single, variant="x"), Plan)


def sessions(client: Client, single: npt.NDArray[np.float32]) -> None:
    with client.session(lease=10.0, budget=2**20, refill=True) as session:
        assert_type(session, Session)
        teacher = session.put(single, constant=True, timeout=3.0)
        assert_type(teacher, Remote)
        result = session.run(kl_div_backward, single, self=teacher, target=single)
        assert_type(result, Remote)
        assert_type(session.run(prelu_backward, result, single, single), tuple[Remote, Remote])
        loss, *_ = session.run(cross_entropy_loss, result, teacher)
        assert_type(loss, Remote)
        assert_type(session.run("aclnnAny", self=teacher, outputs={"out": None}), Any)
        assert_type(result.numpy(), npt.NDArray[Any])
        assert_type(client.run(kl_div_backward, single, result, teacher), npt.NDArray[Any])
        with session.program(timeout=3.0) as program:
            assert_type(program, Program)
            assert_type(program.run(l1_loss_backward, result, teacher, single), Remote)
            assert_type(program.plan(), ProgramPlan)
        outputs = {"out": Empty((2, 3), np.float16)}
        assert_type(session.options(outputs=outputs, request_id="mine"), Session)
        session.release([teacher, result])


async def awaited(client: aio.Client, single: npt.NDArray[np.float32]) -> None:
    assert_type(
        await client.run(kl_div_backward, single, self=single, target=single), npt.NDArray[Any]
    )
    assert_type(await client.run("aclnnAny", self=single, timeout=3.0), Any)
    assert_type(await client.execute("aclnnAny", self=single), Result)
    assert_type(await client.plan(kl_div_backward, single, self=single, target=single), Plan)
    async with client.pipeline() as pipeline:
        call = await pipeline.submit(kl_div_backward, single, self=single, target=single)
        assert_type(await call, npt.NDArray[Any])
        assert_type(await call.answer(), Result)
    async with client.session() as session:
        assert_type(session, aio.Session)
        teacher = await session.put(single)
        assert_type(teacher, aio.Remote)
        assert_type(
            await session.run(prelu_backward, teacher, single, single),
            tuple[aio.Remote, aio.Remote],
        )
        async with session.program() as program:
            assert_type(await program.run(l1_loss_backward, teacher, teacher, single), aio.Remote)
        assert_type(await teacher.numpy(), npt.NDArray[Any])
    async with aio.connect("local:", soc="Ascend910B1") as connected:
        assert_type(connected, aio.Client)
    assert_type(await aio.connect(timeout=3.0), aio.Client)


def connections() -> None:
    with npucall_client.connect("local:", soc="Ascend910B1") as client:
        assert_type(client, Client)
    npucall_client.connect(timeout=3.0, connect_timeout=1.0, variant="builtin").close()
    folder = Path("tls")
    options = npucall_client.Options(certificate=folder / "me.pem", key=f"{folder}/me.key")
    npucall_client.connect(ca=folder / "ca.pem", options=options).close()


def what_a_server_says(client: Client) -> tuple[str, list[int], list[str]]:
    lines, listed = client.usage().lines, client.operators()
    return client.info().server.soc, [each.calls for each in lines], [each.name for each in listed]
