"""Runs against servers that are right, wrong, older, or gone; and bundles of what failed."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.errors import InternalError
from npucall.wire.messages import Response
from npucall.wire.replies import Reply
from npucall_client.local.transport import LocalTransport
from npucall_client.sending.request import Request
from npucall_conformance import golden, wire
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.reporting.report import JudgedServer, Report
from npucall_conformance.running.crowd import CALLERS, Observation
from npucall_conformance.running.runner import Runner, default_profile
from npucall_conformance.running.subject import open_subject
from npucall_conformance.statements import statements

from .servers import Failing, altered, client_of, failed, flip, local, run

SOME = tuple(statement.title for statement in statements())[::12]
KL = ("aclnnKlDivBackward",)
GRID: Any = {"operators": KL, "blocks": ("grid",)}


def test_every_case_with_a_wrong_number_fails() -> None:
    outcomes = run(altered(flip), **GRID)
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert all(outcome.ratio > 1 for outcome in outcomes)


@each("length", [-4, 4])
def test_bytes_that_the_answer_does_not_announce_are_an_error_of_the_server(length: int) -> None:
    def change(storage: bytearray) -> None:
        storage[:] = storage[:length] if length < 0 else storage + bytes(length)

    outcomes = run(altered(change), cases=(f"{KL[0]}/grid/f32-none-4x6-0001",))
    (problem,) = [problem for outcome in outcomes for problem in outcome.problems]
    assert "unreadable answer: ValueError: out: expected 96 bytes" in problem


@each("lie", [{"offset": 1}, {"strides": (7, 1)}, {"strides": (-6, 1)}])
def test_a_spec_that_lies_is_an_error_of_the_server(
    lie: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = wire.decode_reply

    def lying(data: Any) -> Reply:
        reply = right(data)
        outputs = {name: dataclasses.replace(s, **lie) for name, s in reply.outputs.items()}
        return dataclasses.replace(reply, outputs=outputs)

    monkeypatch.setattr(wire, "decode_reply", lying)
    (outcome,) = run(local(), cases=(f"{KL[0]}/grid/f32-none-4x6-0001",))
    assert "unreadable answer: TensorLayoutError: tensor: expected a view" in outcome.problems[0]


def test_a_failure_has_the_worst_error_and_comes_with_its_evidence() -> None:
    kept: list[Observation] = []
    (outcome,) = run(
        altered(flip), cases=(f"{KL[0]}/grid/f32-none-4x6-0001",), on_failure=kept.append
    )
    assert outcome.wrong is not None
    assert (outcome.wrong.output, outcome.wrong.index) == ("out", (3, 5))
    (seen,) = kept
    assert set(seen.call.storages) == {"grad_output", "self", "target"}
    assert seen.outcome.status == "failed"


def test_a_second_server_is_compared_with_the_first() -> None:
    outcomes = run(local(), altered(flip), **GRID)
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert all(outcome.problems[0].startswith("altered: out") for outcome in outcomes)


def test_two_answers_inside_the_tolerance_may_still_differ_too_much() -> None:
    def up(storage: bytearray) -> None:
        storage[0] += 1 if storage[0] < 255 else -1

    def down(storage: bytearray) -> None:
        storage[0] -= 1 if storage[0] else -1

    # One ulp of BF16 up and one down: each is off by at most 1.5, together by 2.
    filters = {"cases": ("aclnnKlDivBackward/grid/bf16-none-4x6-0065",)}
    (outcome,) = run(altered(up), altered(down), **filters)
    assert any("differs" in problem or "ulp" in problem for problem in outcome.problems)


def test_an_operator_that_is_not_on_the_product_is_skipped() -> None:
    outcomes = run(local("Ascend310B1"), **GRID)
    assert {(o.status, *o.problems) for o in outcomes} == {
        ("skipped", "aclnnKlDivBackward is not on Ascend310B")
    }


def test_bfloat16_is_skipped_where_the_product_has_none() -> None:
    outcomes = run(local("Ascend910A"), **GRID)
    skipped = {o.dtype for o in outcomes if o.status == "skipped"}
    assert (skipped, {o.dtype for o in outcomes} - skipped) == ({"bf16"}, {"f32", "f16"})
    assert not failed(outcomes)


@pytest.mark.more
@each("title", SOME)
def test_some_operators_pass_on_the_oldest_product(title: str) -> None:
    assert failed(run(local("Ascend910A"), operators=(title,), quick=True)) == []


@each("error", [InternalError("a bug"), KeyError("unreadable")])
def test_an_error_of_the_server_is_an_outcome_and_the_next_case_is_sent(error: Exception) -> None:
    transport = Failing(lambda _: error)
    outcomes = run(open_subject(client_of(transport), "broken"), **GRID)
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert transport.asked == len(outcomes)


def server_with(device: str) -> JudgedServer:
    return JudgedServer("t", device, "Ascend910B1", "Ascend910B", "1", "i", "documented", ())


@each(
    ("devices", "profile"),
    [
        (("local",), "cpu-strict"),
        (("cpu", "local"), "cpu-strict"),
        (("cann:0",), "cann-standard"),
        (("cpu", "cann:0"), "cann-standard"),
    ],
)
def test_a_device_is_judged_by_the_standard_and_the_reference_strictly(
    devices: tuple[str, ...], profile: str
) -> None:
    assert default_profile(*map(server_with, devices)) == profile


ADD = "aclnnAdd"


class Counting(LocalTransport):
    """Counts calls by operator, and by all of their bytes."""

    def __init__(self) -> None:
        super().__init__("Ascend910B1")
        self.by_operator: Counter[str] = Counter()
        self.by_bytes: Counter[tuple[bytes, ...]] = Counter()

    async def execute(self, request: Request) -> Response:
        call = request.call
        assert call is not None
        self.by_operator[call.operator] += 1
        self.by_bytes[call.call, *map(bytes, call.data.values())] += 1
        return await super().execute(request)


def crowd_of(operator: str, *, rounds: int, repeat: int) -> Counting:
    transport = Counting()
    cases = select(statements(), Selection(operators=(operator,), blocks=("crowd",)))
    runner = Runner(open_subject(client_of(transport), "local:"), rounds=rounds, repeat=repeat)
    assert failed([next(iter(runner.run(cases)))]) == []
    return transport


def test_a_crowd_asks_for_several_operators_and_has_a_call_twice_with_different_numbers() -> None:
    asked = crowd_of(ADD, rounds=1, repeat=1)
    assert len(asked.by_operator) > CALLERS // 3
    assert Counter(call for call, *_ in asked.by_bytes).most_common(1)[0][1] == 2


def test_each_call_of_a_crowd_is_asked_in_every_round_and_one_as_often_as_a_run_repeats() -> None:
    times = crowd_of(ADD, rounds=3, repeat=20).by_bytes
    # Each once for its truth; the first before that as every case is.
    assert sorted(times.values()) == [4] * (CALLERS - 1) + [1 + 1 + 20]


def test_a_second_server_is_judged_too_and_answers_are_compared() -> None:
    case = ("aclnnKlDivBackward/grid/f32-none-4x6-0001",)
    (outcome,) = run(local(), altered(flip), cases=case)
    assert [problem.partition(":")[0] for problem in outcome.problems] == ["altered"]
    (outcome,) = run(local(), local(), cases=case)
    assert outcome.status == "passed"


def test_servers_that_agree_on_complex_numbers_differ_in_nothing() -> None:
    case = "aclnnAdd/mixed/c128+c64-alpha1.0-3x4-complex-0241"
    outcomes = run(local(), local(), cases=(case,))
    assert [(each.status, each.problems) for each in outcomes] == [("passed", ())]


# --- A failing case goes into a folder, and comes back as the same call ---------------------------


CASES = (
    "aclnnKlDivBackward/grid/f32-none-4x6-0001",
    "aclnnKlDivBackward/grid/bf16-mean-4x6-0067",
    "aclnnKlDivBackward/layout/f32-none-3x4-out-gaps-0019",
    "aclnnKlDivTargetBackward.builtin/grid/f16-sum-log_target-17-0054",
)


def invert(storage: bytearray) -> None:
    storage[:4] = bytes(255 - byte for byte in storage[:4])


def saved(folder: Path, seen: Observation) -> Path:
    report = Report("cpu-strict", 0, local().server, versions={"numpy": "2"})
    return golden.save(folder, report, seen)


def kept(**filters: Any) -> list[Observation]:
    """Failing cases."""
    found: list[Observation] = []
    run(altered(invert), **filters, on_failure=found.append)
    return found


@each("case", CASES)
def test_a_bundle_holds_the_call_and_fails_until_it_is_mended(tmp_path: Path, case: str) -> None:
    (seen,) = kept(cases=(case,))
    place = saved(tmp_path, seen)
    about = json.loads((place / "case.json").read_text())
    assert (about["case"], about["profile"], about["versions"]) == (
        case, "cpu-strict", {"numpy": "2"},
    )  # fmt: skip
    with np.load(place / "arrays.npz") as arrays:
        for name, truth in seen.expectation.outputs.items():
            np.testing.assert_array_equal(arrays[f"expected.{name}"], truth.value)
            apart = np.abs(arrays[f"got.{name}"].astype(float) - truth.value)
            assert not (apart <= arrays[f"tolerance.{name}"]).all()
    replayed = golden.replay(place, altered(invert))
    assert (replayed.status, replayed.problems) == ("failed", seen.outcome.problems)
    assert golden.replay(place, local()).status == "passed"


@each("block", ["invalid", "reduction", "documents", "rank", "written", "fuzz"])
def test_a_bundle_of_any_block_is_run_again(tmp_path: Path, block: str) -> None:
    titles = ("aclnnL1LossBackward", "aclnnKlDivTargetBackward.builtin", "aclnnTanhBackward")
    drawn = block == "fuzz"  # 200 calls of an operator
    found = kept(operators=titles[: 1 if drawn else None], blocks=(block,), quick=not drawn)
    assert found
    for seen in found[:: len(found) // 4 + 1]:
        assert golden.replay(saved(tmp_path, seen), local()).status == "passed"


def test_bfloat16_is_stored_as_unsigned_integers(tmp_path: Path) -> None:
    (seen,) = kept(cases=CASES[1:2])
    with np.load(saved(tmp_path, seen) / "arrays.npz") as arrays:
        assert arrays["input.target"].dtype == arrays["got.out"].dtype == np.uint16
        assert arrays["input.target"].tobytes() == bytes(seen.call.storages["target"])


@each(
    ("about", "says"),
    [
        ('{"bundle": 99}', "version 3"),
        ('{"bundle": 3, "case": "aclnnX/grid/1", "profile": "", "seed": 0}', "a case of this"),
    ],
)
def test_another_folder_is_refused(tmp_path: Path, about: str, says: str) -> None:
    (tmp_path / "case.json").write_text(about)
    with pytest.raises(ValueError, match=says):
        golden.replay(tmp_path, local())
