"""Reports to be shown: one with everything in it, one whose texts are hostile."""

import math
from dataclasses import replace
from typing import Any

from npucall_conformance.judging.check import Sided
from npucall_conformance.reporting.report import CaseOutcome, JudgedServer, Report, Wrong

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>]]>&amp;[bold]a[/]\x1b[31m\x00\ud800"
)
"""What a server that one does not trust could send as a message or a version."""

SERVER = JudgedServer(
    "npu-7:50051", "cann:0", "Ascend910B1", "Ascend910B", "0.1.0", "c0ffee", "community",
    ("aclnnKlDivBackward", "aclnnKlDivTargetBackward.community"),
)  # fmt: skip
KL, TARGET = "aclnnKlDivBackward", "aclnnKlDivTargetBackward"


def outcome(case: str, dtype: str = "f32", **fields: object) -> CaseOutcome:
    title, block, _ = case.split("/")
    operator, _, variant = title.partition(".")
    blank = CaseOutcome(case, operator, variant, block, dtype, "passed", total_ns=2_000_000)
    return replace(blank, **fields)  # type: ignore[arg-type]


PASSED = outcome(f"{KL}/grid/f32-none-4x6-0001", ulp=0.5, ratio=0.25)
WORSE = outcome(f"{KL}/grid/f32-mean-4x6-0002", ulp=0.4, ratio=0.75)
OUTSIDE = outcome(
    f"{KL}/broadcast/f16-mean-3x4-0003", "f16", status="failed",
    problems=("out: too large", "also"),
    ulp=math.inf, ratio=math.inf,
)  # fmt: skip
WRONG_CODE = outcome(
    f"{KL}/invalid/f32-null-self-0004", status="failed", problems=("expected status 161001",)
)
SKIPPED = outcome(
    f"{TARGET}.community/grid/bf16-none-4x6-0005", "bf16", status="skipped", problems=("no BF16",)
)
SIDED = outcome(
    f"{TARGET}.community/documents/f32-contradiction-8-0006",
    contradiction=Sided(
        8, "divisor of mean", ("README", "kernel"), ("kernel",), "kernel", "[1.0, 2.0]"
    ),
)
NEITHER = outcome(
    f"{KL}/documents/f32-contradiction-7-0007", status="failed", problems=("sides with nobody",),
    contradiction=Sided(7, "divisor of batchmean", ("source", "torch"), (), "source", "[0.0]"),
)  # fmt: skip

REPORT = Report(
    "cann-standard", 7, SERVER, started="2026-11-20T14:05:57+00:00", seconds=1.25,
    versions={"numpy": "2.4"}, unstated=("aclnnPreluBackward",),
    outcomes=[PASSED, WORSE, OUTSIDE, WRONG_CODE, SKIPPED, SIDED, NEITHER],
)  # fmt: skip


def fine() -> Report:
    """Nothing failed."""
    return replace(REPORT, outcomes=[PASSED, WORSE, SKIPPED, SIDED])


def with_numbers() -> Report:
    """One case failed by its numbers."""
    wrong = Wrong("out", "all 14 elements", (2, 3), 0.5, 1.5, {"self": -1.0}, {"reduction": "1"})
    return replace(REPORT, outcomes=[PASSED, replace(OUTSIDE, wrong=wrong)])


def hostile() -> Report:
    """Every text that a server or a statement could choose is hostile."""
    server = replace(
        SERVER, target=HOSTILE, device=HOSTILE, soc=HOSTILE, product=HOSTILE, version=HOSTILE,
        instance=HOSTILE, default_variant=HOSTILE, variants=(HOSTILE,),
    )  # fmt: skip
    sides = Sided(1, HOSTILE, (HOSTILE, "b"), (HOSTILE,), HOSTILE, HOSTILE)
    names: dict[str, Any] = dict.fromkeys(("operator", "variant", "block", "dtype"), HOSTILE)
    wrong = Wrong(HOSTILE, HOSTILE, (1,), 0.5, 1.5, {HOSTILE: 1.0}, {HOSTILE: HOSTILE})
    failed = replace(
        OUTSIDE, case=HOSTILE, problems=(HOSTILE,), findings=(HOSTILE,),
        wrong=wrong, **names,
    )  # fmt: skip
    skipped = replace(SKIPPED, case=HOSTILE, problems=(HOSTILE,), **names)
    sided = replace(SIDED, case=HOSTILE, contradiction=sides, **names)
    return Report(
        HOSTILE, 0, server, server, started=HOSTILE, versions={HOSTILE: HOSTILE},
        outcomes=[failed, skipped, sided], unstated=(HOSTILE,),
    )  # fmt: skip
