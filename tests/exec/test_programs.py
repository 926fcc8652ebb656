"""What programs find under ``npucall exec``, and what their users are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.npu import running_npu_server
from tests.rows import each

from npucall_client import connect
from npucall_client.testing import running_server

from . import operators
from .conftest import HERE, MAIN, Run

ROOT = Path(__file__).parents[2]
LOST = b"npucall exec: the command that computes has ended, and this program with it\n"
SAID = "npucall exec: computed by local for Ascend910B1\n"


def test_the_sample_of_the_page_compiles_and_prints_the_gradient(
    tree: Path, run_under: Run
) -> None:
    done = run_under("--strict", "--compile", ROOT / "examples/exec/kl_div_backward.cpp")
    assert (done.returncode, done.stdout, done.stderr) == (0, "-4 -9 -20 -40 \n", SAID)


@pytest.fixture(scope="session")
def sampled(
    compiled: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """A program that calls every operator, and the lines that it prints."""
    calls = operators.samples()
    source = tmp_path_factory.mktemp("sources") / "operators.cpp"
    source.write_text(operators.program(calls))
    return compiled(source), [line for call in calls for line in operators.expected(call)]


@contextmanager
def other_target(kind: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """The flags by which servers compute."""
    side = f"--shared-memory={folder / 'side'}"
    if kind == "npu":
        with running_npu_server() as server:
            yield "--target", server.target
    elif kind == "pool":
        with running_server() as one, running_server() as other:
            yield "--target", f"pool:{one.target},{other.target}"
    else:
        with running_server(side) as server:
            yield *(["--shared"] if kind == "shared" else []), "--target", server.target


@pytest.mark.more
def test_every_operator_gives_the_bytes_of_the_reference(
    sampled: tuple[Path, list[str]], run_here: Run
) -> None:
    assert run_here("--", sampled[0]).stdout.splitlines() == sampled[1]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["server", "shared", "pool", "npu"])
def test_every_operator_gives_these_bytes_wherever_it_is_computed(
    sampled: tuple[Path, list[str]], run_under: Run, tmp_path: Path, kind: str
) -> None:
    with other_target(kind, tmp_path) as flags:
        done = run_under(*flags, "--", sampled[0])
    assert done.stdout.splitlines() == sampled[1], done.stderr


ENDS = {
    "runs": (0, "0.5\n", ""),
    "refused": (
        0,
        "161002 EZ1001: [aclnnSigmoidGetWorkspaceSize] self: expected",
        "161002: self: expected shape (3,), that of out, found (2,)",
    ),
    "huge": (0, "161002 EZ1001: [aclnnSigmoidGetWorkspaceSize] call: expected at most 8388608", ""),
    "touches": (128 + 11, "", "the host touched device memory: copy it with aclrtMemcpy"),
    "infinities": (0, "-3.40282e+38\n-inf\n", ""),
    "beyond": (0, "507015\n", "finding: aclnnSigmoid: self: 4128 bytes at byte 0"),
    "padding": (
        0,
        "0.5 0.5\n",
        "finding: aclnnSigmoid: self: 8 bytes at byte 0 of an allocation of 4",
    ),
    "threads": (0, "25 " * 8, ""),
    "detached": (0, "5\n", ""),
    "child": (0, "1\n", "violation: aclrtCreateStream: called in a forked child"),
    "again": (0, "207001\n", ""),
}
"""What the probe is asked: its exit code, what it prints first, and what its user is told."""


def test_what_programs_do_has_the_end_that_it_has_on_a_device(probe: Path, run_here: Run) -> None:
    """They are processes of one command, and each has a device of its own."""
    runs = (f"{probe} {asked}; printf '\\f%d\\f' $?" for asked in ENDS)
    done = run_here("--", "bash", "-c", "; ".join(runs))
    assert done.returncode == 0
    *told, end = done.stdout.split("\f")
    found = dict(zip(ENDS, zip(map(int, told[1::2]), told[::2], strict=True), strict=True))
    cut = {asked: (code, text[: len(ENDS[asked][1])]) for asked, (code, text) in found.items()}
    assert (cut, end) == ({asked: row[:2] for asked, row in ENDS.items()}, ""), done.stderr
    assert [row[2] for row in ENDS.values() if row[2] not in done.stderr] == []


@each(("asked", "code"), [("fails", 7), ("raises", 128 + 15)])
def test_the_end_of_a_program_is_that_of_the_command(
    probe: Path, run_here: Run, asked: str, code: int
) -> None:
    done = run_here("--", probe, asked)
    assert (done.returncode, done.stdout) == (code, "")
    assert "no call arrived" in done.stderr


def test_a_finding_is_an_exit_code_of_its_own_and_stands_in_the_report(
    probe: Path, run_here: Run, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    done = run_here("--strict", "--quiet", "--report", report, "--", probe, "early")
    found = json.loads(report.read_text())
    assert (done.returncode, done.stderr) == (3, "")
    assert found["findings"][0].startswith("aclrtFree: frees bytes that work of stream")
    assert any(line.startswith("end: ") for line in found["findings"])
    assert (found["exit_code"], found["processes"], found["launches"]) == (0, 1, 1)


def test_processes_at_the_same_time_and_a_program_that_is_not_there(
    probe: Path, run_here: Run
) -> None:
    done = run_here("--", "bash", "-c", f"{probe} runs & {probe} runs; wait; /nowhere/program")
    assert (done.returncode, done.stdout) == (127, "0.5\n" * 2)
    page = run_here("--", ROOT / "README.md")
    assert (page.returncode, "no call arrived" in page.stderr) == (126, False)


def test_nothing_is_started_where_nothing_could_compute(
    run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUCALL_CONNECT_TIMEOUT", "0.3")
    lost = run_here("--target", "127.0.0.1:1", "--", "echo", "started")
    assert (lost.returncode, lost.stdout) == (1, "")
    assert "expected a server at 127.0.0.1:1, found none" in lost.stderr
    monkeypatch.setattr("npucall_exec.exec_command.sys", SimpleNamespace(platform="darwin"))
    other = run_here("--", "echo", "started")
    assert (other.returncode, other.stdout) == (1, "")
    assert other.stderr == "npucall: npucall exec: expected Linux, found darwin\n"


def test_numbers_of_16_bits_are_those_of_numpy(probe: Path, run_here: Run) -> None:
    lines = [
        line.split() for line in run_here("-q", "--", probe, "sixteen_bits").stdout.splitlines()
    ]
    values = np.array([float.fromhex(text) for text, _ in lines], np.float32)
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    every = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(values[:65536], every)
    codes = np.array([int(code) for _, code in lines], np.uint16).view(np.float16)
    np.testing.assert_array_equal(codes, halves)


def test_a_program_without_the_command_is_told_to_use_it(probe: Path, tree: Path) -> None:
    plain = {k: v for k, v in os.environ.items() if k != "NPUCALL_EXEC"}
    done = subprocess.run(
        [probe, "starts"], env={**plain, "LD_LIBRARY_PATH": f"{tree}/lib64"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "500000\n")
    assert done.stderr.startswith("npucall exec: start this program with `npucall exec -- PROGRAM`")


@contextmanager
def looping(
    folder: Path, *program: str | Path, timeout: int = 120
) -> Iterator[tuple[subprocess.Popen[bytes], int, Callable[[], tuple[bytes, bytes]]]]:
    """A command whose program goes on, the program's number, and what they say until both end.

    ``timeout``: seconds for each of its calls.
    """
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", MAIN, "exec", "-q", *program, "loops"]
    variables = {**os.environ, "TMPDIR": str(folder), "NPUCALL_TIMEOUT": str(timeout)}
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline()), lambda: process.communicate(timeout=120)
    assert list(folder.iterdir()) == []


def kill_one(folder: Path, number: int, *program: str | Path) -> None:
    """Kills the program, or the command: then the program ends at its next call."""
    with looping(folder, *program) as (process, its_number, until_both_end):
        os.kill(its_number if number % 2 else process.pid, signal.SIGKILL)
        assert until_both_end() == (b"", b"" if number % 2 else LOST)
    assert process.returncode == (128 + 9 if number % 2 else -9)


@pytest.mark.parametrize(
    "count", [pytest.param(2, marks=pytest.mark.more), pytest.param(500, marks=pytest.mark.long)]
)
def test_nothing_is_left_of_what_is_killed(probe: Path, tmp_path: Path, count: int) -> None:
    for number in range(count):
        program = ("--", probe) if number % 20 != 10 else ("--compile", HERE / "probe.cpp", "--")
        kill_one(tmp_path / "tmp", number, "--target", "local:", *program)


@pytest.mark.long
def test_nothing_is_left_on_a_server_of_what_is_killed(probe: Path, tmp_path: Path) -> None:
    side = f"--shared-memory={tmp_path / 'side'}"
    with running_server(side, "--session-lease=3") as server, connect(server.target) as client:
        kill_one(tmp_path / "tmp", 0, "--target", server.target, "--", probe)
        folder = Path(f"/proc/{server.process.pid}/fd")
        before = len(list(folder.iterdir()))
        for number in range(450):
            shared = ("--shared",) if number % 4 < 2 else ()
            flags = (*shared, "--target", server.target)
            kill_one(tmp_path / "tmp", number, *flags, "--", probe)
        end = time.monotonic() + 60
        while (info := client.info()).bytes_in_flight or info.calls_in_flight:
            assert time.monotonic() < end, info
            time.sleep(0.1)
        assert len(list(folder.iterdir())) <= before + 8
        assert not [file for file in folder.iterdir() if "memfd" in str(file.readlink())]


@pytest.mark.long
def test_a_program_whose_server_is_killed_ends_and_nothing_is_left(
    probe: Path, tmp_path: Path
) -> None:
    for number in range(50):
        shared = ("--shared",) if number % 2 else ()
        with running_server(f"--shared-memory={tmp_path / 'side'}") as server:
            flags = (*shared, "--target", server.target)
            loops = looping(tmp_path / "tmp", *flags, "--", probe, timeout=10)
            with loops as (process, _, until_both_end):
                server.process.kill()
                told, _ = until_both_end()
        assert (process.returncode, told[:6]) == (9, b"507010")


@pytest.mark.more
def test_a_server_computes_for_a_program_whose_calls_travel_in_frames(
    probe: Path, run_under: Run
) -> None:
    with running_server() as server, connect(server.target) as client:
        done = run_under("--target", server.target, "--", probe, "runs")
        lines = [each for each in client.usage().lines if each.operator]
    assert (done.returncode, done.stdout) == (0, "0.5\n")
    assert "computed by cpu for" in done.stderr
    assert [each.calls_in_frames for each in lines] == [each.calls for each in lines] != []


@pytest.mark.more
def test_device_memory_may_be_memory_of_the_server(
    probe: Path, run_under: Run, tmp_path: Path
) -> None:
    with running_server(f"--shared-memory={tmp_path / 'side'}") as server:
        done = run_under("--shared", "--target", server.target, "--", probe, "runs")
        assert (done.returncode, done.stdout) == (0, "0.5\n")
        assert "shared" not in done.stderr
        larger = run_under(
            "--shared", "--device-memory", "1000", "--target", server.target, "--", probe, "runs"
        )
    assert (larger.returncode, larger.stdout) == (0, "0.5\n")
    assert "shared_memory_limit" in larger.stderr
