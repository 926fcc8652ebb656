"""``npucall-server doctor`` as an administrator types it, and the report that it writes."""

import io
import json
import os
import platform
import re
import socket
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.rows import each
from tests.simulator.tree import Generation, Tree

from npucall_server.commands import doctor
from npucall_server.commands.doctor import report
from npucall_server.commands.doctor.finding import Finding, Message, fault, ok, warning
from npucall_server.devices.cann.unverified import UNVERIFIED

from .conftest import Host, make_host

SECRET = "what nobody else may read"
KEYS = {claim.key for claim in UNVERIFIED}
HEADER = {"device": "cann:0", "date": "today"}


def object_in(text: str) -> Any:
    return json.loads(text.partition("```json\n")[2].partition("```")[0])


def install_simulated(host: Host, toolkit: Generation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the toolkit of a host be the simulator, as the environment says."""
    (host.home / "lib64").rmdir()
    (host.home / "lib64").symlink_to(toolkit.lib64)
    (host.home / "include").symlink_to(toolkit.include)
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NPUCALL_SIM_UNRUN", "guarded")
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)


class Run(NamedTuple):
    """What one run of the doctor left."""

    code: int
    printed: str
    report: str
    custom: bool


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("8.1", False), marks=pytest.mark.long),
        pytest.param(("8.1", True), marks=pytest.mark.more),
        pytest.param(("8.3", False), marks=pytest.mark.more),
        pytest.param(("8.3", True), marks=pytest.mark.long),
        pytest.param(("9.x", True), marks=pytest.mark.more),
        pytest.param(("9.x", False), marks=pytest.mark.more),
    ],
    ids=lambda param: f"{param[0]}{' with a custom package' * param[1]}",
)
def healthy(
    tree: Tree, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """The doctor's run on a healthy host of each release, with and without a custom package."""
    generation, custom = request.param
    folder = tmp_path_factory.mktemp("host")
    host, file = make_host(folder / "root"), folder / "report.txt"
    with pytest.MonkeyPatch.context() as monkeypatch, redirect_stdout(io.StringIO()) as printed:
        install_simulated(host, tree.generation(generation), monkeypatch)
        monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(tree.custom) if custom else "")
        monkeypatch.setenv("NPUCALL_TOKEN", SECRET)
        code = doctor.run(["--report", str(file)], host.root)
    return Run(code, printed.getvalue(), file.read_text(), custom)


# --- Of a healthy host, examined in a process of its own ------------------------------------------


def test_a_healthy_host_is_0_and_its_report_has_all_that_was_printed(healthy: Run) -> None:
    assert healthy.code == 0
    assert "FAULT" not in healthy.printed
    assert "  ok      the device was given back\n" in healthy.printed
    assert healthy.printed.endswith("0 faults, 0 warnings.\n")
    findings, _, _ = healthy.printed.partition("settled here")
    assert findings in healthy.report


def test_every_claim_is_settled_or_says_how_to_check_it(healthy: Run) -> None:
    told = object_in(healthy.report)
    assert {key for finding in told["findings"] for key in finding["settles"]} <= KEYS
    claims = told["claims"]
    assert {claim["key"] for claim in claims} == KEYS
    assert all(claim["settled"] == "holds" or claim["check"] for claim in claims)
    left = [claim for claim in claims if claim["settled"] is None]
    _, _, by_hand = healthy.report.partition("left to check by hand")
    text = " ".join(by_hand.split())
    assert all(f"[ ] {claim['title']} -> {claim['check']}" in text for claim in left)
    settled = {claim["key"] for claim in claims if claim["settled"]}
    assert ("library-order" in settled) == healthy.custom
    assert {"unrun-executor", "pinned-memory", "stream-order", "views", "infnan"} <= settled


def test_the_documentation_says_which_claims_each_section_settles(healthy: Run) -> None:
    page = (Path(__file__).parents[4] / "docs/ascend.md").read_text()
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
    trials = [f["times_ms"] for f in findings if "right twice" in f["found"]]
    copies = [f["times_ms"] for f in findings if "staging_limit" in f["found"]]
    assert (len(trials) > 5, len(copies)) == (True, 3)
    phases = ("copy_in", "plan", "run", "copy_out")
    steps = {"elapsed", *(f"{which} {p}" for which in ("first", "second") for p in phases)}
    assert all(trial.keys() == steps and min(trial.values()) >= 0 for trial in trials)
    assert all(copy.keys() == {"elapsed", "copy in", "copy out"} for copy in copies)
    assert all(finding["times_ms"]["elapsed"] >= 0 for finding in findings)


def test_the_head_tells_the_versions_and_the_machine_and_no_secrets(healthy: Run) -> None:
    told = object_in(healthy.report)
    assert told["device"] == "cann:0"
    assert told["python"].startswith(platform.python_version())
    assert told["machine"].startswith(platform.machine())
    assert told["facts"]["SoC"] == "Ascend910B2"
    assert re.fullmatch(r"\d\.\d\.\S+", told["facts"]["CANN"])
    assert f"CANN           {told['facts']['CANN']}\n" in healthy.report
    assert told["facts"]["driver"] == "25.5.0"
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", healthy.report)
    assert SECRET not in healthy.report


@pytest.mark.more
@pytest.mark.parametrize(
    ("faults", "seconds", "said"),
    [("aclnnKlDivBackward:1:crash:0", 90.0, "FAULT SIGSEGV ended the process while "),
     ("aclrtMallocHost:1:hang:0", 5.0, "FAULT no answer for 5 s while ")],
)  # fmt: skip
def test_a_crash_or_a_hang_of_cann_is_a_fault_and_not_the_end(
    host: Host, tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    faults: str, seconds: float, said: str,
) -> None:  # fmt: skip
    install_simulated(host, tree.generation("9.x"), monkeypatch)
    monkeypatch.setenv("NPUCALL_SIM_FAULTS", faults)
    file = host.root / "report"
    assert doctor.run(["--report", str(file)], host.root, seconds) == 69
    for text in (capsys.readouterr().out, file.read_text()):
        told = " ".join(text.split())
        assert said in told
        assert "1 fault, 0 warnings" in told


@pytest.mark.more
@each("lacks", ["the folder", "the variable too"])
def test_a_toolkit_without_operators_is_a_fault_and_not_the_end(
    tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str], lacks: str
) -> None:
    """The device is examined all the same, and says what CANN says without them."""
    host = make_host(tmp_path / lacks)
    (host.home / "opp").rmdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        install_simulated(host, tree.generation("9.x"), monkeypatch)
        if lacks != "the folder":
            monkeypatch.delenv("ASCEND_OPP_PATH")
        assert doctor.run(["--json"], host.root) == 69
    findings = json.loads(capsys.readouterr().out)["findings"]
    first = next(each for each in findings if each["verdict"] == "FAULT")
    assert first["found"].startswith("ASCEND_OPP_PATH is ")
    assert first["todo"].startswith("install CANN's operators and kernels for this chip into ")
    assert {"libraries", "device", "trial"} <= {each["section"] for each in findings}


@pytest.mark.more
def test_the_command_ends_with_69_where_no_npu_is() -> None:
    environment = {name: v for name, v in os.environ.items() if not name.startswith("ASCEND_")}
    done = subprocess.run(
        [sys.executable, "-m", "npucall_server", "doctor"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (69, "")
    assert "FAULT   ASCEND_HOME_PATH and ASCEND_OPP_PATH are not set\n" in done.stdout


def says(
    monkeypatch: pytest.MonkeyPatch, *found: Message, then: BaseException | None = None
) -> None:
    """Lets the process that examines the device say this, and perhaps be interrupted."""

    def in_child(*_: object) -> Any:
        yield from found
        if then:
            raise then

    monkeypatch.setattr(doctor, "in_child", in_child)


def test_json_says_the_same(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    says(monkeypatch, ok("the device is open"))
    (host.root / "dev/hisi_hdc").unlink()
    assert doctor.run(["--json", "--device", "cann:1"], host.root) == 69
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (said["device"], said["faults"]) == ("cann:1", 1)
    found = {(each["verdict"], each["found"]) for each in said["findings"]}
    assert found >= {("FAULT", "/dev does not have hisi_hdc"), ("ok", "the device is open")}
    assert len(said["claims"]) == len(UNVERIFIED)


def test_a_reader_that_has_enough_ends_it_without_a_traceback(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, ok("never seen"))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as broken:
        monkeypatch.setattr(sys, "stdout", broken)
        assert doctor.run([], host.root) == 69
        broken.write("more")  # goes nowhere now: nothing fails when the process ends


def test_an_interrupted_run_leaves_its_report(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    says(monkeypatch, ok("so far"), then=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        doctor.run(["--report", str(tmp_path / "file")], host.root)
    assert "  ok      so far\n" in (tmp_path / "file").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [*((["--device", device], 2, f"expected cann:N, found '{device}'")
       for device in ("cpu", "cann", "cann:x", "0")),
     (["--report", "/nowhere/file"], 2, "--report: expected a file to write"),
     (["--help"], 0, "no host name, no addresses, no tokens")],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_is_and_help_says_what_is_in_the_file(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        doctor.run(arguments)
    assert caught.value.code == code
    printed = capsys.readouterr()
    assert said in " ".join((printed.out + printed.err).split())


def test_the_worst_finding_about_a_claim_is_the_answer() -> None:
    def claims(*found: Finding) -> Any:
        return {each["key"]: each for each in report.as_object(HEADER, {}, found)["claims"]}

    found = [ok("fine", "views"), warning("so so", "look", "views", "infnan"), fault("no", "x")]
    said = claims(*found)
    assert (said["views"]["settled"], said["views"]["by"]) == ("look", ["fine", "so so"])
    assert (said["infnan"]["settled"], said["rules"]["settled"]) == ("look", None)
    assert claims(*found, fault("no", "x", "views"))["views"]["settled"] == "does not"


def test_a_section_has_its_title_once() -> None:
    found = [ok(text)._replace(section="two") for text in ("fine", "well")]
    assert "".join(report.as_lines(found)) == "\ntwo\n  ok      fine\n  ok      well\n"


def test_the_file_says_what_to_do_about_a_fault() -> None:
    found = fault("it is broken", "mend it")._replace(section="trial")
    text = report.as_file(HEADER, {"CANN": "8.1"}, [found])
    assert "trial\n  FAULT   it is broken\n          -> mend it\n" in text
    assert "result  1 fault, 0 warnings\n" in text
    assert object_in(text)["findings"][0]["todo"] == "mend it"
