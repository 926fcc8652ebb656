"""The report of a run: a file that a person can read and send, and a program too."""

from __future__ import annotations

import json
import platform
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from npucall_server import doctor
from npucall_server.devices.cann.unverified import UNVERIFIED
from npucall_server.doctor import report
from npucall_server.doctor.finding import Facts, Message, Section, fault, ok, warning

if TYPE_CHECKING:
    from .conftest import Run

from .conftest import SECRET

KEYS = {claim.key for claim in UNVERIFIED}
HEADER = {"device": "cann:0", "date": "today"}


def object_in(text: str) -> Any:
    return json.loads(text.partition("```json\n")[2].partition("```")[0])


# --- Of a healthy host ----------------------------------------------------------------------------


def test_a_healthy_host_is_0_without_faults_and_warnings(healthy: Run) -> None:
    assert healthy.code == 0
    assert "FAULT" not in healthy.printed
    assert "  ok      the device was given back\n" in healthy.printed
    assert healthy.printed.endswith("0 faults, 0 warnings.\n")


def test_the_file_has_all_that_was_printed_of_findings(healthy: Run) -> None:
    findings, _, _ = healthy.printed.partition("settled here")
    assert findings in healthy.report


def test_every_finding_settles_claims_that_are_there(healthy: Run) -> None:
    findings = object_in(healthy.report)["findings"]
    assert {key for finding in findings for key in finding["settles"]} <= KEYS


def test_every_claim_is_settled_or_says_how_to_check_it(healthy: Run) -> None:
    claims = object_in(healthy.report)["claims"]
    assert {claim["key"] for claim in claims} == KEYS
    assert all(claim["settled"] == "holds" or claim["check"] for claim in claims)
    left = [claim for claim in claims if claim["settled"] is None]
    _, _, by_hand = healthy.report.partition("left to check by hand")
    text = " ".join(by_hand.split())
    assert all(f"[ ] {claim['title']} -> {claim['check']}" in text for claim in left)


def test_a_custom_package_settles_the_order_of_libraries(healthy: Run) -> None:
    settled = {c["key"] for c in object_in(healthy.report)["claims"] if c["settled"]}
    assert ("library-order" in settled) == healthy.custom
    assert {"unrun-executor", "pinned-memory", "stream-order", "views", "infnan"} <= settled


def test_the_documentation_says_which_claims_each_section_settles(healthy: Run) -> None:
    page = (Path(__file__).parents[3] / "docs/ascend.md").read_text()
    _, _, table = page.partition("| section | looks at | settles |\n|---|---|---|\n")
    rows = [row.split(" | ") for row in table.partition("\n\n")[0].splitlines()]
    documented = {row[0].strip("| "): {*re.findall(r"`([\w-]+)`", row[-1])} for row in rows}
    found: dict[str, set[str]] = {}
    for finding in object_in(healthy.report)["findings"]:
        found.setdefault(finding["section"], set()).update(finding["settles"])
    if not healthy.custom:
        documented["operators"].discard("library-order")
    assert found == documented


def test_each_trial_has_the_times_of_its_steps(healthy: Run) -> None:
    findings = object_in(healthy.report)["findings"]
    trials = [f for f in findings if "right twice" in f["found"]]
    assert len(trials) > 5
    for trial in trials:
        phases = {"copy_in", "plan", "run", "copy_out"}
        steps = {f"{w} {p}" for w in ("first", "second") for p in phases}
        assert trial["times_ms"].keys() == {"elapsed", *steps}
        assert all(ms >= 0 for ms in trial["times_ms"].values())
    copies = [f for f in findings if "staging_limit" in f["found"]]
    assert len(copies) == 3
    assert all(c["times_ms"].keys() == {"elapsed", "copy in", "copy out"} for c in copies)
    assert all(finding["times_ms"]["elapsed"] >= 0 for finding in findings)


def test_the_head_tells_the_versions_and_the_machine(healthy: Run) -> None:
    told = object_in(healthy.report)
    assert told["device"] == "cann:0"
    assert told["python"].startswith(platform.python_version())
    assert told["machine"].startswith(platform.machine())
    assert told["facts"]["SoC"] == "Ascend910B2"
    assert re.fullmatch(r"\d\.\d\.\S+", told["facts"]["CANN"])
    assert f"CANN           {told['facts']['CANN']}\n" in healthy.report
    assert told["facts"]["driver"] == "25.5.0"


def test_it_does_not_name_the_host_or_hold_what_the_environment_has_of_others(
    healthy: Run,
) -> None:
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", healthy.report)
    assert SECRET not in healthy.report


# --- Of findings ----------------------------------------------------------------------------------


def messages(*findings: Any) -> list[Message]:
    facts = Facts((("CANN", "8.1"),))
    return [Section("trial", "trying"), facts, *findings]


def test_the_worst_finding_about_a_claim_is_the_answer() -> None:
    worse = [ok("fine", "views"), warning("so so", "look", "views", "infnan"), fault("no", "x")]
    claims = {c["key"]: c for c in report.as_object(HEADER, messages(*worse))["claims"]}
    assert claims["views"]["settled"] == "look"
    assert claims["views"]["by"] == ["fine", "so so"]
    assert claims["infnan"]["settled"] == "look"
    assert claims["rules"]["settled"] is None
    claims = {
        c["key"]: c
        for c in report.as_object(HEADER, messages(*worse, fault("no", "x", "views")))["claims"]
    }
    assert claims["views"]["settled"] == "does not"


def test_a_section_without_findings_has_no_title() -> None:
    lines = "".join(report.as_lines([Section("one", ""), Section("two", ""), ok("fine")]))
    assert lines == "\ntwo\n  ok      fine\n"


def test_the_file_says_what_to_do_about_a_fault() -> None:
    text = report.as_file(HEADER, messages(fault("it is broken", "mend it")))
    assert "trial\n  FAULT   it is broken\n          -> mend it\n" in text
    assert "result  1 fault, 0 warnings\n" in text
    assert object_in(text)["findings"][0]["todo"] == "mend it"


def test_an_interrupted_run_leaves_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Any:
        yield Section("environment", "")
        yield ok("so far")
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "diagnose", interrupted)
    with pytest.raises(KeyboardInterrupt):
        doctor.run(["--report", str(tmp_path / "file")])
    assert "  ok      so far\n" in (tmp_path / "file").read_text()


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        doctor.run(["--report", str(tmp_path / "absent" / "file")])
    assert "--report: expected a file to write" in capsys.readouterr().err


def test_the_help_says_what_is_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        doctor.run(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "no host name, no addresses, no tokens" in said
