"""A small student learns from a teacher; the gradients come from a server.

``python examples/distill.py [TARGET] [--picture FILE]``: a server, ``local:``, or without a target
a server of its own. The student is trained twice from the same start: with the gradients of torch,
and with those of the server. Both losses are printed, and drawn as an SVG. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from curves import picture
from torch import nn

import npucall_client
from npucall_client.testing import running_server
from npucall_client.torch import WireWarning, check, functional

STEPS = 60
TEMPERATURE = 2.0
APART = 1e-4
"""How far the losses may be apart: sums in another order, 60 steps long."""
POINTS = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))


class Lesson(nn.Module):
    """A student of two layers, and its loss; ``F`` has the functions, of torch or of npucall."""

    def __init__(self, F: Any) -> None:  # noqa: N803  # as everybody calls it
        super().__init__()
        self.F = F
        self.hidden, self.out = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """KL divergence from what the teacher says to what the student says."""
        logits = self.out(self.F.gelu(self.hidden(x)))
        said = self.F.log_softmax(logits / TEMPERATURE, dim=1)
        return self.F.kl_div(said, target, reduction="batchmean") * TEMPERATURE**2


def teacher() -> torch.Tensor:
    """What the teacher says of all points: shares of 5 classes."""
    torch.manual_seed(2)
    large = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 5))
    with torch.no_grad():
        return torch.softmax(large(POINTS) * 4 / TEMPERATURE, 1)


def train(F: Any) -> list[float]:  # noqa: N803
    """Trains a student, and answers its loss at each step."""
    torch.manual_seed(3)
    lesson, target = Lesson(F), teacher()
    optimizer = torch.optim.Adam(lesson.parameters(), lr=0.03)
    curve = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = lesson(POINTS, target)
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    return curve


def main() -> int:
    """Trains, compares, prints, draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", WireWarning)  # tensors are small, and the server is near
    torchs = train(nn.functional)
    with ExitStack() as opened:
        target = given.target or opened.enter_context(running_server()).target
        client = opened.enter_context(npucall_client.connect(target))
        session = opened.enter_context(client.session())
        start = time.perf_counter()
        servers = train(functional(client, session=session))
        seconds = time.perf_counter() - start
        print(check(Lesson(nn.functional), (POINTS, teacher()), client))
    for step in 0, 9, 29, STEPS - 1:
        print(
            f"step {step + 1:2}: loss {torchs[step]:.5f} by torch, {servers[step]:.5f} by {target}"
        )
    apart = max(abs(mine - other) for mine, other in zip(servers, torchs, strict=True))
    print(f"{STEPS} steps in {seconds:.1f} s, at most {apart:.1e} apart")
    if given.picture:
        given.picture.write_text(picture(torchs, servers, "KL divergence"), encoding="utf-8")
    return 0 if apart <= APART and servers[-1] < servers[0] / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
