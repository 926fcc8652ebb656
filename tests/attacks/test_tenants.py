"""Tenants beside each other: each gets its share, whatever the others ask for."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest

import npucall_client
from npucall_server.access import tokens
from npucall_server.access.identity import Role

from .greedy import all_greedy, greedy
from .honest import honest

if TYPE_CHECKING:
    from pathlib import Path

    from .attacked import Figure, Start

pytestmark = pytest.mark.long

WEIGHTS = {"one": 1, "two": 2, "four": 4}
SECONDS = 10.0
DAY = 86_400.0


class Lab(NamedTuple):
    """Files of a server with tenants, and a token for each of them."""

    flags: tuple[str, ...]
    tokens: dict[str, str]


def lab(folder: Path, **tenants: str) -> Lab:
    """Tenants, by what their tables say; one more is the administrators'."""
    config, file, texts = folder / "settings.toml", folder / "tokens", {}
    tenants["office"] = ""
    config.write_text("".join(f"[tenants.{name}]\n{table}\n" for name, table in tenants.items()))
    file.touch(mode=0o600)
    for name in tenants:
        role = Role.ADMIN if name == "office" else None
        texts[name], token = tokens.new(name, "alice", role, DAY)
        tokens.append(file, token)
    return Lab((f"--config={config}", f"--token-hashes={file}"), texts)


def seconds_of(target: str, token: str) -> dict[str, float]:
    """For which each tenant has held the device."""
    with npucall_client.connect(target, token=token) as client:
        found: dict[str, float] = {}
        for line in client.usage().lines:
            found[line.tenant] = found.get(line.tenant, 0.0) + line.device_seconds
    return found


def test_tenants_have_the_device_by_their_weights(
    start: Start, figure: Figure, tmp_path: Path
) -> None:
    """24 callers of three tenants, with calls of mixed sizes, for ten seconds: within a tenth."""
    tenants = lab(tmp_path, **{name: f"weight = {weight}" for name, weight in WEIGHTS.items()})
    with start(*tenants.flags, "--queue-length=200", limit=2**30) as server, ExitStack() as stack:
        for name in WEIGHTS:
            token = tenants.tokens[name]
            stack.enter_context(all_greedy(server.target, token, "unary", "ctc", callers=4))
        time.sleep(2)
        before = seconds_of(server.target, tenants.tokens["office"])
        time.sleep(SECONDS)
        after = seconds_of(server.target, tenants.tokens["office"])
    spent = {name: after[name] - before[name] for name in WEIGHTS}
    shares = {name: spent[name] / sum(spent.values()) * 7 for name in WEIGHTS}
    figure("shares of weights 1, 2, 4", ", ".join(f"{share:.2f}" for share in shares.values()))
    assert sum(spent.values()) > SECONDS  # it was busy, on more than one lane
    for name, weight in WEIGHTS.items():
        assert shares[name] == pytest.approx(weight, rel=0.1)


@pytest.mark.parametrize("kind", ["unary", "streams", "large", "ctc"])
def test_a_tenant_that_floods_leaves_another_its_answers(
    start: Start,
    figure: Figure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    tenants = lab(tmp_path, quiet="", flood="")
    monkeypatch.setenv("NPUCALL_TOKEN", tenants.tokens["quiet"])
    with start(*tenants.flags, limit=2**30) as server, honest(server.target) as callers:
        time.sleep(SECONDS)
        alone = callers.seen()
        with greedy(server.target, tenants.tokens["flood"], kind, 8):
            callers.seen()
            time.sleep(SECONDS)
            beside = callers.seen()
    ratio = beside.p99 / alone.p99
    figure(f"p99 beside a flood, {kind}", f"{ratio:.1f} times: alone {alone}; beside it {beside}")
    assert alone.all_served
    assert beside.all_served
