"""``npucall conform`` and ``npucall replay`` as commands."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each

from npucall.errors import QueueFullError
from npucall.products import DEFAULT_SOC
from npucall_conformance import conform_command as module

from .faults import of
from .servers import Altered, Failing, client_of, command, flip

CASE = "aclnnKlDivBackward/grid/f32-none-4x6-0001"
OTHER = "aclnnKlDivBackward/grid/f32-mean-4x6-0003"
ONE, BOTH = ("--case", CASE), ("--case", CASE, "--case", OTHER)
conform, replay = partial(command, "conform"), partial(command, "replay")


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the target is, a server that answers wrongly."""
    monkeypatch.setattr(module, "connect", lambda *_, **__: client_of(Altered(flip)))


@pytest.fixture
def wrong_on_310p(monkeypatch: pytest.MonkeyPatch) -> None:
    """``local:`` answers wrongly where its SoC is an Ascend310P3."""

    def connect(*_: Any, soc: str = "Ascend910B1", **__: Any) -> Any:
        return client_of(Altered(flip if soc == "Ascend310P3" else lambda _: None, soc))

    monkeypatch.setattr(module, "connect", connect)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has no time after its first answer."""
    server = Failing(lambda asked: QueueFullError("queue: full") if asked else None)
    monkeypatch.setattr(module, "connect", lambda *_, **__: client_of(server))


def test_an_operator_of_several_variants_says_how_to_name_one(tmp_path: Path) -> None:
    words = ("--export", str(tmp_path), "--quick", "--block", "invalid", "--operator")
    named = [f"aclnnKlDivTargetBackward.{each}" for each in ("builtin", "community", "documented")]
    assert conform(*words, "KlDivTargetBackward").stderr == (
        "npucall: aclnnKlDivTargetBackward stands for 3 variants, "
        f"{', '.join(named)}: these names choose one\n"
    )
    assert conform(*words, named[0]).stderr == ""


def test_a_case_that_passes_ends_with_0_and_is_in_each_report(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"report.{name}" for name in ("json", "junit")}
    options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    result = conform("local:", *ONE, *options)
    assert (result.exit_code, result.exception) == (0, None)
    assert "1/1" in result.output
    assert json.loads(paths["json"].read_text())["outcomes"][0]["case"] == CASE
    assert CASE in paths["junit"].read_text()


def test_a_case_that_could_not_be_judged_lowers_the_verdict_and_ends_with_1(busy: None) -> None:
    result = conform(*BOTH)
    assert result.exit_code == 1
    assert "Conforms in part" in result.output
    assert "1 case passed, 1 case not judged" in result.output
    assert "1 case should have been judged: " in result.output


def test_a_case_that_could_not_be_judged_is_no_matter_if_it_is_allowed(busy: None) -> None:
    result = conform(*BOTH, "--allow-skipped")
    assert (result.exit_code, result.exception) == (0, None)
    assert "1 case not judged, as allowed" in result.output


def test_a_run_of_which_no_case_could_be_judged_fails_whatever_is_allowed(busy: None) -> None:
    assert conform("--case", OTHER, "--allow-skipped").exit_code == 0
    assert conform("--case", OTHER, "--allow-skipped").exit_code == 1  # busy from now on


def test_an_interrupted_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Failing(lambda asked: KeyboardInterrupt() if asked else None)
    monkeypatch.setattr(module, "connect", lambda *_, **__: client_of(server))
    path, known = tmp_path / "report.json", tmp_path / "known.json"
    kept = ("--json", str(path), "--baseline", str(known), "--write-baseline")
    result = conform(*BOTH, *kept, "--allow-skipped")
    assert result.exit_code == 1
    assert "interrupted" in result.output
    assert "1 case passed, 1 case not judged" in result.output
    assert [each["case"] for each in json.loads(path.read_text())["outcomes"]] == [CASE]
    assert not known.exists()


def test_list_prints_ids_and_runs_nothing(wrong: None) -> None:
    result = conform("--list", "--operator", "KlDivBackward", "--block", "grid")
    assert (result.exit_code, result.exception) == (0, None)
    assert CASE in result.output.splitlines()
    assert len(result.output.splitlines()) == 96  # 4 shapes, 3 dtypes, 4 reductions, 2 log_target


def test_a_failing_case_is_named_saved_and_replayed_until_the_server_is_mended(
    tmp_path: Path, wrong: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = conform(*ONE, "--save", str(tmp_path))
    assert result.exit_code == 1
    assert f"such as {CASE}" in result.output
    (folder,) = tmp_path.iterdir()
    replayed = replay(str(folder))
    assert replayed.exit_code == 1
    assert f"{CASE}: failed\n  " in replayed.output
    monkeypatch.undo()
    told = json.loads(replay(str(folder), "local:", "--json").output)
    assert told == {"case": CASE, "status": "passed", "problems": []}
    assert replay(str(folder), "local:").exit_code == 0


@each(
    ("words", "says"),
    [
        (("local:", *ONE, "--block", "nonsense"), "block"),
        (("local:", *ONE, "--dtype", "f99"), "dtype"),
        (("local:", *ONE, "--profile", "none"), "profile"),
        (("local:", "--case", "aclnnNothing/grid/0"), "filters"),
        (
            ("local:", *ONE, "--operator", "KlDivTarget"),
            "found 'KlDivTarget'; did you mean aclnnKlDivTargetBackward or",
        ),
        (("local:", "--case", "aclnnTanh/fuzz/a-1"), "letters and digits behind fuzz/, found a-1"),
        (
            ("local:", "--adapter", "torch_npu", *ONE),
            "target: expected none beside an adapter",
        ),
        (("--adapter", "torch", *ONE), "adapter: expected one of torch_npu"),
        (("--adapter", "torch_npu", "--soc", "Ascend910A", *ONE), "soc: expected none"),
        (("local:", "--fuzz", "1", "--block", "grid"), "fuzz: expected none of --case"),
        (("local:", "--fuzz", "1", "--quick"), "fuzz: expected none of --case"),
        (("local:", "--fuzz", "1", "--case", "x"), "fuzz: expected none of --case"),
        (("local:", *ONE, "--write-baseline"), "expected --baseline FILE"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(words: tuple[str, ...], says: str) -> None:
    result = conform(*words)
    assert isinstance(result.exception, ValueError)
    assert says in str(result.exception)


def test_local_has_the_rules_of_the_soc_that_is_asked_for_also_beside_a_host(
    tmp_path: Path,
) -> None:
    path = tmp_path / "report.json"
    words = ("--soc", "Ascend310P3", "--operator", "Silu", "--block", "grid", "--json", str(path))
    result = conform("local:", *words)
    report = json.loads(path.read_text())
    assert (result.exit_code, report["server"]["product"]) == (0, "Ascend310P")
    assert "bf16" not in {o["dtype"] for o in report["outcomes"] if o["status"] == "passed"}
    words = ("--soc", "Ascend910A", "--against", "local:", "--operator", "Silu", "--block", "grid")
    assert conform("local:", *words, "--json", str(path)).exit_code == 0
    assert json.loads(path.read_text())["against"]["soc"] == "Ascend910A"


def test_a_case_that_failed_on_another_soc_is_run_again_and_replayed_there(
    tmp_path: Path, wrong_on_310p: None
) -> None:
    result = conform("local:", "--soc", "Ascend310P3", *ONE, "--save", str(tmp_path))
    assert result.exit_code == 1
    assert "npucall conform local: --soc Ascend310P3 --profile cpu-strict" in result.output
    (folder,) = tmp_path.iterdir()
    assert replay(str(folder), "local:", "--soc", "Ascend310P3").exit_code == 1
    assert replay(str(folder), "local:").exit_code == 0


def test_a_random_call_that_fails_is_run_again_by_its_id_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_clock: object
) -> None:
    words = ("local:", "--fuzz", "1", "--operator", "SmoothL1Loss", "--save", str(tmp_path))
    with monkeypatch.context() as patched:
        of("SmoothL1Loss", "", "0.5 * distance * distance", "distance * distance").apply(patched)
        result = conform(*words)
        assert result.exit_code == 1
        folder, *_ = tmp_path.iterdir()
        about = json.loads((folder / "case.json").read_text())
        assert "drawn: self " in about["problems"][-1]
        again = ("local:", "--case", about["case"])
        assert f"npucall conform local: --profile cpu-strict --seed 0 --case {about['case']}" in (
            result.output
        )
        assert conform(*again).exit_code == replay(str(folder), "local:").exit_code == 1
    assert conform(*again).exit_code == replay(str(folder), "local:").exit_code == 0


def test_golden_data_need_no_server(tmp_path: Path) -> None:
    words = ["--operator", "Glu", "--block", "grid", "--soc", "Ascend950PR_9589"]
    result = conform("nowhere:1", "--export", str(tmp_path / "gold"), *words)
    assert (result.exit_code, result.exception) == (0, None)
    manifest = json.loads((tmp_path / "gold" / "manifest.json").read_text())
    assert (manifest["product"], manifest["profile"]) == ("Ascend950", "cann-standard")
    assert f"{len(manifest['cases'])} cases for Ascend950" in result.output


SOCS = {
    "Ascend910B1": "Ascend910B", "Ascend910_9391": "Ascend910_93", "Ascend950PR_9589": "Ascend950",
    "Ascend910A": "Ascend910", "Ascend310P3": "Ascend310P", "Ascend310B1": "Ascend310B",
}  # fmt: skip


@each(("soc", "product"), SOCS.items())
def test_each_product_has_its_own_rules(soc: str, product: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    words = ("--operator", "Tanh", "--block", "grid", "--quick", "--json", str(path))
    result = conform("local:", "--soc", soc, *words)
    assert (result.exit_code, result.exception) == (0, None)
    assert json.loads(path.read_text())["server"]["product"] == product


@pytest.mark.long
@pytest.mark.parametrize("soc", [soc for soc in SOCS if soc != DEFAULT_SOC])
def test_every_other_product_passes_in_full(soc: str) -> None:
    """The usual one operator by operator, in ``test_suite_passes``."""
    assert conform("local:", "--soc", soc).exit_code == 0
