"""Reads golden data that ``npucall conform --export FOLDER`` wrote, with NumPy and nothing of ours.

``judge(folder, answer)`` calls ``answer(operator, variant, parameters, inputs)`` for every case and
says what is wrong. Yours runs the C function: ``parameters`` are in its order, ``inputs`` are dense
arrays by name. It answers the outputs as arrays by name, or, where it was refused, the status, or
``SKIP`` for a case that yours is not meant for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SKIP = object()
"""The answer to a case that is not judged."""


def judge(folder: Path, answer: Callable[..., Any]) -> Iterator[str]:
    """One sentence for each output, or error, that is not as it should be."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["format"], manifest["version"]) == ("npucall golden data", 1)
    judged = 0
    for case in manifest["cases"]:
        data = (folder / case["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == case["sha256"], f"{case['file']} was changed"
        with np.load(folder / case["file"]) as stored:
            arrays = {name.partition(".")[::2]: stored[name] for name in stored}
        inputs = {name: array for (kind, name), array in arrays.items() if kind == "input"}
        found = answer(case["operator"], case["variant"], case["parameters"], inputs)
        if found is SKIP:
            continue
        judged += 1
        if case["refused"]:
            if isinstance(found, dict) or found != case["refused"]["status"]:
                yield f"{case['case']}: expected status {case['refused']['status']}, found {found}"
            continue
        for (kind, name), expected in arrays.items():
            if kind == "expected":
                fault = fault_of(found, name, expected, arrays["tolerance", name])
                if fault:
                    yield f"{case['case']}: {name}{fault}"
    if not judged:
        yield f"{folder}: expected cases to judge, found none: all {len(manifest['cases'])} skipped"


def fault_of(found: Any, name: str, expected: Any, tolerance: Any) -> str:
    """What is wrong with an output; empty if each element is near enough."""
    if not isinstance(found, dict) or name not in found:
        return f": expected an output, found {sorted(found) if isinstance(found, dict) else found}"
    if np.shape(found[name]) != expected.shape:
        return f": expected the shape {expected.shape}, found {np.shape(found[name])}"
    values = np.asarray(found[name]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(values - expected)
        near = (off <= tolerance) | (np.isinf(tolerance) & ~np.isnan(values))
    wrong = ~(near | (values == expected) | (np.isnan(values) & np.isnan(expected)))
    if not wrong.any():
        return ""
    excess = np.where(wrong, np.nan_to_num(off, nan=np.inf) / np.maximum(tolerance, 1e-300), -1)
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    place = f"[{', '.join(map(str, worst))}]"
    return (
        f"{place}: expected {expected[worst]:.9g}, found {values[worst]:.9g}, off by "
        f"{off[worst]:.3g} where {tolerance[worst]:.3g} is allowed; {wrong.sum()} of {wrong.size} "
        "elements are outside the tolerance"
    )
