"""Golden data: an independent reader finds in them what a server has to answer."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npucall.declare.call import element
from npucall.declare.parameters import Scalar
from npucall.dtypes import DTYPES
from npucall.errors import NpucallError
from npucall.products import DEFAULT_SOC, product_of
from npucall.tensors import Format, TensorSpec
from npucall.wire import calls
from npucall_client.calls.arguments import BoundCall
from npucall_client.client import Client
from npucall_client.local.transport import LocalTransport
from npucall_conformance import wire
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.golden import Golden
from npucall_conformance.stating.arguments import parameter_of

from .servers import PARTS, STATEMENTS, client_of, soc_with

EXAMPLES = Path(__file__).parents[2] / "examples"
BY_NAME = {each.name: each for each in DTYPES}
NUMBERS = {"int64_t": int, "int8_t": int, "bool": bool, "float": float, "double": float}
KL = "aclnnKlDivBackward"
BLOCKS = ("defaults", "grid", "mixed", "layout", "empty", "rank", "edge", "written", "invalid")


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The reader of the examples."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sys.modules.pop("golden_data", None)
    import golden_data  # where it is

    return golden_data.judge


def written(
    folder: Path, profile: str = "cpu-strict", soc: str = DEFAULT_SOC, **filters: Any
) -> dict[str, Any]:
    golden = Golden(folder, product_of(soc).soc, profile, 0, {"npucall": "0"})
    golden.write(select(STATEMENTS.values(), Selection(**filters)))
    return dict(json.loads((folder / "manifest.json").read_text()))


class Answering:
    """Runs the C function of a case on a client, from nothing but what is in the manifest."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.asked = 0

    def __call__(
        self, operator: str, variant: str, parameters: list[dict[str, Any]], inputs: Any
    ) -> Any:
        self.asked += 1
        arguments, storages = {}, {}
        for each in parameters:
            if each["kind"] == "output" and not each["given"]:
                continue
            name, listed = each["name"], each.get("tensors")
            arguments[name] = argument(each) if listed is None else tuple(map(argument, listed))
            parts = {name: each} if listed is None else dict(enumerated(name, listed))
            storages |= {n: placed(inputs[n], part) for n, part in parts.items() if n in inputs}
        try:
            stored = tuple(dict.fromkeys(map(parameter_of, storages)))
            call = calls.encode(operator, variant, arguments, stored)
            answer = wire.send(self.client, BoundCall(operator, call, storages))
        except NpucallError as error:
            return error.aclnn_status
        return {name: read(spec, answer.storages[name]) for name, spec in answer.outputs.items()}


def enumerated(name: str, tensors: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tensors of a list by their names."""
    return ((element(name, place), each) for place, each in enumerate(tensors))


def argument(each: dict[str, Any]) -> Any:
    if each.get("null"):
        return None
    if "shape" in each:
        return TensorSpec(
            BY_NAME[each["dtype"]], tuple(each["shape"]), tuple(each["strides"]), each["offset"],
            tuple(each["storage_shape"]), Format[each["format"]],
        )  # fmt: skip
    value = each["value"]
    if each["c_type"] == "const aclScalar*":
        return Scalar(BY_NAME[each["dtype"]], float(value) if isinstance(value, str) else value)
    if each["c_type"].endswith("aclDataType"):
        return BY_NAME[value]
    if isinstance(value, list):
        return tuple(value)
    return NUMBERS.get(each["c_type"], lambda same: same)(value)


def placed(array: Any, each: dict[str, Any]) -> bytes:
    """The elements where the strides say that they are."""
    storage = np.zeros(int(np.prod(each["storage_shape"])), array.dtype)
    steps = [stride * array.itemsize for stride in each["strides"]]
    if array.size:
        np.lib.stride_tricks.as_strided(storage[each["offset"] :], array.shape, steps)[...] = array
    return storage.tobytes()


def read(spec: TensorSpec, storage: bytes) -> Any:
    flat = np.frombuffer(storage, spec.dtype.numpy)[spec.offset :]
    steps = [stride * spec.dtype.itemsize for stride in spec.strides]
    array = np.lib.stride_tricks.as_strided(flat, spec.shape, steps) if spec.elements else flat
    return array.reshape(spec.shape).astype(np.float64)


@PARTS
def test_what_is_answered_is_within_the_golden_data(
    tmp_path: Path, judge: Any, part: slice, subtests: pytest.Subtests
) -> None:
    for title in list(STATEMENTS)[part]:
        with subtests.test(title):
            folder = tmp_path / title
            soc = soc_with(title)
            manifest = written(folder, soc=soc, operators=(title,), blocks=BLOCKS, quick=True)
            answering = Answering(client_of(LocalTransport(soc)))
            assert list(judge(folder, answering)) == []
            assert answering.asked == len(manifest["cases"]) > 20
            blocks = {each["block"] for each in manifest["cases"]}
            assert blocks >= {"grid", "layout", "invalid", "edge"}


def test_a_wrong_answer_is_outside(tmp_path: Path, judge: Any) -> None:
    manifest = written(tmp_path, "cann-standard", operators=(KL,), blocks=("grid",), quick=True)
    right = Answering(client_of(LocalTransport("Ascend910B1")))

    def wrong(*case: Any) -> Any:
        return {name: array * 1.1 for name, array in right(*case).items()}

    found = list(judge(tmp_path, wrong))
    assert len(found) == len(manifest["cases"])
    assert all(
        re.search(r"out\[\d.*\]: expected .* is allowed; \d+ of \d+ elements", e) for e in found
    )


def test_the_worst_element_is_named_and_a_case_may_be_skipped(tmp_path: Path, judge: Any) -> None:
    case = f"{KL}/grid/f32-none-4x6-0001"
    written(tmp_path, "cann-standard", cases=(case,))
    right = Answering(client_of(LocalTransport("Ascend910B1")))

    def wrong(*given: Any) -> Any:
        (out,) = right(*given).values()
        out[1, 2], out[3, 5] = out[1, 2] + 0.5, np.nan
        return {"out": out}

    (found,) = judge(tmp_path, wrong)
    assert found.startswith(f"{case}: out[3, 5]: expected ")
    assert ", found nan, off by nan where " in found
    assert found.endswith("; 2 of 24 elements are outside the tolerance")
    (found,) = judge(tmp_path, lambda *_: {"out": np.zeros(3)})
    assert found == f"{case}: out: expected the shape (4, 6), found (3,)"
    (found,) = judge(tmp_path, lambda *_: sys.modules["golden_data"].SKIP)
    assert found.endswith("expected cases to judge, found none: all 1 skipped")


def test_a_refusal_is_expected_with_its_status(tmp_path: Path, judge: Any) -> None:
    manifest = written(tmp_path, operators=(KL,), blocks=("invalid",), quick=True)
    refused = [each["refused"] for each in manifest["cases"] if each["refused"]]
    assert {each["status"] for each in refused} == {161001, 161002}
    assert all(each["blames"] for each in refused)
    found = list(judge(tmp_path, lambda *_: 161001))
    nulls = [each for each in refused if each["status"] == 161001]
    assert len(found) == len(manifest["cases"]) - len(nulls)


def test_a_file_that_was_changed_is_found(tmp_path: Path, judge: Any) -> None:
    manifest = written(tmp_path, cases=(f"{KL}/grid/f32-none-4x6-0001",))
    place = tmp_path / manifest["cases"][0]["file"]
    place.write_bytes(place.read_bytes() + b"\0")
    with pytest.raises(AssertionError, match="was changed"):
        list(judge(tmp_path, lambda *_: None))


def test_the_manifest_says_what_was_left_out_and_has_all_defaults(tmp_path: Path) -> None:
    titles = ("KlDivTargetBackward.builtin", "L1LossBackward")
    manifest = written(tmp_path, operators=titles, blocks=("documents", "defaults"), quick=True)
    assert manifest["left_out"]["of documents that differ"] > 0
    assert (manifest["format"], manifest["product"]) == ("npucall golden data", "Ascend910B")
    for case in manifest["cases"]:
        attributes = [each for each in case["parameters"] if each["kind"] == "attribute"]
        assert attributes
        assert all("value" in each for each in attributes), case["case"]
