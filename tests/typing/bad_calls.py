"""Calls that a type checker has to refuse. Each line that says so is an error, and no other is:
mypy and pyright report the comments that are not needed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import npucall_client
from npucall.compute.evaluate import compute
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client, aio


def wrong_arguments(client: Client, x: npt.NDArray[np.float32]) -> None:
    client.run(kl_div_backward, x, self=x, targt=x)  # type: ignore[call-arg]
    client.run(kl_div_backward, x, self=x)  # type: ignore[call-arg]
    client.run(kl_div_backward)  # type: ignore[call-overload]
    client.run(kl_div_backward, x, x, x, self=x)  # type: ignore[misc]
    client.run(kl_div_backward, x, x, x, out=x)  # type: ignore[call-arg]
    client.run(kl_div_backward, x, x, x, 1, True, x)  # type: ignore[call-overload]
    client.run(l1_loss_backward, x, x, x, log_target=True)  # type: ignore[call-arg]


def wrong_calls_of_a_pipeline(client: Client, x: npt.NDArray[np.float32]) -> None:
    with client.pipeline() as pipeline:
        pipeline.submit(kl_div_backward, x, self=x, targt=x)  # type: ignore[call-arg]
        pipeline.submit(kl_div_backward, x, self=x, target=x).result().nothing  # type: ignore[attr-defined]  # noqa: B018


def wrong_types(client: Client, x: npt.NDArray[np.float32]) -> None:
    client.run(kl_div_backward, x, self=x, target=1.0)  # type: ignore[arg-type]
    client.run(kl_div_backward, x, self=x, target=[1.0])  # type: ignore[arg-type]
    client.run(kl_div_backward, x, self=x, target="target")  # type: ignore[arg-type]
    client.run(kl_div_backward, x, self=x, target=x, reduction="men")  # type: ignore[arg-type]
    client.run(l1_loss_backward, x, x, x, reduction="batchmean")  # type: ignore[arg-type]
    client.run(kl_div_backward, x, self=x, target=x, reduction=1.0)  # type: ignore[arg-type]
    client.run(kl_div_backward, x, self=x, target=x, log_target="no")  # type: ignore[arg-type]
    client.run(3, x, self=x, target=x)  # type: ignore[call-overload]
    kl_div_backward(x, x, x)  # type: ignore[operator]


def options_in_a_typed_call(client: Client, x: npt.NDArray[np.float32]) -> None:
    client.run(kl_div_backward, x, self=x, target=x, timeout=3.0)  # type: ignore[call-arg]
    client.run(kl_div_backward, x, self=x, target=x, variant="builtin")  # type: ignore[call-arg]
    client.execute(kl_div_backward, x, self=x, target=x, outputs={})  # type: ignore[call-arg]


def other_methods(client: Client, x: npt.NDArray[np.float32]) -> None:
    client.execute(kl_div_backward, x, self=x, targt=x)  # type: ignore[call-arg]
    client.plan(kl_div_backward, x, self=x, targt=x)  # type: ignore[call-arg]
    compute(kl_div_backward, x, self=x, targt=x)  # type: ignore[call-arg]
    client.options(timout=3.0)  # type: ignore[call-arg]
    client.options(timeout="soon")  # type: ignore[arg-type]
    client.run("aclnnAny", timeout="soon", self=x)  # type: ignore[call-overload]
    npucall_client.connect("local:", 3.0)  # type: ignore[call-arg]


def wrong_calls_of_a_session(client: Client, x: npt.NDArray[np.float32]) -> None:
    with client.session() as session, session.program() as program:
        remote = session.put(x)
        session.run(kl_div_backward, remote, self=x, targt=x)  # type: ignore[call-arg]
        program.run(kl_div_backward, remote, self=x, target=1.0)  # type: ignore[arg-type]
        session.put(x, constant="yes")  # type: ignore[arg-type]
        array: npt.NDArray[np.float32] = session.run(kl_div_backward, x, x, x)  # type: ignore[assignment]
        del array
    client.session(lease="long")  # type: ignore[arg-type]


def wrong_results(client: Client, x: npt.NDArray[np.float32]) -> None:
    result: str = client.run(kl_div_backward, x, self=x, target=x)  # type: ignore[assignment]
    output = client.run(kl_div_backward, x, self=x, target=x).out  # type: ignore[attr-defined]
    del result, output


async def wrong_calls_that_are_awaited(client: aio.Client, x: npt.NDArray[np.float32]) -> None:
    await client.run(kl_div_backward, x, self=x, targt=x)  # type: ignore[call-arg]
    await client.plan(kl_div_backward, x, self=x, target=1.0)  # type: ignore[arg-type]
    result: npt.NDArray[np.float32] = client.run(kl_div_backward, x, x, x)  # type: ignore[assignment]
    del result
    aio.connect("local:", 3.0)  # type: ignore[call-arg]
    aio.connect(timeout="soon")  # type: ignore[arg-type]
