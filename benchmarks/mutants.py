"""Measures the tests: makes one change in the product at a time, and counts how many they see.

``make mutants`` draws a sample of changes with a seed, so that two versions of the tests can be
judged by the same changes. One run of all tests finds which of them reach which of the changed
lines (``reach/``). Then each change is made in a clone of the checkout, and the tests that reach
it run: first quick ones and those that reach few other changes. If no test reaches it in the
tests' own process, the other tests of the module's folders follow, then the rest. A change is
caught by the first test that fails twice with it and passed in the run before; other tests that
fail are left out from then on. After ``SECONDS`` of processor time it counts as missed, so that
other load on the machine decides nothing.

Needs cosmic-ray, which makes the changes, in an environment of its own (``.venv-mutants``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from changes import Mutant, changed, sample
from commit import commit

SECONDS = 60.0
"""Of processor time that a change may cost."""
_WALL_SECONDS = 3600.0
_MEMBERS = ("proto", "server", "client", "conformance", "exec", "pool")
_SELECTED = "not long and not containers and not pool"
"""What make test and make test-all run together."""
_FIRST = 40
"""Tests of the first run of a change: it collects little."""
_LONG = 2.0
"""Seconds of a test that comes last."""
_NAMED = 1000
"""More tests than that are run file by file: naming each takes longer."""
_FOLDERS = {
    "npucall": ("proto", "operators", "conformance", "server", "client"),
    "npucall_server": ("server", "attacks", "end_to_end", "directory"),
    "npucall_client": ("client", "conformance_suite", "end_to_end"),
    "npucall_conformance": ("conformance_suite", "conformance", "operators", "client"),
}
"""Where the tests of a package stand, nearest first."""


class Reach:
    """Which tests reach which of the changed lines."""

    def __init__(self, folder: Path) -> None:
        self._tests: dict[int, dict[str, bool]] = {}
        for file in folder.glob("reached-*"):
            for line in file.read_text(encoding="utf-8").splitlines():
                number, test, elsewhere = json.loads(line)
                if not test.startswith("tests/"):
                    continue  # a test that a test wrote
                tests = self._tests.setdefault(number, {})
                tests[test] = tests.get(test, True) and elsewhere
        printed = folder / "copy.out"
        out = printed.read_text(encoding="utf-8") if printed.exists() else ""
        self.failed = _failed(out)
        times = re.findall(r"^([\d.]+)s (?:call|setup) +(\S.*)$", out, re.MULTILINE)
        self._seconds = {test: float(seconds) for seconds, test in reversed(times)}
        """Of the tests that take long."""
        self._breadth = Counter(test for tests in self._tests.values() for test in tests)

    def stages(self, root: Path, number: int, module: str) -> list[list[str]]:
        """The tests to run for a change, in the order in which they are likely to see it."""
        tests = self._tests.get(number, {})
        near, *rest = _files(root, module)
        ordered = sorted(tests, key=lambda test: (
            self._seconds.get(test, 0), self._breadth[test], _file(test) not in near
        ))  # fmt: skip
        first, others = ordered[:_FIRST], ordered[_FIRST:]
        turn = {_file(test): number for number, test in reversed([*enumerate(others)])}
        # Servers of a file start once.
        others.sort(key=lambda test: (self._seconds.get(test, 0) > _LONG, turn[_file(test)]))
        left = sorted({_file(test) for test in others[_NAMED:]})
        chosen = [sorted(first, key=_file), others[:_NAMED], left]
        return chosen if not all(tests.values()) else [*chosen, near, *rest]


def _failed(out: str) -> list[str]:
    """The tests that failed, from what pytest printed."""
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", out, re.MULTILINE)


def _file(test: str) -> str:
    return test.partition("::")[0]


def reached(root: Path, folder: Path, python: str, mutants: list[Mutant]) -> Reach:
    """Runs all tests once, unless an earlier run stands in the folder."""
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        copy = Copy(root, folder / "copy", python, Reach(folder))
        places: dict[str, list[tuple[int, int]]] = {}
        for number, mutant in enumerate(mutants):
            path = os.path.realpath(folder / "copy" / mutant.module)
            places.setdefault(path, []).append((number, mutant.line))
        (folder / "places.json").write_text(json.dumps(places), encoding="utf-8")
        os.environ["MUTANTS_PLACES"] = str(folder / "places.json")
        probes = str(Path(__file__).parent / "reach")
        copy.pytest(
            ["-n", "2", "--maxfail=100000", "--durations=0", "--durations-min=0.3", "tests"],
            _WALL_SECONDS,
            probes,
        )
        del os.environ["MUTANTS_PLACES"]
        (folder / "done").touch()
    return Reach(folder)


def _files(root: Path, module: str) -> list[list[str]]:
    """Files of tests: those that import the module, those of its folders, the rest."""
    files = sorted(str(p.relative_to(root)) for p in root.glob("tests/**/test_*.py"))
    dotted = re.sub(r"(/__init__)?\.py$", "", module.partition("/")[2]).replace("/", ".")
    package, _, name = dotted.rpartition(".")
    imports = re.compile(
        rf"{re.escape(dotted)}\b|from {re.escape(package)} import [^\n]*\b{re.escape(name)}\b"
    )
    near = [f for f in files if imports.search((root / f).read_text(encoding="utf-8"))]
    folders = _FOLDERS[dotted.partition(".")[0]]
    room = [f for folder in folders for f in files if f.startswith(f"tests/{folder}/")]
    ordered = [near, [f for f in room if f not in near]]
    return [*ordered, [f for f in files if f not in {*near, *room}]]


class Copy:
    """A clone of the checkout, in which one change at a time is tried."""

    def __init__(self, root: Path, folder: Path, python: str, reach: Reach) -> None:
        subprocess.run(["git", "clone", "--quiet", root, folder], check=True)
        self._folder, self._python, self._reach = folder, python, reach
        self._unfit = set(reach.failed)
        """Tests that fail without a change, too, or not always, or are not there."""

    def judge(self, number: int, mutant: Mutant) -> dict[str, Any]:
        """What the tests say of a change, and for how long they looked."""
        path = self._folder / mutant.module
        before, after = path.read_text(encoding="utf-8"), changed(path, mutant)
        assert after not in (None, before), mutant
        path.write_text(after, encoding="utf-8")
        try:
            stages = self._reach.stages(self._folder, number, mutant.module)
            while True:
                said, used = self._tried(stages)
                test = said.removeprefix("caught: ")
                if test == said or self.pytest([test], SECONDS)[0] != 0:
                    break
                self._unfit.add(test)
        finally:
            path.write_text(before, encoding="utf-8")
        lines = zip(before.split("\n"), after.split("\n"), strict=False)
        change = next((f"{a.strip()} -> {b.strip()}" for a, b in lines if a != b), "")
        return {"mutant": mutant, "said": said, "seconds": round(used, 1), "change": change}

    def _tried(self, stages: list[list[str]]) -> tuple[str, float]:
        used = 0.0
        for each in stages:
            while stage := [test for test in each if test not in self._unfit]:
                code, seconds, out = self.pytest(stage, SECONDS - used)
                used += seconds
                if code is None:
                    return "missed: time", used
                absent = self._absent(stage, out)
                self._unfit |= absent
                if not absent:
                    break
            if stage and code not in (0, 5):
                failed = _failed(out)
                return f"caught: {failed[0] if failed else stage[0]}", used
        return "missed", used

    def _absent(self, stage: list[str], out: str) -> set[str]:
        """The tests that are not there: pytest names their function."""
        missing = re.findall(rf"not found: {re.escape(str(self._folder))}/(.+)", out)
        return {test for test in stage if {test, test.partition("[")[0]} & {*missing}}

    def pytest(
        self, tests: list[str], seconds: float, before: str = ""
    ) -> tuple[int | None, float, str]:
        """Its exit code, or None if the time ended; processor time; what it printed."""
        members = (str(self._folder / member) for member in _MEMBERS)
        path = os.pathsep.join([*filter(None, [before]), *members])
        asked = self._folder.with_suffix(".tests")
        asked.write_text("\n".join(tests), encoding="utf-8")
        command = [self._python, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:randomly",
                   "-p", "no:cacheprovider", "-m", _SELECTED, f"@{asked}",
                   *(f"--deselect={test}" for test in self._unfit)]  # fmt: skip
        out = self._folder.with_suffix(".out")
        with out.open("w") as printed:
            process = subprocess.Popen(
                command, cwd=self._folder, env={**os.environ, "PYTHONPATH": path},
                stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            began, used = time.monotonic(), 0.0
            while (code := process.poll()) is None:
                time.sleep(0.2)
                used = max(used, _used(process.pid))
                if used > seconds or time.monotonic() - began > _WALL_SECONDS:
                    break
            _end(process)
        return code, used, out.read_text(errors="replace")


def _used(session: int) -> float:
    """Processor time of a session's processes, and of those that they have waited for."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _end(process: subprocess.Popen[Any]) -> None:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            session = int(stat.read_text().rpartition(")")[2].split()[3])
        except OSError:
            continue
        if session == process.pid:
            try:
                os.kill(int(stat.parent.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    process.wait()


def main() -> None:
    """Judges the sample's changes that have no result yet, and prints the share that is caught."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--root", type=Path, default=Path.cwd())
    asked.add_argument("--python", default=str(Path.cwd() / ".venv/bin/python"))
    asked.add_argument("--count", type=int, default=308)
    asked.add_argument("--seed", type=int, default=28)
    asked.add_argument("--at-once", type=int, default=2)
    asked.add_argument("--folder", type=Path, default=Path("build/mutants"))
    asked.add_argument("--report", type=Path, default=Path("docs/mutants.txt"))
    given = asked.parse_args()
    root, folder = given.root.absolute(), given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    done = {tuple(json.loads(line)["mutant"]) for line in lines}
    mutants = sample(root, given.count, given.seed)
    reach = reached(root, folder / "reach", given.python, mutants)
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(given.at_once):
        shutil.rmtree(folder / f"copy{number}", ignore_errors=True)
        copies.put(Copy(root, folder / f"copy{number}", given.python, reach))

    def judged(number: int, mutant: Mutant) -> None:
        if mutant in done:
            return
        copy = copies.get()
        try:
            result = copy.judge(number, mutant)
        finally:
            copies.put(copy)
        with results.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(result["said"].partition(":")[0], mutant, result["change"], flush=True)

    with ThreadPoolExecutor(given.at_once) as pool:
        list(pool.map(judged, *zip(*enumerate(mutants), strict=True)))
    said = _report([json.loads(line) for line in results.read_text().splitlines()], root)
    given.report.write_text(said, encoding="utf-8")
    print(said.partition("\n")[0])


def _report(results: list[dict[str, Any]], root: Path) -> str:
    """The share that is caught, and a line for each change that is not."""
    missed = [each for each in results if each["said"].startswith("missed")]
    caught = len(results) - len(missed)
    lines = [f"{Mutant(*each['mutant'])} {each['change']}" for each in missed]
    share = f"{caught} of {len(results)} changes caught, {caught / len(results):.1%}"
    head = f"{datetime.now(UTC):%Y-%m-%d}, commit {commit(root)}: {share}; missed:"
    return "\n".join([head, "", *sorted(lines), ""])


if __name__ == "__main__":
    main()
