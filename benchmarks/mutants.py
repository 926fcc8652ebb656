"""Measures the tests: makes one change in the product at a time, and counts how many they see.

``make mutants`` draws a sample of changes with a seed, so that two versions of the tests can be
judged by the same changes. Each change is made in a clone of the checkout. First run the tests that
import the changed module, then those of its folder, then the rest. A change is caught by the first
test that fails with it and passes without it; tests that fail without it are left out from then on.
After ``SECONDS`` of processor time it counts as missed, so that other load on the machine decides
nothing.

Needs cosmic-ray, which makes the changes, in an environment of its own (``.venv-mutants``).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60.0
"""Of processor time that a change may cost."""
_WALL_SECONDS = 3600.0
_PARTS = (
    "proto/npucall",
    "server/npucall_server",
    "client/npucall_client",
    "conformance/npucall_conformance",
)
"""Of each part as many changes are drawn."""
_MEMBERS = ("proto", "server", "client", "conformance", "exec", "pool")
_SELECTED = "not long and not containers and not pool"
"""What make test and make test-all run together."""
_FOLDERS = {
    "npucall": ("proto", "operators", "conformance", "server", "client"),
    "npucall_server": ("server", "attacks", "end_to_end", "directory"),
    "npucall_client": ("client", "conformance_suite", "end_to_end"),
    "npucall_conformance": ("conformance_suite", "conformance", "operators", "client"),
}
"""Where the tests of a package stand, nearest first."""


class Mutant(NamedTuple):
    """One change: the occurrence of an operator of cosmic-ray in a module."""

    module: str
    operator: str
    occurrence: int
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.operator} {self.occurrence}"


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """As many changes, drawn evenly over the places that can be changed."""
    draw, drawn = random.Random(seed), []
    for part in _PARTS:
        places: list[list[Mutant]] = []
        for path in sorted((root / part).rglob("*.py")):
            if not re.search(r"_pb2(_grpc)?\.py$", path.name):
                places += _places(root, path)
        drawn += [draw.choice(place) for place in draw.sample(places, count // len(_PARTS))]
    draw.shuffle(drawn)
    return [mutant for mutant in drawn if _changed(root / mutant.module, mutant)]


def _places(root: Path, path: Path) -> Iterator[list[Mutant]]:
    """For each place of a module, the changes that can be made there."""
    source = path.read_text(encoding="utf-8")
    nodes = list(ast_nodes(get_ast(source)))
    unread = _annotations(source)
    found: dict[Any, list[Mutant]] = {}
    for name in sorted(cosmic_ray.plugins.operator_names()):
        if "/Variable" in name:
            continue  # they need to be told which
        operator, number = cosmic_ray.plugins.get_operator(name)(), 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                if not any(begin <= start < end for begin, end in unread):
                    mutant = Mutant(str(path.relative_to(root)), name, number, start[0])
                    found.setdefault(start, []).append(mutant)
                number += 1
    yield from found.values()


def _annotations(source: str) -> list[tuple[Any, Any]]:
    """What is no code at run time: a change there changes nothing."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            found.append(node.annotation)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [node.returns] if node.returns else []
            found += [d for d in node.decorator_list if ast.unparse(d).endswith("overload")]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.append(node)
    return [
        ((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset))  # type: ignore[attr-defined]
        for n in found
    ]


def _changed(path: Path, mutant: Mutant) -> str | None:
    """A module's text with the change; None if cosmic-ray cannot make it, as for ``except a.b``."""
    operator = cosmic_ray.plugins.get_operator(mutant.operator)()
    try:
        return mutate_code(path.read_text(encoding="utf-8"), operator, mutant.occurrence)
    except AttributeError:
        return None


def stages(root: Path, module: str) -> list[list[str]]:
    """Files of tests: those that import the module, those of its folder, the rest."""
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

    def __init__(self, root: Path, folder: Path, python: str) -> None:
        subprocess.run(["git", "clone", "--quiet", root, folder], check=True)
        self._folder, self._python = folder, python
        self._unfit: list[str] = []
        """Tests that fail without a change too."""

    def judge(self, mutant: Mutant, most: int) -> dict[str, Any]:
        """What the tests say of a change, and for how long they looked."""
        path = self._folder / mutant.module
        before, after = path.read_text(encoding="utf-8"), _changed(path, mutant)
        assert after not in (None, before), mutant
        while True:
            path.write_text(after, encoding="utf-8")
            try:
                said, used = self._tried(stages(self._folder, mutant.module)[:most])
            finally:
                path.write_text(before, encoding="utf-8")
            test = said.removeprefix("caught: ")
            if test == said or self._pytest([test], _WALL_SECONDS)[0] == 0:
                break
            self._unfit.append(test)
        lines = zip(before.split("\n"), after.split("\n"), strict=False)
        change = next((f"{a.strip()} -> {b.strip()}" for a, b in lines if a != b), "")
        return {"mutant": mutant, "said": said, "seconds": round(used, 1), "change": change}

    def _tried(self, files: list[list[str]]) -> tuple[str, float]:
        used = 0.0
        for stage in filter(None, files):
            code, seconds, out = self._pytest(stage, SECONDS - used)
            used += seconds
            if code is None:
                return "missed: time", used
            if code not in (0, 5):
                failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)
                return f"caught: {failed[0] if failed else stage[0]}", used
        return "missed", used

    def _pytest(self, files: list[str], seconds: float) -> tuple[int | None, float, str]:
        """Its exit code, or None if the time ended; processor time; what it printed."""
        path = os.pathsep.join(str(self._folder / member) for member in _MEMBERS)
        command = [self._python, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:randomly",
                   "-p", "no:cacheprovider", "-m", _SELECTED, *files,
                   *(f"--deselect={test}" for test in self._unfit),
                   *(f"--ignore={test}" for test in self._unfit if "::" not in test)]  # fmt: skip
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
    asked.add_argument("--count", type=int, default=320)
    asked.add_argument("--seed", type=int, default=28)
    asked.add_argument("--at-once", type=int, default=2)
    asked.add_argument("--stages", type=int, default=3, help="1: only the tests that import it")
    asked.add_argument("--sample", type=Path, help="take the changes of such a file of results")
    asked.add_argument("--folder", type=Path, default=Path("build/mutants"))
    given = asked.parse_args()
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    done = {tuple(json.loads(line)["mutant"]) for line in lines}
    mutants = _mutants(given)
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(given.at_once):
        shutil.rmtree(folder / f"copy{number}", ignore_errors=True)
        copies.put(Copy(given.root.absolute(), folder / f"copy{number}", given.python))

    def judged(mutant: Mutant) -> None:
        copy = copies.get()
        try:
            result = copy.judge(mutant, given.stages)
        finally:
            copies.put(copy)
        with results.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(result["said"].partition(":")[0], mutant, result["change"], flush=True)

    with ThreadPoolExecutor(given.at_once) as pool:
        list(pool.map(judged, [m for m in mutants if m not in done]))
    said = [json.loads(line)["said"] for line in results.read_text().splitlines()]
    caught = sum(each.startswith("caught") for each in said)
    print(f"{caught} of {len(said)} caught: {caught / len(said):.1%}")


def _mutants(given: argparse.Namespace) -> list[Mutant]:
    if given.sample is None:
        return sample(given.root.absolute(), given.count, given.seed)
    return [Mutant(*json.loads(line)["mutant"]) for line in given.sample.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
