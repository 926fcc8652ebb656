"""A GPT of two blocks learns the text of this repository's documents, byte by byte, on a server.

``python examples/train_gpt.py [--target TARGET] [--steps N] [--picture FILE]``. The forward and the
backward of every layer are operators of the server; torch adds residuals, and updates the weights.
Beside it torch trains the same model by itself, and at each step computes the loss and the
gradients from the server's weights. Ends with 1 if one of them is outside of the operators'
tolerances, or if the final losses are more than 2 % apart. Needs PyTorch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody calls it
from training import Batch, main

DOCS = Path(__file__).resolve().parent.parent / "docs"
BYTES, WIDTH, HEADS, BLOCKS = 256, 64, 4, 2
CONTEXT, BATCH, RATE = 64, 8, 3e-3


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a normalisation, with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, context, width) to the same."""
        heads = self.into(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*heads.contiguous(), is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class Gpt(nn.Module):
    """Blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(BYTES, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES)
        for table in self.tokens, self.places:
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, text: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy of the bytes that follow."""
        x = self.tokens(text) + self.places(torch.arange(text.shape[1]))
        said = self.head(self.last(self.blocks(x)))
        return F.cross_entropy(said.flatten(0, 1), following.flatten())


def make() -> Gpt:
    """The model, the same each time."""
    torch.manual_seed(1)
    return Gpt()


def draw(steps: int) -> list[Batch]:
    """A batch of pieces of the text for each step."""
    text = torch.tensor(list(b"".join(path.read_bytes() for path in sorted(DOCS.glob("*.md")))))
    generator = torch.Generator().manual_seed(2)
    starts = torch.randint(len(text) - CONTEXT, (steps, BATCH), generator=generator)
    pieces = text[starts.unsqueeze(2) + torch.arange(CONTEXT + 1)]
    return [(piece[:, :-1], piece[:, 1:]) for piece in pieces]


if __name__ == "__main__":
    assert __doc__ is not None
    sys.exit(main(__doc__, make, draw, rate=RATE, loss="cross entropy of a byte"))
