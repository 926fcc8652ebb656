"""Reads golden data that ``npucall conform --export FOLDER`` wrote, with NumPy and nothing of ours.

``judge(folder, answer)`` calls ``answer(operator, variant, parameters, inputs)`` for every case and
says what is wrong. Yours runs the C function: ``parameters`` are in its order, ``inputs`` are dense
arrays by name. It answers the outputs as arrays by name, or, where it was refused, the status.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np


def judge(folder: Path, answer: Callable[..., Any]) -> Iterator[str]:
    """One sentence for each output, or error, that is not as it should be."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["format"], manifest["version"]) == ("npucall golden data", 1)
    for case in manifest["cases"]:
        data = (folder / case["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == case["sha256"], f"{case['file']} was changed"
        with np.load(folder / case["file"]) as stored:
            arrays = {name.partition(".")[::2]: stored[name] for name in stored}
        inputs = {name: array for (kind, name), array in arrays.items() if kind == "input"}
        found = answer(case["operator"], case["variant"], case["parameters"], inputs)
        if case["refused"]:
            if found != case["refused"]["status"]:
                yield f"{case['case']}: expected status {case['refused']['status']}, found {found}"
            continue
        for (kind, name), expected in arrays.items():
            if kind == "expected" and not near(found, name, expected, arrays["tolerance", name]):
                yield f"{case['case']}: {name} is outside the tolerance"


def near(found: Any, name: str, expected: Any, tolerance: Any) -> bool:
    """Whether an output is right: each element near enough, NaN and infinities the same."""
    if not isinstance(found, dict) or np.shape(found[name]) != expected.shape:
        return False
    values = np.asarray(found[name]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(values - expected) <= tolerance
    same = (values == expected) | (np.isnan(values) & np.isnan(expected))
    return bool((off | same | np.isinf(tolerance) & ~np.isnan(values)).all())
