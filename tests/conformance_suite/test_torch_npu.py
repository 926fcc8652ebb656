"""``--adapter torch_npu``: the cases by torch's functions, here on a stand-in for the NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
    pytest.mark.filterwarnings("ignore:Using a target size"),
    pytest.mark.filterwarnings("ignore:An output with one or more elements was resized"),
]

from tests.rows import each  # noqa: E402

from npucall.dtypes import FLOAT  # noqa: E402
from npucall_conformance import golden  # noqa: E402
from npucall_conformance.reporting.report import Report  # noqa: E402
from npucall_conformance.running.subject import Subject, in_place_of_a_server  # noqa: E402
from npucall_conformance.running.torch_npu import TorchNpu, ways  # noqa: E402

from .fake_torch_npu import install, stand_in  # noqa: E402
from .servers import failed, local, run  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from npucall_conformance.reporting.report import CaseOutcome
    from npucall_conformance.running.crowd import Observation

OTHERWISE_ON_THE_CPU: dict[str, dict[str, Any]] = {
    "aclnnLogit": {"dtypes": (FLOAT,)},  # eps is rounded to FLOAT16 and BF16
    "aclnnNLLLoss": {"blocks": ("grid", "layout")},  # total_weight of a row without a reduction
    "aclnnLayerNorm": {"dtypes": (FLOAT,)},  # mean and rstd have the dtype of the input
    "aclnnLayerNormBackward": {"dtypes": (FLOAT,)},  # sums of BF16 are rounded at each row
}
NOT_ON_THE_CPU = {
    "aclnnCtcLoss",  # log_alpha is not padded
    "aclnnFlashAttentionScore",  # torch has none with its statistics
    "aclnnFlashAttentionScoreGrad",
    "aclnnMaxPool2dWithIndices",  # indices are INT64
    "aclnnMaxPool2dWithIndicesBackward",
    "aclnnAdaptiveMaxPool2dBackward",  # or their gradients want INT64
    "aclnnAdaptiveMaxPool3d",
    "aclnnAdaptiveMaxPool3dBackward",
    "aclnnMaxPool3dWithArgmax",
    "aclnnMaxPool3dWithArgmaxBackward",
}
SILU = {"operators": ("aclnnSilu",)}
REFUSED = "call aclnnSilu failed, error code is {}"


STANDARD = {"profile": "cann-standard"}
GELU = ("aclnnGeluV2/grid/f32-approximate0-4x6-0001",)


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in."""
    module = stand_in(torch)
    install(monkeypatch, torch, module)
    return module


def host() -> Subject:
    adapter = TorchNpu()
    return in_place_of_a_server(adapter, adapter.server)


def reasons(outcomes: list[CaseOutcome]) -> set[tuple[str, bool]]:
    return {(o.problems[0], o.lowers) for o in outcomes if o.status == "skipped"}


def refusing(text: str) -> Any:
    """A way that raises this."""

    def refuse(*_: Any) -> Any:
        raise RuntimeError(text)

    return refuse


@each("title", sorted({t for t, way in ways().items() if callable(way)} - NOT_ON_THE_CPU)[::6])
def test_an_operator_passes_through_torch(npu: Any, title: str) -> None:
    filters = {"blocks": ("grid", "layout", "rank"), **OTHERWISE_ON_THE_CPU.get(title, {})}
    outcomes = run(host(), operators=(title,), quick=True, **STANDARD, **filters)
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []
    assert any(outcome.status == "passed" for outcome in outcomes)


def test_a_host_says_who_it_is(npu: Any) -> None:
    server = TorchNpu().server
    assert (server.target, server.device) == ("torch_npu", "torch_npu:0")
    assert (server.soc, server.product) == ("Ascend910B1", "Ascend910B")
    assert server.version == "2.13.0.stand-in"


def test_gelu_in_another_form_is_caught(npu: Any) -> None:
    npu.npu_gelu = lambda x, approximate="none": torch.nn.functional.gelu(x, approximate="tanh")
    wrong = failed(
        run(host(), operators=("aclnnGeluV2",), blocks=("edge",), quick=True, **STANDARD)
    )
    assert wrong
    assert all("approximate0" in outcome.case for outcome in wrong)


def test_layouts_reach_the_npu_as_they_are(npu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[tuple[int, ...], int]] = set()
    silu = torch.ops.aten.silu_backward.default

    def watched(grad: Any, x: Any) -> Any:
        seen.add((x.stride(), x.storage_offset()))
        return silu(grad, x)

    monkeypatch.setitem(ways(), "aclnnSiluBackward", lambda g: watched(g["grad_output"], g["self"]))  # type: ignore[arg-type]
    outcomes = run(host(), operators=("aclnnSiluBackward",), blocks=("layout",))
    assert failed(outcomes) == []
    strides, offsets = zip(*seen, strict=True)
    assert {(4, 1), (1, 3), (8, 2), (0, 1)} <= set(strides)  # dense, transposed, a step, expanded
    assert max(offsets) > 0


def test_what_an_npu_refuses_is_judged_by_status(npu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ways(), "aclnnSilu", refusing(REFUSED.format(161002)))
    invalid = run(host(), **SILU, blocks=("invalid",), **STANDARD)
    assert any(outcome.status == "passed" for outcome in invalid)
    assert [o for o in failed(invalid) if "nothing-wrong" not in o.case] == []
    valid = run(host(), **SILU, blocks=("grid",), **STANDARD)
    assert {outcome.status for outcome in valid} == {"failed"}
    assert "161002" in valid[0].problems[0]


def test_what_torch_refuses_itself_is_not_judged_and_lowers_if_it_is_valid(
    npu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ways(), "aclnnSilu", refusing("expected a float\nsomewhere"))
    why = "torch refuses it before the NPU is asked: expected a float"
    assert reasons(run(host(), **SILU, blocks=("grid",))) == {(why, True)}
    invalid = run(host(), **SILU, blocks=("invalid",))
    assert ("torch refuses it before the NPU is asked", False) in reasons(invalid)
    assert (why, True) not in reasons([o for o in invalid if "nothing-wrong" not in o.case])


def test_what_torch_cannot_say_does_not_lower(npu: Any) -> None:
    found = reasons(run(host(), **SILU, blocks=("invalid", "layout"), **STANDARD))
    assert {lowers for _, lowers in found} == {False}
    assert {"torch passes no null pointers"} < {why for why, _ in found}
    (left_out,) = reasons(run(host(), operators=("aclnnHardswishBackward",), blocks=("grid",)))
    assert left_out == ("torch_npu calls aclnnHardswishBackwardV2 in its place", False)


def test_a_device_that_is_lost_ends_the_run(npu: Any) -> None:
    npu.npu.synchronize = refusing(REFUSED.format(507015))
    outcomes = run(host(), **SILU, blocks=("grid",), **STANDARD)
    assert [o.status for o in outcomes[:2]] == ["failed", "skipped"]
    assert "torch_npu went away: DEVICE_LOST" in outcomes[1].problems[0]


@each("turned", [False, True])
def test_it_is_compared_with_a_server(npu: Any, turned: bool) -> None:
    npu.npu_gelu = lambda x, approximate="none": torch.nn.functional.gelu(x) * 1.5
    first, second = (local(), host()) if turned else (host(), local())
    (outcome,) = run(first, second, cases=GELU, **STANDARD)
    assert outcome.status == "failed"
    (same,) = run(host(), local(), cases=("aclnnSilu/grid/f32-4x6-0001",), **STANDARD)
    assert same.status == "passed"


def test_a_bundle_is_replayed_without_a_server(npu: Any, tmp_path: Path) -> None:
    right = npu.npu_gelu
    npu.npu_gelu = lambda x, approximate="none": right(x, approximate) * 1.5
    kept: list[Observation] = []
    run(host(), cases=GELU, **STANDARD, on_failure=kept.append)
    saved = golden.save(tmp_path, Report("cann-standard", 0, host().server), kept[0])
    assert golden.replay(saved, host()).status == "failed"
    npu.npu_gelu = right
    assert golden.replay(saved, host()).status == "passed"


def test_a_library_has_no_paths_and_no_listing(npu: Any) -> None:
    outcomes = run(host(), **SILU, blocks=("paths",), quick=True, **STANDARD)
    assert outcomes
    assert all(o.status == "skipped" and not o.lowers for o in outcomes)


@each(
    ("soc", "number", "product"),
    [
        ("Ascend310P3", 202, "Ascend310P"),
        ("Ascend910_9362", 255, "Ascend910_93"),
        ("A3", 251, "Ascend910_93"),
        ("Ascend1", 999, None),
    ],
)
def test_the_product_follows_from_the_name_or_the_number(
    monkeypatch: pytest.MonkeyPatch, soc: str, number: int, product: str | None
) -> None:
    module = stand_in(torch, soc)
    module.npu.get_soc_version = lambda: number
    install(monkeypatch, torch, module)
    if product is not None:
        assert TorchNpu().server.product == product
        return
    with pytest.raises(ValueError, match="soc: expected"):
        TorchNpu()


def test_a_host_without_torch_npu_is_told_so() -> None:
    with pytest.raises(ValueError, match="adapter: expected torch and torch_npu"):
        TorchNpu()
