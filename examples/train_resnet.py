"""A small residual network learns handwritten digits on a server.

``python examples/train_resnet.py [--target TARGET] [--steps N] [--picture FILE]``. The digits are
those of 8 x 8 pixels that scikit-learn ships. Convolutions, normalisations, activations, the head
and the loss are operators of the server, forward and backward; torch adds residuals, and updates
the weights. Beside it torch trains the same model by itself, and at each step computes the loss and
the gradients from the server's weights. Ends with 1 if one of them is outside of the operators'
tolerances, or if the final losses are more than 2 % apart. Needs PyTorch and scikit-learn.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody calls it
from training import Batch, main

CHANNELS, DIGITS, WHITE = 16, 10, 16.0
BATCH, RATE = 64, 5e-4


class Residual(nn.Module):
    """Two convolutions, and beside them one of a pixel."""

    def __init__(self, taken: int, given: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(taken, given, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(given, given, 3, 1, 1, bias=False)
        self.beside = nn.Conv2d(taken, given, 1, stride)
        self.norms = nn.ModuleList(nn.BatchNorm2d(given) for _ in range(2))
        self.inner, self.outer = nn.ReLU(), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, taken, H, W) to (N, given, H / stride, W / stride)."""
        inner = self.inner(self.norms[0](self.first(x)))
        return self.outer(self.norms[1](self.second(inner)) + self.beside(x))


class ResNet(nn.Module):
    """Two residual blocks between a convolution and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm = nn.Conv2d(1, CHANNELS, 3, 1, 1, bias=False), nn.BatchNorm2d(CHANNELS)
        self.blocks = nn.Sequential(
            Residual(CHANNELS, CHANNELS, 1), Residual(CHANNELS, 2 * CHANNELS, 2)
        )
        self.relu, self.head = nn.ReLU(), nn.Linear(2 * CHANNELS, DIGITS)

    def forward(self, images: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy of the digits."""
        x = self.blocks(self.relu(self.norm(self.into(images))))
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), digits)


def make() -> ResNet:
    """The model, the same each time."""
    torch.manual_seed(1)
    return ResNet()


def draw(steps: int) -> list[Batch]:
    """A batch of digits for each step."""
    found = load_digits()
    images = torch.tensor(found.images / WHITE, dtype=torch.float32).unsqueeze(1)
    digits = torch.tensor(found.target)
    generator = torch.Generator().manual_seed(2)
    chosen = torch.randint(len(digits), (steps, BATCH), generator=generator)
    return [(images[row], digits[row]) for row in chosen]


if __name__ == "__main__":
    assert __doc__ is not None
    sys.exit(main(__doc__, make, draw, rate=RATE, loss="cross entropy of a digit"))
