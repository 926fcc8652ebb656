"""``check``: a module's gradients of losses and activations, by a device and by torch.

What it answers is here; what compares is the conformance suite, ``npucall_conformance.gradients``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from npucall.texts import missing_distribution
from npucall_client.client import Client

_COLUMNS = ("layer", "gradient of", "dtype", "shape", "of tolerance", "torch's own", "")


@dataclass(frozen=True)
class GradientRow:
    """The gradient of one argument of one call."""

    layer: str
    """Of which module it is, by its name in the one that was checked."""
    function: str
    argument: str
    dtype: str
    shape: tuple[int, ...]
    ratio: float
    """The device's worst error as a share of what is allowed; NaN where it gave nothing."""
    torchs: float
    """The same of torch's own gradient in this dtype."""
    problem: str
    """What is wrong; empty if the gradient passed."""


@dataclass(frozen=True)
class Checked:
    """The result of ``check``; prints as a table."""

    rows: tuple[GradientRow, ...]
    unknown: tuple[str, ...]
    """Layers that are losses or activations without a gradient among the operators."""
    others: Mapping[str, int]
    """How often the module called what else has a gradient, by name."""
    unused: Mapping[str, int]
    """How often it called functions whose results no output depends on, by name."""
    profile: str
    """The profile of tolerances that gradients were judged by."""

    @property
    def passed(self) -> bool:
        """Whether there were gradients, and all of them are near enough."""
        return bool(self.rows) and not any(row.problem for row in self.rows)

    def __str__(self) -> str:
        cells = [_COLUMNS, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        lines += [f"{row.layer or 'module'}: {row.problem}" for row in self.rows if row.problem]
        lines += [f"not checked, for no operator has its gradient: {name}" for name in self.unknown]
        for why, counts in (
            ("npucall has no gradient of them", self.others),
            ("no output depends on them", self.unused),
        ):
            if counts:
                named = ", ".join(f"{name} ({count})" for name, count in counts.items())
                lines.append(f"not checked, for {why}: {named}")
        return "\n".join([*lines, self._verdict()])

    def _verdict(self) -> str:
        failed = sum(1 for row in self.rows if row.problem)
        total = f"{len(self.rows)} gradients by {self.profile}"
        if not self.rows:
            return f"{total}: failed, because the module called nothing to check"
        return f"{failed} of {total} failed" if failed else f"{total}: passed"


def check(
    module: Any,
    inputs: Tensor | Sequence[Any] | Mapping[str, Any],
    client: Client,
    *,
    forward: str = "torch",
    profile: str = "cann-standard",
) -> Checked:
    """Compares the gradients of a module's losses and activations with those of a device.

    The module runs once, by torch. Then each call of a function that ``functional`` has, by a layer
    or by ``torch.nn.functional``, is computed again from the same inputs and the same upstream
    gradient: by ``client``, and by torch in float64, which is the truth. The gradients of the
    module's parameters do not change.

    inputs: a tensor, a sequence of arguments, or arguments by name. If none of them requires a
        gradient, ``check`` takes copies that do, of all that are floating.
    client: a server with an NPU, or with the CPU reference, or ``local:``.
    forward: ``aclnn`` has the device compute the functions too, of which gradients take results.
    profile: of tolerances; those of ``npucall conform --profile``.

    Upstream of the module's outputs is 1 for those of one element, for others random numbers that
    are always the same. What a device refuses is a row with its sentence, and does not pass.

    Raises ImportError without the distribution npucall-conformance.
    """
    if find_spec("npucall_conformance") is None:
        raise ImportError(missing_distribution("npucall_client.torch.check", "conformance"))
    suite = import_module("npucall_conformance.gradients")
    checked: Checked = suite.compare(module, inputs, client, forward=forward, profile=profile)
    return checked


def _cells(row: GradientRow) -> tuple[str, ...]:
    return (
        row.layer or "module",
        f"{row.function}, {row.argument}",
        row.dtype,
        "x".join(map(str, row.shape)) or "()",
        "-" if row.ratio != row.ratio else f"{row.ratio:.3g}",  # NaN
        f"{row.torchs:.3g}",
        "failed" if row.problem else "passed",
    )
