"""A failing case in a folder, to be run again anywhere: ``npucall replay FOLDER TARGET``.

``case.json`` has everything except numbers; ``inputs.npz`` has the storages that were sent,
``expected.npz`` has values and sizes of the terms in float64, ``got.npz`` the server's answer.
Types that NumPy does not have itself, such as BF16, are stored as unsigned integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from npucall.declare.call import Argument
from npucall.declare.parameters import Scalar
from npucall.dtypes import DTYPES, AnyArray, DType
from npucall.errors import NpucallError
from npucall.tensors import Format, TensorSpec
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.judging.check import Expectation, Refused, arrays_of, check, described
from npucall_conformance.judging.truth import Expected
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.running.runner import LOOKS, Evidence, Runner, finished
from npucall_conformance.running.subject import Subject
from npucall_conformance.statements import statements
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.parts import Contradiction, Refusal, Setup

VERSION = 2
_OF_THE_CASE = ("case", "operator", "variant", "block", "dtype", "problems")


@dataclass(frozen=True)
class Bundle:
    """A case that failed, without the suite that made it."""

    case: str
    operator: str
    variant: str
    block: str
    dtype: str
    profile: str
    seed: int
    server: Mapping[str, Any]
    versions: Mapping[str, str]
    problems: tuple[str, ...]
    arguments: Mapping[str, Argument]
    storages: Mapping[str, bytes]
    expectation: Expectation


def save(folder: Path, evidence: Evidence, report: Report) -> Path:
    """Writes a bundle into a folder of its own below ``folder``; returns that folder.

    ``report`` is that of the run, which need not have ended.
    """
    outcome, call = evidence.outcome, evidence.call
    place = folder / outcome.case.replace("/", "__")
    place.mkdir(parents=True, exist_ok=True)
    inputs = {name: _elements(call.arguments[name], data) for name, data in call.storages.items()}
    _write(place / "inputs.npz", inputs)
    arrays: dict[str, AnyArray] = {}
    expectation = replace(evidence.expectation, sent={})
    if expectation.contradiction is not None:
        told = replace(expectation.contradiction, setup=Setup())
        expectation = replace(expectation, contradiction=told)
    expected = _packed(expectation, arrays)
    _write(place / "expected.npz", arrays)
    answer = evidence.answer
    got = {} if isinstance(answer, NpucallError) else arrays_of(answer)
    _write(place / "got.npz", {name: plain(array) for name, array in got.items()})
    about = {
        "version": VERSION,
        **{name: getattr(outcome, name) for name in _OF_THE_CASE},
        "profile": report.profile,
        "seed": report.seed,
        "server": asdict(report.server),
        "versions": report.versions,
        "arguments": _packed(call.arguments, {}),
        "stored": list(call.storages),
        "expected": expected,
        "error": described(answer) if isinstance(answer, NpucallError) else None,
    }
    (place / "case.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return place


def load(place: Path) -> Bundle:
    """Reads a bundle. Raises OSError or ValueError if there is none."""
    about = json.loads((place / "case.json").read_text(encoding="utf-8"))
    if about.get("version") != VERSION:
        raise ValueError(f"{place}: expected a bundle of version {VERSION}")
    with np.load(place / "inputs.npz") as stored:
        storages = {name: stored[name].tobytes() for name in about["stored"]}
    with np.load(place / "expected.npz") as numbers:
        expectation = _read(about["expected"], dict(numbers))
    expectation = replace(
        expectation, sent={n: s for n, s in storages.items() if n in expectation.outputs}
    )
    names = {field.name for field in fields(Bundle)} - {"arguments", "storages", "expectation"}
    return Bundle(
        **{name: about[name] for name in names - {"problems"}},
        problems=tuple(about["problems"]),
        arguments=_read(about["arguments"], {}),
        storages=storages,
        expectation=expectation,
    )


def replay(bundle: Bundle, subject: Subject, profile: str = "") -> CaseOutcome:
    """Runs a bundle's call once more and judges the answer as then, or by another profile.

    If the answer is right, and the suite sends such a case several times (by every path, in a
    crowd, repeatedly), the whole case runs again. Raises NotJudgedError if the call cannot be sent
    now.
    """
    outcome = CaseOutcome(
        bundle.case, bundle.operator, bundle.variant, bundle.block, bundle.dtype, "passed"
    )
    answer = subject.ask(_call(bundle, subject.server.product))
    profile = profile or bundle.profile
    checked = check(bundle.expectation, answer, profile)
    if not checked.problems and bundle.block in LOOKS:
        cases = select(statements(), Selection(cases=(bundle.case,)))
        for again in Runner(subject, profile=profile, seed=bundle.seed).run(cases):
            return again
    return finished(outcome, checked, list(checked.problems), answer)


def _call(bundle: Bundle, product: str) -> MadeCall:
    """The call. The bundle knows its arguments, its right outputs, and what was left out."""
    stated = {each.title: each for each in statements()}
    title = f"{bundle.operator}.{bundle.variant}" if bundle.variant else bundle.operator
    values: dict[str, Any] = dict(stated[title].defaults)
    values |= {each.name: None for each in stated[title].inputs}
    values |= bundle.arguments
    outputs = bundle.expectation.outputs
    dtypes = {n: v.dtype for n, v in bundle.arguments.items() if isinstance(v, TensorSpec)}
    shapes = {name: truth.value.shape for name, truth in outputs.items()}
    given = Arguments({n: v for n, v in values.items() if n not in shapes}, dtypes, product=product)
    return MadeCall(
        bundle.operator, bundle.variant, bundle.arguments, bundle.storages, given, shapes,
        {name: truth.dtype for name, truth in outputs.items()}, valid=bool(outputs),
    )  # fmt: skip


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    np.savez(path, **arrays)


def _elements(spec: Argument, data: bytes | bytearray) -> AnyArray:
    if not isinstance(spec, TensorSpec):
        raise TypeError("expected the storage of a tensor")
    return plain(np.frombuffer(data, spec.dtype.numpy))


def plain(array: AnyArray) -> AnyArray:
    """The array in a type that every NumPy can read."""
    own = array.dtype.isbuiltin == 1
    return array if own else array.view(f"u{array.itemsize}")


def _packed(value: Any, arrays: dict[str, AnyArray], at: str = "") -> Any:
    """A value in JSON, with objects by their class; ``arrays`` gets its arrays by their places."""
    inside = partial(_packed, arrays=arrays)
    if isinstance(value, np.ndarray):
        arrays[at] = value
        return {"array": at}
    if isinstance(value, DType | Format):
        return {type(value).__name__: value.name}
    kind = "mapping"
    if is_dataclass(value):
        kind = type(value).__name__
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {kind: {name: inside(each, at=f"{at}.{name}") for name, each in value.items()}}
    if isinstance(value, frozenset):
        return {"set": sorted(value)}
    if isinstance(value, list | tuple):
        return [inside(each) for each in value]
    return {"any": None} if value is ... else value


def _read(saved: Any, arrays: Mapping[str, AnyArray]) -> Any:
    """The value that ``_packed`` was given; lists are tuples."""
    if isinstance(saved, list):
        return tuple(_read(each, arrays) for each in saved)
    if not isinstance(saved, dict):
        return saved
    ((kind, value),) = saved.items()
    if kind == "array":
        return arrays[value]
    if kind not in _TYPES and kind != "mapping":
        return _PLAIN[kind](value)
    members = {name: _read(each, arrays) for name, each in value.items()}
    return members if kind == "mapping" else _TYPES[kind](**members)


_TYPES: dict[str, Any] = {
    each.__name__: each
    for each in (
        TensorSpec, Scalar, Expectation, Expected, Refused, Contradiction, Setup, Refusal,
    )
}  # fmt: skip
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "DType": {dtype.name: dtype for dtype in DTYPES}.__getitem__,
    "Format": Format.__getitem__,
    "set": frozenset,
    "any": lambda _: ...,
}
