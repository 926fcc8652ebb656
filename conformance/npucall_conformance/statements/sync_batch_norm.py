"""Batch normalisation over several processes [src:sync-batch-norm]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, FLOATS
from npucall.errors import AclnnStatus, ArgumentError, ArgumentMissingError, FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements.batch_norm import COMMON as OF_CHANNELS
from npucall_conformance.statements.batch_norm import back, channels, count
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
NEW = ("Ascend910B", "Ascend910_93", "Ascend950")
TAKES = {**FLOATS_WITH_BFLOAT16, **on(("Ascend910",), FLOAT, FLOAT16)}
TAKES = {soc: TAKES[soc] for soc in (*NEW, "Ascend910")}
COMMON: dict[str, Any] = {
    **{name: value for name, value in OF_CHANNELS.items() if name != "formats_by_rank"},
    "takes": TAKES,
    "kernel": lambda _: FLOAT,
}
OWN: dict[str, Any] = {"dtypes": (FLOAT,)}
PRIVATE = {"format": Format.FRACTAL_NZ}
NO_TORCH = "torch_npu calls it in SyncBatchNorm alone"
EMPTY = ((0, 3), (2, 3, 0))


def of_channel(base: Shape, *names: str) -> dict[str, Shape]:
    return dict.fromkeys(names, base[1:2])


def given(k: Arguments, name: str, none: float) -> Any:
    return np.full(count(k), none) if k[name] is None else k[name]


def private(*names: str) -> Invalid:
    return Invalid("private", dict.fromkeys(names, PRIVATE), names[:1], FormatError)


def wrong_channels(*names: str) -> tuple[Invalid, ...]:
    """Tensors of channels with other shapes."""
    return tuple(row for name in names for row in defects.shapes(name, (6,), (1, 4)))


def wrong_input(*others: str) -> tuple[Invalid, ...]:
    """The input has another rank, or no channels."""
    return (*defects.shapes("input", (4,)), no_channels("input", *others))


def no_channels(*names: str) -> Invalid:
    return Invalid("no-channels", {n: {"shape": (6, 0)} for n in names}, names[:1],
                   ShapeError)  # fmt: skip


GATHERED = ("mean_all", "invstd_all")
RUNNING = ("running_mean", "running_var")


def gathered_shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    """As many processes as there are items."""
    return {"input": base, "mean": base[:2], "invstd": base[:2], "counts": base[:1],
            **of_channel(base, *RUNNING)}  # fmt: skip


def counted(draw: Draw) -> Any:
    return draw.random.integers(1, 9, draw.shape).astype(np.float64)


def gather_loops(k: Arguments) -> dict[str, Any]:
    n = k["counts"].tolist()
    found: dict[str, list[float]] = {name: [] for name in (*RUNNING, *GATHERED)}
    total = sum(n)
    for channel in range(k["mean"].shape[1]):
        means, deviations = k["mean"][:, channel].tolist(), k["invstd"][:, channel].tolist()
        if not n:
            found["mean_all"].append(0.0)
            found["invstd_all"].append(NAN)
            continue
        own = reals.total([a * b for a, b in zip(n, means, strict=True)]) / total
        around = reals.total([
            a * (reals.divide(1.0, s * s) - k["eps"] + (m - own) * (m - own))
            for a, m, s in zip(n, means, deviations, strict=True)
        ])  # fmt: skip
        variance = around / total + k["eps"]
        found["mean_all"].append(own)
        found["invstd_all"].append(reals.divide(1.0, math.sqrt(variance)) if variance >= 0 else NAN)
        new = (own, reals.divide(around, total - 1))
        for name, value in zip(RUNNING, new, strict=True):
            if k[name] is not None:
                before = float(k[name][channel])
                found[name].append((1 - k["momentum"]) * before + k["momentum"] * value)
    return {name: values or given_back(k, name) for name, values in found.items()}


def given_back(k: Arguments, name: str) -> Any:
    return None if k.values.get(name) is None else k[name]


def gather_arrays(k: Arguments) -> dict[str, Any]:
    n = k["counts"][:, None]
    total = n.sum()
    if not len(n):
        zeros = np.zeros(count(k))
        kept = {name: Terms(given(k, name, 0)) for name in RUNNING}
        return {**kept, "mean_all": Terms(zeros), "invstd_all": Terms(zeros + NAN)}
    own, size = (n * k["mean"]).sum(0) / total, (n * np.abs(k["mean"])).sum(0) / total
    each = k["invstd"] ** -2.0
    around = (n * (each - k["eps"] + (k["mean"] - own) ** 2)).sum(0)
    wide = (n * (each + abs(k["eps"]) + (np.abs(k["mean"]) + size) ** 2)).sum(0)
    variance = around / total + k["eps"]
    inverse, m = variance**-0.5, k["momentum"]
    found: dict[str, Terms] = {}
    for name, value, about in zip(
        RUNNING, (own, around / (total - 1)), (size, wide / (total - 1)), strict=True
    ):
        before = given(k, name, 0)
        found[name] = Terms(before + m * (value - before), np.abs(before) + abs(m) * np.abs(about))
    spread = np.abs(inverse) * (1 + wide / total / np.abs(variance))
    return {**found, "mean_all": Terms(own, size), "invstd_all": Terms(inverse, spread)}


def gather_torch(k: Arguments, torch: Any) -> Any:
    if not k["mean"].numel():
        return None
    weights = (k["counts"] / k["counts"].sum())[:, None]
    own = (weights * k["mean"]).sum(0)
    squares = (weights * (k["invstd"] ** -2 - k["eps"] + k["mean"] ** 2)).sum(0) - own**2
    found = {"mean_all": own, "invstd_all": torch.rsqrt(squares + k["eps"])}
    if k["running_mean"] is not None:
        found["running_mean"] = torch.lerp(k["running_mean"], own, k["momentum"])
    return found


def there(name: str) -> Any:
    return lambda k: k[name] is not None


ONE_ALONE = tuple(
    Invalid(f"without-{name}", {name: None}, RUNNING, ArgumentError, alone=True) for name in RUNNING
)
BATCH_NORM_GATHER_STATS_WITH_COUNTS = Statement(
    "aclnnBatchNormGatherStatsWithCounts",
    prototype=(
        "const aclTensor* input, const aclTensor* mean, const aclTensor* invstd, "
        "aclTensor* runningMean, aclTensor* runningVar, double momentum, double eps, "
        "const aclTensor* counts, aclTensor* meanAll, aclTensor* invstdAll"
    ),
    inputs=(
        In("input", normal(), read=False),
        In("mean", normal(), **OWN),
        In("invstd", uniform(0.5, 1.5), **OWN),
        In("running_mean", normal(), **OWN, optional=True, updated=True),
        In("running_var", uniform(0.5, 2.0), **OWN, optional=True, updated=True,
           beside="running_mean"),
        In("counts", counted, **OWN),
    ),
    outputs=(
        *(Out(name, count, lambda _: FLOAT, own=True, optional=True, asked=there(name))
          for name in RUNNING),
        *(Out(name, count, "mean", own=True) for name in GATHERED),
    ),
    loops=gather_loops,
    arrays=gather_arrays,
    sprinkled=False,
    shapes=gathered_shapes,
    npu=NO_TORCH,
    torch=gather_torch,
    defaults={"momentum": 0.1, "eps": 1e-5},
    attributes={"momentum": (0.1,), "eps": (1e-5,)},
    **COMMON,
    empty_shapes=((0, 3),),
    mixed=tuple(Setup(dtypes=dict.fromkeys(("mean", "invstd", "counts", *GATHERED), d))
                for d in FLOATS),
    invalid=(
        *defects.nulls("input", "mean", "invstd", "counts", *GATHERED),
        *defects.dtypes("input", "mean", "invstd", *RUNNING, "counts", *GATHERED),
        *(Invalid(f"private-{name}", {name: PRIVATE}, (name,), FormatError)
          for name in ("input", "mean", "invstd", "counts")),
        *ONE_ALONE,
        *defects.shapes("input", (4,)),
        *defects.shapes("mean", (24,)),
        *defects.shapes("invstd", (24,)),
        *defects.shapes("counts", (6, 1)),
        *defects.shapes("invstd", (5, 4)),
        *defects.shapes("counts", (5,)),
        *defects.shapes("mean", (6, 3)),
        *defects.shapes("invstd", (6, 3)),
        *wrong_channels(*RUNNING, *GATHERED),
    ),
    empty_spares=("shape-mean-6x3",),
)  # fmt: skip


def elemt_shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"input": base, **of_channel(base, "weight", "bias", "mean", "invstd")}


def elemt_loops(k: Arguments) -> Any:
    numbers = [given(k, n, v).tolist() for n, v in
               (("weight", 1), ("bias", 0), ("mean", 0), ("invstd", 1))]  # fmt: skip
    found = [[(v - mean) * invstd * w + b for v in x]
             for x, w, b, mean, invstd in zip(channels(k, "input").tolist(), *numbers,
                                              strict=True)]  # fmt: skip
    return back(k, found)


def elemt_arrays(k: Arguments) -> Terms:
    x = channels(k, "input")
    w, b, mean, invstd = (given(k, n, v)[:, None] for n, v in
                          (("weight", 1), ("bias", 0), ("mean", 0), ("invstd", 1)))  # fmt: skip
    size = (np.abs(x) + np.abs(mean)) * np.abs(invstd * w) + np.abs(b)
    return Terms(back(k, (x - mean) * invstd * w + b), back(k, size))


def elemt_torch(k: Arguments, torch: Any) -> Any:
    if not k["input"].numel():
        return None
    return torch.nn.functional.batch_norm(
        k["input"], k["mean"], k["invstd"] ** -2, k["weight"], k["bias"], eps=0.0
    )


INVALID = AclnnStatus.ACLNN_ERR_PARAM_INVALID
BATCH_NORM_ELEMT = Statement(
    "aclnnBatchNormElemt",
    prototype=(
        "const aclTensor* input, const aclTensor* weight, const aclTensor* bias, "
        "aclTensor* mean, aclTensor* invstd, double eps, aclTensor* output"
    ),
    inputs=(
        In("input", normal(2.0, 0.5)),
        In("weight", uniform(0.5, 2.0), **OWN, optional=True),
        In("bias", normal(), **OWN, optional=True),
        In("mean", normal(), **OWN),
        In("invstd", uniform(0.5, 1.5), **OWN),
    ),
    outputs=(Out("output", "input", "input"),),
    loops=elemt_loops,
    arrays=elemt_arrays,
    shapes=elemt_shapes,
    npu=NO_TORCH,
    torch=elemt_torch,
    null=INVALID,
    defaults={"eps": 1e-5},
    attributes={"eps": (1e-5,)},
    **COMMON,
    empty_shapes=EMPTY,
    mixed=(
        *(Setup(dtypes=dict.fromkeys(("weight", "bias", "mean", "invstd"), d)) for d in FLOATS[1:]),
        Setup(dtypes={"output": FLOAT16}),
    ),
    edges=(Setup("channels", (3, 4), values={
        "input": [[0.0, NAN, INF, 1e4], [0, 1, 1, -1e4], [0, 2, 0, 1]]}),),
    invalid=(
        *(Invalid(f"null-{n}", {n: None}, (n,), ArgumentMissingError, INVALID)
          for n in ("input", "mean", "invstd", "output")),
        *defects.dtypes("input", "weight", "bias", "mean", "invstd", "output"),
        *defects.no_bfloat16("input", "mean"),
        *defects.formats("output", found=Format.NHWC),
        private("input", "output"),
        *defects.shapes("input", (4,)),
        *defects.shapes("output", (4, 6)),
        no_channels("input", "output"),
        *wrong_channels("weight", "bias", "mean", "invstd"),
    ),
)  # fmt: skip
