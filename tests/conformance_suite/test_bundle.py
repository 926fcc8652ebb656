"""Bundles: a failing case goes into a folder and comes back as the same call."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.rows import each

from npucall_client.conformance import bundle
from npucall_client.conformance.running.runner import Evidence

from .servers import altered, local, run

if TYPE_CHECKING:
    from pathlib import Path

    from npucall_client.conformance.running.judged import Judged

CASES = (
    "aclnnKlDivBackward/grid/f32-none-4x6-0001",
    "aclnnKlDivBackward/grid/bf16-mean-4x6-0067",
    "aclnnKlDivBackward/layout/f32-none-3x4-out-gaps-0019",
    "aclnnKlDivTargetBackward.builtin/grid/f16-sum-log_target-17-0054",
)


def invert(storage: bytearray) -> None:
    storage[:4] = bytes(255 - byte for byte in storage[:4])


def saved(folder: Path, evidence: Evidence, server: Judged) -> Path:
    return bundle.save(
        folder, evidence, profile="cpu-strict", seed=0, server=server.server,
        versions={"numpy": "2"},
    )  # fmt: skip


def kept(folder: Path, *cases: str) -> tuple[Evidence, bundle.Bundle]:
    """One failing case, and its bundle as it is read again."""
    found: list[Evidence] = []
    server = altered(invert)
    run(server, cases=cases, on_failure=found.append)
    (evidence,) = found
    return evidence, bundle.load(saved(folder, evidence, server))


@each("case", CASES)
def test_a_bundle_holds_the_very_call_what_was_expected_and_of_whom(
    tmp_path: Path, case: str
) -> None:
    evidence, read = kept(tmp_path, case)
    assert (read.case, read.server["target"], read.versions) == (case, "altered", {"numpy": "2"})
    assert read.arguments == evidence.call.arguments
    assert read.storages == {n: bytes(s) for n, s in evidence.call.storages.items()}
    for name, truth in evidence.expectation.outputs.items():
        again = read.expectation.outputs[name]
        np.testing.assert_array_equal(again.value, truth.value)
        np.testing.assert_array_equal(again.size, truth.size)
        for field in dataclasses.fields(truth):
            if field.name not in ("value", "size"):
                assert getattr(again, field.name) == getattr(truth, field.name)


@each("case", CASES)
def test_a_bundle_fails_again_where_it_failed_and_passes_where_that_is_mended(
    tmp_path: Path, case: str
) -> None:
    evidence, read = kept(tmp_path, case)
    again = bundle.replay(read, altered(invert))
    assert (again.status, again.problems) == ("failed", evidence.outcome.problems)
    assert bundle.replay(read, local()).status == "passed"


@each("block", ["invalid", "reduction", "documents", "rank"])
def test_expected_errors_and_sources_are_kept_too(tmp_path: Path, block: str) -> None:
    server = local()
    found: list[Evidence] = []
    for operator in ("aclnnL1LossBackward", "aclnnKlDivTargetBackward.builtin"):
        run(
            altered(invert), operators=(operator,), blocks=(block,), quick=True,
            on_failure=found.append,
        )  # fmt: skip
    assert found
    for evidence in found:
        read = bundle.load(saved(tmp_path, evidence, server))
        assert bundle.replay(read, server).status == "passed"


def test_bfloat16_is_stored_as_unsigned_integers(tmp_path: Path) -> None:
    evidence, _ = kept(tmp_path, CASES[1])
    with np.load(tmp_path / CASES[1].replace("/", "__") / "inputs.npz") as stored:
        assert stored["target"].dtype == np.uint16
        assert stored["target"].tobytes() == bytes(evidence.call.storages["target"])


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text('{"version": 99}')
    with pytest.raises(ValueError, match="version 1"):
        bundle.load(tmp_path)
