"""Tenants beside each other: each gets its share, whatever the others ask for."""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.end_to_end import wire

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_server.access import tokens
from npucall_server.settings.tenants import Role

from . import requests
from .clients import AGAIN_SECONDS, ONE, ZERO, clients, polite
from .servers import Start

pytestmark = pytest.mark.long

WEIGHTS = {"one": 1, "two": 2, "four": 4}
SECONDS, CALLS, PATIENCE = 10.0, 500, 300.0
GREEDY = "tests.attacks.test_tenants"
DAY = 86_400.0


def tenants(folder: Path, **tables: str) -> tuple[list[str], dict[str, str]]:
    """Flags of a server with these tenants and that of its administrators; a token for each."""
    config, file = folder / "settings.toml", folder / "tokens"
    tables["office"] = ""
    config.write_text("".join(f"[tenants.{name}]\n{table}\n" for name, table in tables.items()))
    file.touch(mode=0o600)
    texts = {name: another(folder, name, "alice") for name in tables}
    return [f"--config={config}", f"--token-hashes={file}"], texts


def another(folder: Path, tenant: str, name: str) -> str:
    """The token of one more caller of a tenant."""
    role = Role.ADMIN if tenant == "office" else None
    text, token = tokens.new(tenant, name, role, DAY)
    tokens.append(folder / "tokens", token)
    return text


def usage(target: str, token: str) -> tuple[int, Counter[str]]:
    """How many calls there were, and for how many seconds each tenant has held the device."""
    seconds: Counter[str] = Counter()
    with npucall_client.connect(target, token=token) as client:
        lines = client.usage().lines
    for line in lines:
        seconds[line.tenant] += line.device_seconds  # type: ignore[assignment]
    return sum(line.calls for line in lines), seconds


def test_tenants_have_the_device_by_their_weights(start: Start, tmp_path: Path) -> None:
    """24 callers of three tenants, with calls of two kinds, within a tenth."""
    weights = {name: f"weight = {weight}" for name, weight in WEIGHTS.items()}
    flags, token_of = tenants(tmp_path, **weights)
    with start(*flags, "--queue-length=200", limit=2**30) as server, ExitStack() as stack:
        for name in WEIGHTS:
            for kind in "busy", "ctc":
                asking = clients(GREEDY, server.target, kind, 4, token=token_of[name])
                stack.enter_context(asking)
        time.sleep(2)
        look = partial(usage, server.target, token_of["office"])
        begun, before = look()
        shares: dict[str, float] = {}

        def are_even() -> bool:
            """After many calls, since one that is slow counts for as long as it took."""
            calls, after = look()
            if calls <= begun + CALLS:
                return False
            spent = {name: after[name] - before[name] for name in WEIGHTS}
            shares.update({name: spent[name] / sum(spent.values()) * 7 for name in WEIGHTS})
            return shares == pytest.approx(WEIGHTS, rel=0.1)

        wire.until(are_even, "shares are as weights", PATIENCE)
        server.note(shares)


@pytest.mark.parametrize("kind", ["unary", "streams", "large", "ctc"])
def test_a_tenant_that_floods_leaves_another_its_answers(
    start: Start, tmp_path: Path, kind: str
) -> None:
    flags, token_of = tenants(tmp_path, quiet="", flood="")
    with (
        start(*flags, limit=2**30) as server,
        polite(server.target, token=token_of["quiet"]) as seen,
    ):
        time.sleep(SECONDS)
        alone = seen()
        with clients(GREEDY, server.target, kind, 8, token=token_of["flood"]):
            seen()
            time.sleep(SECONDS)
            beside = seen()
        server.note(f"alone {alone}", f"beside a flood {beside}")
    assert alone.all_served
    assert beside.all_served


_LONG = {"ctc": requests.ctc(steps=1000, labels=100), "busy": requests.BUSY}
"""Calls of few bytes, so that callers ask faster than they are answered, however busy they are."""


def greedy_call(target: str, kind: str) -> Callable[[], object]:
    """What a caller of that kind does again and again."""
    if kind in _LONG:
        metadata = (("authorization", f"Bearer {os.environ['NPUCALL_TOKEN']}"),)
        method = wire.method(grpc.insecure_channel(target), "Execute")
        return lambda: method(_LONG[kind], metadata=metadata)
    client = npucall_client.connect(target, wait=False)
    size = {"unary": 2**18, "large": 2**24, "streams": 2**16}[kind]
    call: Any = l1_loss_backward, ONE, np.ones(size, np.float32), ZERO
    if kind != "streams":
        return lambda: client.run(*call, reduction=2)

    def many() -> None:
        with client.pipeline() as pipeline:
            for future in [pipeline.submit(*call, reduction=2) for _ in range(64)]:
                future.result()

    return many


def greedy(target: str, kind: str, callers: str) -> None:
    """Callers take all that the server gives; those who compute as if on other machines."""
    if kind not in _LONG:
        os.nice(19)

    def repeat(call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except (NpucallError, grpc.RpcError) as error:
                code: Any = error.code
                if (code() if callable(code) else code).name != "RESOURCE_EXHAUSTED":
                    raise
                time.sleep(AGAIN_SECONDS)

    for _ in range(int(callers)):
        threading.Thread(target=repeat, args=(greedy_call(target, kind),), daemon=True).start()
    print("begun", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    greedy(*sys.argv[1:])
