"""Golden data: calls, expected outputs and tolerances, in files that can be read without npucall.

``manifest.json`` has everything except numbers. Each case has a ``.npz`` with its inputs, and for
each output ``expected`` and ``tolerance`` in float64. ``examples/golden_data.py`` reads them with
only NumPy. Fields are added, never changed.

A failing case is written in the same form, as a *bundle* in a folder, to be looked at anywhere, and
run again: ``npucall replay FOLDER``. Its ``case.json`` also says how it failed; ``arrays.npz`` also
has what the server answered: ``got.NAME``. The suite makes a case again from its id and the seed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, AnyArray, DType
from npucall.errors import ArgumentUnknownError, NpucallError, TensorLayoutError
from npucall.tensors import TensorSpec, view
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.made_call import MadeCall, call_of, in_lists
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.judging.check import Expectation, arrays_of, described, expectation_of
from npucall_conformance.judging.profiles import tolerance
from npucall_conformance.judging.truth import Expected
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.running.crowd import Observation
from npucall_conformance.running.runner import Runner
from npucall_conformance.running.subject import Subject
from npucall_conformance.statements import statements
from npucall_conformance.stating.arguments import parameter_of
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16, Parameter

_NOT_IN_C = (ArgumentUnknownError, TensorLayoutError)
FORMAT, VERSION, BUNDLE = "npucall golden data", 1, 3
_STORED = {
    "BF16": "uint16: the upper half of a float32",
    "others": "NumPy's dtype of that size, or unsigned integers where NumPy has none",
}


@dataclass
class Golden:
    """Writes golden data into a folder."""

    folder: Path
    product: str
    """Short SoC name of the product whose rules apply."""
    profile: str
    seed: int
    versions: Mapping[str, str]
    cases: list[dict[str, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """How many cases have no data, by reason."""

    def write(self, cases: Iterable[Case]) -> None:
        """Writes all cases that are for the product, and then the manifest.

        Raises OSError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for case in cases:
            reason = _left_out(case, self.product)
            if reason:
                self.left_out[reason] += 1
            else:
                self.cases.append(self._written(case))
        about = {
            "format": FORMAT,
            "version": VERSION,
            "product": self.product,
            "profile": self.profile,
            "seed": self.seed,
            "versions": dict(self.versions),
            "stored": _STORED,
            "left_out": dict(self.left_out),
        }
        head = json.dumps(about, indent=1).removesuffix("\n}")
        lines = ",\n".join(json.dumps(each, allow_nan=False) for each in self.cases)
        manifest = self.folder / "manifest.json"
        manifest.write_text(f'{head},\n "cases": [\n{lines}\n]}}\n', encoding="utf-8")

    def _written(self, case: Case) -> dict[str, Any]:
        """Writes the arrays of a case; returns its entry in the manifest."""
        call = call_of(case, self.seed, self.product)
        expectation = expectation_of(case, call)
        place = self.folder / case.statement.title / f"{folder_of(case, title=False)}.npz"
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(place, **arrays_in(call, expectation, self.profile))
        file = place.relative_to(self.folder).as_posix()
        digest = sha256(place.read_bytes()).hexdigest()
        return {"file": file, "sha256": digest, **entry_of(case, call, expectation)}


_LONGEST = 180
"""Characters of a file's name that every file system takes."""


def folder_of(case: Case, *, title: bool = True) -> str:
    """The id of a case as a name in a file system; a long one ends with its digest."""
    parts = case.id.split("/")
    name = "__".join(parts) if title else "-".join(parts[1:])
    return (
        name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{sha256(name.encode()).hexdigest()}"
    )


def entry_of(case: Case, call: MadeCall, expectation: Expectation) -> dict[str, Any]:
    """Everything about a case but its numbers, for JSON."""
    refused = expectation.refused
    return {
        "case": case.id,
        "operator": call.operator,
        "variant": call.variant,
        "block": case.block,
        "parameters": [_parameter(case, call, each) for each in case.statement.parameters],
        "refused": None
        if refused is None
        else {
            "status": refused.status,
            "reason": refused.error.reason,
            "blames": list(refused.blames),
            "all_of_them": not refused.whoever,
        },
    }


def arrays_in(call: MadeCall, expectation: Expectation, profile: str) -> dict[str, Any]:
    """The inputs of a call, and for each output what is expected and how near it has to be."""
    found: dict[str, Any] = {}
    for name, storage in call.storages.items():
        spec = call.arguments[name]
        is_read = name not in call.shapes or name in call.given.values  # or updated in place
        if isinstance(spec, TensorSpec) and is_read:
            found[f"input.{name}"] = plain(view(spec, storage).copy())
    for name, truth in expectation.outputs.items():
        found[f"expected.{name}"], found[f"tolerance.{name}"] = _judged(profile, truth)
    return found


def plain(array: AnyArray) -> AnyArray:
    """The array in a type that every NumPy can read: BF16 and the like as unsigned integers."""
    own = array.dtype.isbuiltin == 1
    return array if own else array.view(f"u{array.itemsize}")


def _judged(profile: str, truth: Expected) -> tuple[Any, Any]:
    """The expected numbers, and the tolerance.

    Beyond the end of the dtype an infinity is expected; near it, anything is within the tolerance.
    """
    near = tolerance(profile, truth)
    value, size = truth.value, np.abs(truth.value)
    top = min(truth.dtype.largest, truth.kernel.largest)
    beyond = size - near > top
    value = np.where(beyond, np.copysign(np.inf, value), value)
    near = np.where(beyond, 0.0, np.where(np.isfinite(size) & (size + near > top), np.inf, near))
    return value, near


def _left_out(case: Case, product: str) -> str:
    """Why a case has no data; empty if it has."""
    dtypes = (*case.dtypes.values(), *case.attributes.values())
    if any(getattr(each, "kind", "") == "complex" for each in dtypes):
        return "complex numbers"
    statement = case.statement
    taken = statement.takes.get(product, ())
    used = (*case.dtypes.values(), *case.outputs.values(), *case.attributes.values())
    lacking = product in WITHOUT_BFLOAT16 and BF16 not in taken and not case.products
    untaken = (not case.defects and case.dtype not in taken) or (lacking and BF16 in used)
    reasons = {
        "of what a server lists": case.block == "listing",
        "of documents that differ": case.contradiction is not None,
        "of arguments that C cannot have": any(d.error in _NOT_IN_C for d in case.defects),
        "of results that are written out, not computed": case.written is not None,
        f"{statement.title} is not on {product}": product not in statement.takes,
        f"not for {product}": bool(case.products) and product not in case.products,
        f"a dtype that {product} does not take": untaken,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _parameter(case: Case, call: MadeCall, declared: Parameter) -> dict[str, Any]:
    """A parameter as the C function takes it."""
    name, arguments = declared.name, in_lists(call.arguments)
    is_output = name in {parameter_of(each.name) for each in case.statement.outputs}
    is_tensor = is_output or name in {parameter_of(each.name) for each in case.statement.inputs}
    kind = "output" if is_output else "input" if is_tensor else "attribute"
    about = {"name": name, "c_name": declared.c_name, "c_type": declared.c_type, "kind": kind}
    if name in arguments:
        value = arguments[name]
    elif is_output:  # one that nobody asks for has no shape: a null pointer
        asked = {n: TensorSpec(call.dtypes[n], shape) for n, shape in call.shapes.items()}
        value = in_lists(asked).get(name)
    else:
        value = case.statement.defaults.get(name)
    return about | ({"given": name in arguments} if is_output else {}) | _value(value)


def _value(value: Any) -> dict[str, Any]:
    """The value of a parameter in JSON; a null pointer is ``"null": true``."""
    if value is None:
        return {"null": True}
    if isinstance(value, TensorSpec):
        return {
            "dtype": value.dtype.name,
            "shape": list(value.shape),
            "strides": list(value.strides),
            "offset": value.offset,
            "storage_shape": list(value.storage_shape),
            "format": value.format.name,
        }
    if isinstance(value, Scalar):
        return {"dtype": value.dtype.name, "value": _number(value.value)}
    if isinstance(value, DType):
        return {"value": value.name}
    if isinstance(value, list | tuple):
        of_tensors = bool(value) and isinstance(value[0], TensorSpec)
        known, each = ("tensors", _value) if of_tensors else ("value", _number)
        return {known: [each(one) for one in value]}
    return {"value": _number(value)}


def _number(value: Any) -> Any:
    """A number in JSON; NaN and infinities become ``"nan"``, ``"inf"`` and ``"-inf"``."""
    if isinstance(value, complex):
        return [_number(value.real), _number(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def save(folder: Path, report: Report, seen: Observation) -> Path:
    """Writes a bundle into a folder of its own below ``folder``; returns that folder.

    ``report`` is that of the run, which need not have ended.
    """
    case, call, expectation, answer = seen.case, seen.call, seen.expectation, seen.answer
    place = folder / folder_of(case)
    place.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = arrays_in(call, expectation, report.profile)
    if not isinstance(answer, NpucallError):
        arrays |= {f"got.{name}": plain(array) for name, array in arrays_of(answer).items()}
    np.savez(place / "arrays.npz", **arrays)
    about = {
        "bundle": BUNDLE,
        **entry_of(case, call, expectation),
        "problems": seen.outcome.problems,
        "error": described(answer) if isinstance(answer, NpucallError) else None,
        "profile": report.profile,
        "seed": report.seed,
        "server": asdict(report.server),
        "versions": report.versions,
    }
    (place / "case.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return place


def replay(place: Path, subject: Subject, profile: str = "") -> CaseOutcome:
    """Runs a bundle's case once more, and judges it as then, or by another profile.

    Raises OSError or ValueError if there is no bundle, or if this suite has no such case.
    """
    about = json.loads((place / "case.json").read_text(encoding="utf-8"))
    if about.get("bundle") != BUNDLE:
        raise ValueError(f"{place}: expected a bundle of version {BUNDLE}")
    cases = select(statements(), Selection(cases=(about["case"],)))
    runner = Runner(subject, profile=profile or about["profile"], seed=about["seed"])
    for outcome in runner.run(cases):
        return outcome
    raise ValueError(f"{place}: expected a case of this suite, found {about['case']}")
