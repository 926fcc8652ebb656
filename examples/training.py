"""Trains a model with the operators of a server beside torch: what the two examples share."""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from curves import picture

import npucall_client
from npucall_client.testing import running_server
from npucall_client.torch import WireWarning, convert, functional

Batch = tuple[torch.Tensor, torch.Tensor]
RELATIVE, ABSOLUTE = 2.0**-10, 2.0**-16
"""What CANN's precision standard allows an operator of float32."""
NEAR = 1e-5
"""From 0; what rounding may move a number of about 1 by, some layers deep."""
APART = 0.02
"""How far the final losses of two runs may be apart, as a share."""
LAST = 10
"""Steps whose mean is the final loss."""


@dataclass
class Run:
    """What a run of some steps saw."""

    losses: list[float] = field(default_factory=list)
    worst: float = 0.0
    """The largest error of a loss or gradient, as a share of what is allowed."""
    seconds: float = 0.0

    @property
    def final(self) -> float:
        """The mean of the last losses."""
        last = self.losses[-LAST:]
        return sum(last) / len(last)


class Sides:
    """Has the ReLUs of one model decide as those of another did.

    A number next to 0 may be on either side of it, by rounding alone, and each side has another
    gradient. Raises ArithmeticError where more than rounding lies between the two.
    """

    def __init__(self, first: torch.nn.Module, second: torch.nn.Module) -> None:
        self._open: list[torch.Tensor] = []
        for hook, model in (self._note, first), (self._repeat, second):
            for module in model.modules():
                if isinstance(module, torch.nn.ReLU):
                    module.register_forward_hook(hook)

    def _note(self, module: Any, given: Any, result: torch.Tensor) -> None:
        del module, given
        self._open.append(result.detach() > 0)

    def _repeat(self, module: Any, given: tuple[torch.Tensor], result: Any) -> torch.Tensor:
        del module, result
        (x,), is_open = given, self._open.pop(0)
        moved = x.detach()[is_open != (x > 0)].abs()
        if moved.numel() and moved.max() > NEAR:
            raise ArithmeticError(f"relu: {moved.max()} is on the other side of 0")
        return x * is_open


def train(
    model: torch.nn.Module,
    batches: list[Batch],
    rate: float,
    beside: torch.nn.Module | None = None,
) -> Run:
    """Trains by the model's own gradients.

    ``beside``: a copy of the model that torch computes. At each step it gets the same weights, and
    its loss and gradients are compared.
    """
    run = Run()
    if beside is not None:
        Sides(model, beside)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for batch in batches:
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        run.seconds += time.perf_counter() - begin
        if beside is not None:
            run.worst = max(run.worst, _error(model, beside, loss, batch))
        optimizer.step()
        run.losses.append(loss.item())
    return run


def _error(
    model: torch.nn.Module, beside: torch.nn.Module, loss: torch.Tensor, batch: Batch
) -> float:
    """The largest error beside torch from the same weights, as a share of what is allowed."""
    ours, theirs = list(model.parameters()), list(beside.parameters())
    with torch.no_grad():
        for mine, other in zip(ours, theirs, strict=True):
            other.copy_(mine)
    expected = beside(*batch)
    gradients = torch.autograd.grad(expected, theirs)
    pairs = [(loss.detach(), expected.detach())]
    pairs += [(mine.grad, other) for mine, other in zip(ours, gradients, strict=True)]
    return max(
        float(((mine - other).abs() / (ABSOLUTE + RELATIVE * other.abs())).max())
        for mine, other in pairs
    )


def main(
    doc: str, make: Callable[[], torch.nn.Module], draw: Callable[[int], Any], **of: Any
) -> int:
    """Trains by torch and by a server, compares, prints, draws. 0 if all is as it should be."""
    given = _arguments(doc)
    torch.set_num_threads(1)  # more are slower for tensors so small, and the server computes too
    batches = draw(given.steps)
    warnings.simplefilter("ignore", WireWarning)  # tensors are small, and the server is near
    model = make()
    torchs = train(copy.deepcopy(model), batches, of["rate"])
    with ExitStack() as opened:
        started = ("--device", given.device)
        target = given.target or opened.enter_context(running_server(*started)).target
        client = opened.enter_context(npucall_client.connect(target))
        session = opened.enter_context(client.session())
        before = _travelled(client)
        served = convert(copy.deepcopy(model), functional(client, session=session))
        servers = train(served, batches, of["rate"], copy.deepcopy(model))
        travelled = [now - then for now, then in zip(_travelled(client), before, strict=True)]
    _report(model, target, torchs, servers, [each / given.steps for each in travelled])
    if given.picture:
        text = picture(torchs.losses, servers.losses, of["loss"])
        given.picture.write_text(text, encoding="utf-8")
    apart = abs(servers.final / torchs.final - 1)
    falls = servers.losses[-1] < servers.losses[0]
    faults = {
        "a loss or gradient is beyond the tolerance": servers.worst > 1,
        f"the final losses are more than {APART:.0%} apart": apart > APART,
        "the last loss is not below the first: take more steps": not falls,
    }
    for fault in filter(faults.get, faults):
        print(f"training: {fault}", file=sys.stderr)
    return int(any(faults.values()))


def _arguments(doc: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--target", help="a server, or local:; without it a server of its own")
    parser.add_argument("--device", default="cpu", help="of the server that is started: cann:0")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="saves both curves as an SVG")
    return parser.parse_args()


def _travelled(client: npucall_client.Client) -> tuple[int, int, int]:
    """Calls, bytes to the server and bytes back, so far."""
    lines = client.usage().lines
    return (
        sum(line.calls for line in lines),
        sum(line.request_bytes for line in lines),
        sum(line.response_bytes for line in lines),
    )


def _report(
    model: torch.nn.Module, target: str, torchs: Run, servers: Run, travelled: list[float]
) -> None:
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{count:,} parameters, {len(servers.losses)} steps on {target}")
    for step in sorted({0, 9, 49, 99, len(servers.losses) - 1}):
        if step < len(servers.losses):
            mine, other = servers.losses[step], torchs.losses[step]
            print(f"step {step + 1:3}: loss {other:.4f} by torch, {mine:.4f} by the server")
    print(
        f"final loss {torchs.final:.4f} and {servers.final:.4f}, "
        f"{abs(servers.final / torchs.final - 1):.2%} apart"
    )
    print(f"from the same weights: at most {servers.worst:.2g} of the tolerance off, at each step")
    calls, up, down = travelled
    print(
        f"a step: {calls:.0f} calls, {up / 2**20:.2f} MiB to the server, {down / 2**20:.2f} MiB "
        f"back, {servers.seconds / len(servers.losses) * 1e3:.0f} ms "
        f"(torch {torchs.seconds / len(torchs.losses) * 1e3:.0f} ms)"
    )
