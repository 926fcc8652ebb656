"""A failing case in a folder, to be run again anywhere: ``npucall replay FOLDER TARGET``.

``case.json`` has everything except numbers; ``inputs.npz`` has the storages that were sent,
``expected.npz`` has values and sizes of the terms in float64, ``got.npz`` the server's answer.
Types that NumPy does not have itself, such as BF16, are stored as unsigned integers.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import DTYPES, DType
from npucall.errors import NpucallError
from npucall.tensors import Format, TensorSpec
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.judging.check import Expectation, Refused, arrays_of, check, described
from npucall_conformance.judging.truth import Expected
from npucall_conformance.reporting.report import Outcome
from npucall_conformance.running.looks import LOOKS
from npucall_conformance.running.runner import Evidence, Runner, finished
from npucall_conformance.statements import statements
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.parts import Contradiction, Refusal, Setup

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from npucall.declare.call import Argument
    from npucall.dtypes import AnyArray
    from npucall_conformance.reporting.report import JudgedServer
    from npucall_conformance.running.subject import Subject

VERSION = 1
_JUDGED_BY = [field.name for field in fields(Expected) if field.name not in ("value", "size")]
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}


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


def save(  # noqa: PLR0913  # what a run knows
    folder: Path,
    evidence: Evidence,
    *,
    profile: str,
    seed: int,
    server: JudgedServer,
    versions: Mapping[str, str],
) -> Path:
    """Writes a bundle into a folder of its own below ``folder``; returns that folder."""
    outcome, call = evidence.outcome, evidence.call
    place = folder / outcome.case.replace("/", "__")
    place.mkdir(parents=True, exist_ok=True)
    inputs = {name: _elements(call.arguments[name], data) for name, data in call.storages.items()}
    _write(place / "inputs.npz", inputs)
    truth = evidence.expectation.outputs
    values = {f"{name}.value": each.value for name, each in truth.items()}
    sizes = {f"{name}.size": each.size for name, each in truth.items()}
    _write(place / "expected.npz", values | sizes)
    answer = evidence.answer
    got = {} if isinstance(answer, NpucallError) else arrays_of(answer)
    _write(place / "got.npz", {name: plain(array) for name, array in got.items()})
    about = {
        "version": VERSION,
        "case": outcome.case,
        "operator": outcome.operator,
        "variant": outcome.variant,
        "block": outcome.block,
        "dtype": outcome.dtype,
        "profile": profile,
        "seed": seed,
        "server": asdict(server),
        "versions": dict(versions),
        "problems": outcome.problems,
        "arguments": {name: _argument(value) for name, value in call.arguments.items()},
        "stored": list(call.storages),
        "expected": _expectation(evidence.expectation),
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
        expectation = _read_expectation(about["variant"], about["expected"], dict(numbers))
    expectation = replace(
        expectation, sent={n: s for n, s in storages.items() if n in expectation.outputs}
    )
    names = {field.name for field in fields(Bundle)} - {"arguments", "storages", "expectation"}
    return Bundle(
        **{name: about[name] for name in names - {"problems"}},
        problems=tuple(about["problems"]),
        arguments={name: _read_argument(value) for name, value in about["arguments"].items()},
        storages=storages,
        expectation=expectation,
    )


def replay(bundle: Bundle, subject: Subject, profile: str = "") -> Outcome:
    """Runs a bundle's call once more and judges the answer as then, or by another profile.

    If the answer is right, and the suite sends such a case several times (by every path, in a
    crowd, repeatedly), the whole case runs again. Raises NotJudgedError if the call cannot be sent
    now.
    """
    outcome = Outcome(
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


def _argument(value: Argument) -> Any:
    if isinstance(value, TensorSpec):
        return {
            "tensor": {
                "dtype": value.dtype.name,
                "shape": value.shape,
                "strides": value.strides,
                "offset": value.offset,
                "storage_shape": value.storage_shape,
                "format": value.format.name,
            }
        }
    if isinstance(value, Scalar):
        return {"scalar": {"dtype": value.dtype.name, "value": value.value}}
    if isinstance(value, DType):
        return {"dtype": value.name}
    return {"value": list(value) if isinstance(value, tuple) else value}


def _read_argument(saved: Mapping[str, Any]) -> Argument:
    if "tensor" in saved:
        tensor = saved["tensor"]
        return TensorSpec(
            _dtype(tensor["dtype"]), tuple(tensor["shape"]), tuple(tensor["strides"]),
            tensor["offset"], tuple(tensor["storage_shape"]), Format[tensor["format"]],
        )  # fmt: skip
    if "scalar" in saved:
        return Scalar(_dtype(saved["scalar"]["dtype"]), saved["scalar"]["value"])
    if "dtype" in saved:
        return _dtype(saved["dtype"])
    value: Any = saved["value"]
    return tuple(value) if isinstance(value, list) else value


def _dtype(name: str) -> DType:
    return _BY_NAME[name]


def _expectation(expectation: Expectation) -> dict[str, Any]:
    sided = expectation.contradiction
    return {
        "outputs": {
            name: {field: _judged_by(getattr(each, field)) for field in _JUDGED_BY}
            for name, each in expectation.outputs.items()
        },
        "refused": asdict(expectation.refused) if expectation.refused else None,
        "contradiction": {
            "number": sided.number,
            "topic": sided.topic,
            "decided": sided.decided,
            "sources": {name: _source(wanted) for name, wanted in sided.sources.items()},
        }
        if sided
        else None,
        "kernel": expectation.kernel.name if expectation.kernel else None,
        "warned": None if expectation.warned is None else sorted(expectation.warned),
    }


def _read_expectation(
    variant: str, saved: Mapping[str, Any], numbers: Mapping[str, AnyArray]
) -> Expectation:
    outputs = {
        name: Expected(
            value=numbers[f"{name}.value"],
            size=numbers[f"{name}.size"],
            **{**each, "kernel": _dtype(each["kernel"]), "dtype": _dtype(each["dtype"])},
        )
        for name, each in saved["outputs"].items()
    }
    refused, sided = saved["refused"], saved["contradiction"]
    kernel, warned = saved.get("kernel"), saved.get("warned")
    return Expectation(
        variant,
        outputs,
        Refused(**{**refused, "blames": tuple(refused["blames"])}) if refused else None,
        Contradiction(
            sided["number"],
            sided["topic"],
            Setup(),
            {name: _read_source(wanted) for name, wanted in sided["sources"].items()},
            sided["decided"],
        )
        if sided
        else None,
        kernel=_dtype(kernel) if kernel else None,
        warned=None if warned is None else frozenset(warned),
    )


def _judged_by(value: Any) -> Any:
    return value.name if isinstance(value, DType) else value


def _source(wanted: Any) -> dict[str, Any]:
    if isinstance(wanted, Refusal):
        return {"refused": wanted.status}
    return {} if wanted is ... else {"numbers": wanted}


def _read_source(saved: Mapping[str, Any]) -> Any:
    if "refused" in saved:
        return Refusal(saved["refused"])
    return saved.get("numbers", ...)
