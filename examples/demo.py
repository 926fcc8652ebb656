"""The user's job from end to end: gradients computed by a server over gRPC, and checked.

Starts a server, a CPU reference unless ``--device`` names an NPU, waits for its health check, and
runs

(a) the sample program of CANN's pages on every variant of the three operators that it is for;
(b) a knowledge-distillation step: log-softmax of a student against softmax of a teacher, a batch of
    64 by a vocabulary of 32,000, in float32, float16 and bfloat16, with every reduction.

Every result is compared with float64. Exits with 1 if anything is off. ``--target`` asks a server
that runs already, ``--svg FILE`` saves the table as a picture. What a host lacks, such as the other
variants of an operator, is left out.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import npucall_client
from npucall.wire.replies import Timings
from npucall_client.testing import running_server

SEED = 20260801
BATCH, VOCABULARY = 64, 32_000
LOSS_SCALE = 32_768.0
"""Gradient of the loss in float16: without it a mean over two million elements would be zero."""
TARGET_LOSS_SCALE = 256.0
"""The same for gradients of the target: these are not small, with 32,768 they would overflow."""
SAMPLE = "The sample program of CANN's pages: gradients of 2 x 2 numbers"
DISTILLATION = f"A step of knowledge distillation: gradients of {BATCH} x {VOCABULARY:,} numbers"
WIDTH = 80
"""Columns of the tables; in a picture as wide as a page they can be read."""
REDUCTIONS = ["none", "mean", "sum", "batchmean"]
ULPS_ALLOWED = {"float32": 3.0, "float16": 1.0, "bfloat16": 1.0}
"""In ulp of the output's dtype at the size of the terms, since a sum of terms may cancel."""
STEP_ULPS_ALLOWED = 16.0
"""For the variants that round to float16 after every step."""
STEPWISE = ("documented", "community")

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """One call, and what float64 gives for it: the result and the size of its terms."""

    part: str
    operator: str
    variant: str
    reduction: str
    arguments: dict[str, Any]
    truth: Callable[[Array, Array, Array, float], tuple[Array, Array]]
    divisors: dict[str, int]

    def exact(self) -> tuple[Array, Array]:
        """Result and size of terms in float64, from the inputs as they were rounded."""
        g, s, t = (self.arguments[n].astype(np.float64) for n in ("grad_output", "self", "target"))
        factor = 1 / self.divisors.get(self.reduction, 1)
        # Part of their definition: in float16 these multiply by the factor as float16 has it.
        return self.truth(g, s, t, float(np.float16(factor)) if self.stepwise else factor)

    @property
    def stepwise(self) -> bool:
        """Whether every step is rounded to float16."""
        return self.variant in STEPWISE and self.arguments["target"].dtype == np.float16


def kl(g: Array, _: Array, t: Array, factor: float) -> tuple[Array, Array]:
    """Gradient of the KL divergence with respect to its input."""
    exact = -g * t * factor
    return exact, np.abs(exact)


def l1(g: Array, s: Array, t: Array, factor: float) -> tuple[Array, Array]:
    """Gradient of the mean absolute error with respect to its input."""
    exact = np.sign(s - t) * g * factor
    return exact, np.abs(exact)


def kl_target(g: Array, s: Array, t: Array, factor: float) -> tuple[Array, Array]:
    """Gradient of the KL divergence with respect to its target, where all of that is positive."""
    terms = np.abs(g * factor) * (np.abs(np.log(t)) + 1 + np.abs(s))
    return g * factor * (np.log(t) + 1 - s), terms


def cases() -> Iterator[Case]:
    """Everything that the demo runs."""
    sample = np.array([[2, 3], [5, 8]], np.float32)
    yield from _of(SAMPLE, sample, sample, sample, sample, ["none"])
    random = np.random.default_rng(SEED)
    student = _log_softmax(random.normal(0, 2, (BATCH, VOCABULARY)))
    teacher = np.exp(_log_softmax(random.normal(0, 2, (BATCH, VOCABULARY))))
    for dtype in np.float32, np.float16, ml_dtypes.bfloat16:
        scales = (LOSS_SCALE, TARGET_LOSS_SCALE) if dtype is np.float16 else (1.0, 1.0)
        grad, grad_of_target = (np.array(scale, dtype) for scale in scales)
        s, t = student.astype(dtype), teacher.astype(dtype)
        yield from _of(DISTILLATION, grad, grad_of_target, s, t, REDUCTIONS)


def _of(  # noqa: PLR0913
    part: str, g: Array, g_of_target: Array, s: Array, t: Array, reductions: list[str]
) -> Iterator[Case]:
    """Every operator and variant on these arrays, with the reductions that it has."""
    tiny = np.array(np.finfo(np.float16).smallest_subnormal, t.dtype)
    positive = np.maximum(t, tiny)  # so that logarithms are finite in every variant
    mean, batch = {"mean": s.size}, {"mean": s.size, "batchmean": s.shape[0]}
    arguments = {"grad_output": g, "self": s, "target": t}
    targets = {"grad_output": g_of_target, "self": s, "target": positive}
    operators: list[tuple[str, str, Any, dict[str, Array], dict[str, int]]] = [
        ("aclnnKlDivBackward", "", kl, arguments, batch),
        ("aclnnL1LossBackward", "", l1, arguments, mean),
        ("aclnnKlDivTargetBackward", "documented", kl_target, targets, {"mean": s.shape[0]}),
        ("aclnnKlDivTargetBackward", "community", kl_target, targets, mean),
        ("aclnnKlDivTargetBackward", "builtin", kl_target, targets, batch),
    ]
    for name, variant, truth, tensors, divisors in operators:
        for reduction in reductions:
            if reduction != "batchmean" or "batchmean" in divisors:
                yield Case(part, name, variant, reduction, tensors, truth, divisors)


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def ulps(result: Array, exact: Array, terms: Array) -> float:
    """The largest error in ulp of the result's dtype at the size of the terms."""
    info = ml_dtypes.finfo(result.dtype)
    size = np.maximum(terms, float(info.smallest_normal))
    ulp = np.exp2(np.floor(np.log2(size))) * float(info.eps)
    return float(np.max(np.abs(result.astype(np.float64) - exact) / ulp))


@dataclass(frozen=True)
class Answer:
    """What came of a case."""

    timings: Timings
    total_ns: int
    error: float
    """The largest error, in ulp."""
    right: bool


def run(client: npucall_client.Client, case: Case) -> Answer:
    """Runs a case and compares its result with float64."""
    reduction = REDUCTIONS.index(case.reduction)
    result = client.execute(
        case.operator, variant=case.variant, reduction=reduction, **case.arguments
    )
    array = result.value
    exact, terms = case.exact()
    error = ulps(array, exact, terms)
    right = error <= (STEP_ULPS_ALLOWED if case.stepwise else ULPS_ALLOWED[str(array.dtype)])
    right = right and result.variant == case.variant and array.shape == exact.shape
    return Answer(result.timings, result.total_ns, error, right)


def row(case: Case, answers: list[Answer]) -> list[str]:
    """The cells of an operator on a dtype: medians of its calls, and their largest error."""
    run_ns = median([answer.timings.run_ns for answer in answers])
    total_ns = median([answer.total_ns for answer in answers])
    right = all(answer.right for answer in answers)
    return [
        case.operator.removeprefix("aclnn"), case.variant, str(case.arguments["self"].dtype),
        str(len(answers)), f"{run_ns / 1e6:.1f}", f"{total_ns / 1e6:.1f}",
        f"{max(answer.error for answer in answers):.2f}",
        "[green]ok[/green]" if right else "[red bold]OFF[/red bold]",
    ]  # fmt: skip


def healthy(target: str) -> bool:
    """Asks the server as a container's health check does."""
    command = [sys.executable, "-m", "npucall_server", "health", target]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0


def same_row(case: Case) -> tuple[str, str, str]:
    """Cases that differ in their reduction alone have one row."""
    return case.operator, case.variant, str(case.arguments["self"].dtype)


def headings(part: str) -> Table:
    """The table of a part, still empty."""
    table = Table(
        title=part, title_justify="left", box=SIMPLE, show_edge=False, padding=(0, 1, 0, 0)
    )
    for name in "operator", "variant", "dtype":
        table.add_column(name, no_wrap=True)
    for name in "calls", "run\nms", "total\nms", "error\nulp", "":
        table.add_column(name, justify="right", no_wrap=True)
    return table


def phases(spent: dict[str, list[Timings]]) -> Table:
    """Where the time of calls on an NPU went: the medians of each operator."""
    table = Table(title="time on the NPU: medians", box=SIMPLE)
    table.add_column("operator", no_wrap=True)
    for name in "calls", "copy in\nms", "plan\nms", "run\nms", "copy out\nms":
        table.add_column(name, justify="right", no_wrap=True)
    for operator, timings in spent.items():
        rows = ((t.copy_in_ns, t.plan_ns, t.run_ns, t.copy_out_ns) for t in timings)
        columns = zip(*rows, strict=True)
        medians = (f"{median(column) / 1e6:.3f}" for column in columns)
        table.add_row(operator, str(len(timings)), *medians)
    return table


def show(target: str, console: Console) -> list[bool]:
    """Runs every case that the server can run, and tells of each whether it is right."""
    right, spent = list[bool](), defaultdict[str, list[Timings]](list)
    with npucall_client.connect(target) as client:
        info = client.info().server
        console.print(f"server at {target}: device {info.device} as {info.soc}")
        there = {(each.name, each.variant) for each in client.operators() if each.available}
        for part, several in groupby(cases(), lambda case: case.part):
            table = headings(part)
            known = (case for case in several if (case.operator, case.variant) in there)
            for _, alike in groupby(known, same_row):
                calls = list(alike)
                answers = [run(client, case) for case in calls]
                spent[f"{calls[0].operator} {calls[0].variant}"] += [a.timings for a in answers]
                right += [answer.right for answer in answers]
                table.add_row(*row(calls[0], answers))
            console.print(table, "", sep="\n")
    if info.device != "cpu":
        console.print(phases(spent))
    return right


def main() -> int:
    """Runs all cases; 0 if every one of them is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="what the server runs on: cpu, or cann:N")
    parser.add_argument("--target", help="a server that runs already; none is started")
    parser.add_argument("--svg", type=Path, help="save the table as a picture")
    parser.add_argument("flags", nargs="*", help="further flags of the server, behind --")
    options = parser.parse_args()
    console = Console(record=True, width=WIDTH, highlight=False)
    if options.target:
        right, stopped = show(options.target, console), 0
    else:
        flags = "--device", options.device, "--log-calls", "errors", *options.flags
        with running_server(*flags) as server:
            if not healthy(server.target):
                sys.exit(f"the server at {server.target} is not healthy")
            right, stopped = show(server.target, console), server.stop()
    ended = "" if options.target else f"; server stopped with exit code {stopped}"
    console.print(f"{sum(right)} of {len(right)} calls right{ended}.")
    console.print(
        "A row has one call for each reduction that was tried. Times: their median.\n"
        "Error: the largest, in ulp of the dtype at the size of the terms."
    )
    if options.svg is not None:
        picture = console.export_svg(title="make demo")
        # Without the fonts that it would load from the network: any monospaced one will do.
        options.svg.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))
    return 0 if right and all(right) and stopped == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
