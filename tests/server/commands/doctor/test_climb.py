"""``doctor --climb``: one server after the other, each judged, until one fails more."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import npu
from tests.rows import each

from npucall_server.commands import doctor
from npucall_server.commands.doctor import climb
from npucall_server.devices.cann.unverified import UNVERIFIED
from npucall_server.settings.server import read

FLAGS = [rung.flags for rung in climb.RUNGS]
SUITE = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *--write-baseline*) exit 1;; esac  # what fails there is known from then on
[ "$(wc -l < {log})" -lt {fails} ]
"""


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flags of those that were started."""
    started = list[str]()

    @contextmanager
    def serving(_: int, flags: str, __: Path) -> Iterator[bool]:
        started.append(flags)
        yield True

    monkeypatch.setattr(climb, "_serving", serving)
    return started


def suite(folder: Path, fails: int) -> Path:
    """A stand-in for the suite that fails from this server on."""
    script, log = folder / "npucall", folder / "log"
    log.write_text("")
    script.write_text(SUITE.format(log=log, fails=fails))
    script.chmod(0o755)
    return script


WRONG = r"is wrong on this host: workspace-reuse; serve with --careful --staging-limit 8MiB\. "


@each(("fails", "code", "says"), [(9, 0, "No line fails more than the first"), (3, 69, WRONG)])
def test_it_stops_at_the_first_server_that_fails_more_than_the_careful_one(
    servers: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fails: int,
    code: int,
    says: str,
) -> None:
    servers.clear()
    assert climb.climb(0, suite(tmp_path, fails)) == code
    assert re.search(says, capsys.readouterr().out)
    assert servers == FLAGS[:fails]
    calls = (tmp_path / "log").read_text().splitlines()
    assert [call.endswith("--write-baseline") for call in calls] == [
        number == 0 for number in range(len(servers))
    ]


def test_each_line_is_of_settings_and_claims_that_there_are() -> None:
    keys = {claim.key for claim in UNVERIFIED}
    for rung in climb.RUNGS:
        assert set(rung.claims) <= keys
        assert read([*rung.flags.split(), "--device=cann:0"]).device == "cann:0"


@pytest.mark.more
def test_a_simulated_npu_is_climbed_and_a_server_that_does_not_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    npu.need_compiler()
    for name, value in npu.environment().items():
        monkeypatch.setenv(name, value)
    few = "--quick", "--operator=GeluBackward", "--block=grid"
    monkeypatch.setattr(climb, "RUNGS", climb.RUNGS[:2])
    assert climb.climb(0, filters=few) == 0
    monkeypatch.setattr(climb, "RUNGS", [climb.RUNGS[0], climb.Rung("--lanes 0", "nothing")])
    assert climb.climb(0, filters=few) == 69
    assert "--lanes 0: serve with --careful. Send us the report." in capfd.readouterr().out


def test_without_the_suite_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert doctor.run(["--climb"]) == 2
    assert (
        "doctor --climb: the distribution npucall-conformance is missing" in capsys.readouterr().out
    )
