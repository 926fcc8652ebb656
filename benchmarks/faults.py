"""Judges the conformance suite by faults that nobody chose, one at a time in ``local:``.

    python benchmarks/faults.py --count 300 --seed 7 8 --out build/faults

A fault is one change in what computes and checks a call: another constant, border, dtype of a step,
axis or order, a sign, a condition, an attribute forgotten in the key of a cache, scratch memory
that calls share. It is kept only if it changes the answer to a valid or refused call that
``npucall conform --fuzz`` draws, and not only by an exception, which any call shows. So nobody has
to say what is a fault. The operators whose answers it changes are then judged quickly; after that,
what no quick run reports is judged in full. What no run reports is printed.

It is a fair fault if one of these changed answers is wrong: it is not what the statement of the
operator and the tolerance of ``cpu-strict`` allow. Other changes, such as a sum of six numbers in
float32, leave every answer one that a server may give. The shares of both are printed.

Each fault is tried in a fork of this process, so Linux alone can run it: on the operators that run
the changed function, until the first report. Files that are there, one for each seed, are gone on
with; ``--again`` judges again what passed, after a change of the suite.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import json
import os
import random
import re
import signal
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
from tests.conformance_suite.faults import put
from tests.conformance_suite.servers import local

from npucall.errors import InternalError, NpucallError
from npucall.operators import CATALOGUE
from npucall_conformance.cases.drawn_calls import drawn
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.judging.check import check, expectation_of
from npucall_conformance.judging.profiles import CPU_STRICT
from npucall_conformance.running.not_judged import applies
from npucall_conformance.running.runner import QUICK_REPEAT, QUICK_ROUNDS, Runner
from npucall_conformance.statements import statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_conformance.cases.case import Case
    from npucall_conformance.cases.made_call import MadeCall
    from npucall_conformance.stating.statement import Statement
    from npucall_conformance.wire import AnswerOrError

ROOT = Path(__file__).parent.parent
Runs: TypeAlias = tuple[str, ...]
PARTS = ("operators", "compute", "declare", "wire")
"""The rooms of the contract that a call of ``local:`` goes through."""
CALLS = 60
"""Calls that are drawn of each operator."""
FEW = 30
"""So many of the operators that run a function show whether a change of it is a fault."""
JUDGED = 3
"""So many of the operators whose answers a fault changes are judged."""
SECONDS = 300
"""A fault that takes longer hangs, which everybody sees."""
_WAITS = 12
"""So many times as long if the machine is busy, or if it waits for nothing."""
RUNS: Runs = ("quick", "full")
"""The runs of the suite."""


class Fault(NamedTuple):
    """One change of a module: the text between two offsets becomes another."""

    module: str
    kind: str
    scope: int
    """The first line of the function that has it; 0: none has."""
    line: int
    start: int
    end: int
    new: str

    def source(self) -> str:
        """The module's text with the fault."""
        text = (ROOT / "proto" / f"{self.module.replace('.', '/')}.py").read_text()
        return text[: self.start] + self.new + text[self.end :]


def faults(path: Path) -> Iterator[Fault]:
    """Every fault that can be put into a module."""
    text = path.read_text()
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    module = ".".join(path.relative_to(ROOT / "proto").with_suffix("").parts)
    tree = ast.parse(text)
    declares = "Operator(" in text or "operator(" in text
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef) or (declares and isinstance(scope, ast.Module)):
            first = min((each.lineno for each in getattr(scope, "decorator_list", ())), default=0)
            place = first or getattr(scope, "lineno", 0)
            for node in _own(scope):
                for kind, new in _changes(node):
                    start = lines[node.lineno - 1] + node.col_offset
                    end = lines[node.end_lineno - 1] + node.end_col_offset
                    text = f"({ast.unparse(new)})"
                    yield Fault(module, kind, place, node.lineno, start, end, text)


def _own(scope: ast.AST) -> Iterator[Any]:
    """The expressions of a function that run, or those outside of functions."""
    held = [each for each in ast.iter_child_nodes(scope) if not isinstance(each, ast.arguments)]
    returns = getattr(scope, "returns", None)
    while held:
        node = held.pop()
        annotated = isinstance(node, ast.AnnAssign)
        if node is returns or isinstance(node, ast.FunctionDef | ast.ClassDef | ast.JoinedStr):
            continue
        if isinstance(node, ast.expr):
            yield node
        inside = [node.value] if annotated else list(ast.iter_child_nodes(node))
        held += [
            each for each in inside if each is not None and not isinstance(each, ast.arguments)
        ]


_BORDERS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.GtE}
_SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_DTYPES = {"float32": "float16", "float64": "float32", "int64": "int32", "FLOAT": "FLOAT16",
           "DOUBLE": "FLOAT"}  # fmt: skip
_CALLS = ("get", "setdefault", "pop")
_AXES = {"axis", "axes", "axis1", "axis2", "keepdims"}
_text = ast.unparse


def _changes(node: Any) -> Iterator[tuple[str, ast.expr]]:  # noqa: C901, PLR0912  # a table
    """What an expression may become, by kind."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            for other in (number + 1, number * 2 if number else -1):
                yield "constant", ast.Constant(other)
        case ast.Constant(value=bool() as truth):
            yield "constant", ast.Constant(not truth)
        case ast.Compare(ops=[operator, *_]) if type(operator) in _BORDERS:
            ops = [_BORDERS[type(operator)](), *node.ops[1:]]
            yield "border", ast.Compare(node.left, ops, node.comparators)
        case ast.BinOp(op=operator) if type(operator) in _SIGNS:
            yield "sign", ast.BinOp(node.left, _SIGNS[type(operator)](), node.right)
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield "sign", node.operand
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "condition", ast.BoolOp(other, node.values)
        case ast.IfExp():
            yield "condition", ast.IfExp(node.test, node.orelse, node.body)
        case ast.Attribute(attr=name) if name in _DTYPES:
            yield "dtype", ast.Attribute(node.value, _DTYPES[name])
        case ast.Name(id=name) if name in ("float32", "float64"):
            yield "dtype", ast.Name(_DTYPES[name])
        case ast.Call(
            args=[ast.Tuple(elts=[_, _, *_] as parts), *rest], func=ast.Attribute(attr=name)
        ) if name in _CALLS:
            yield "key", ast.Call(node.func, [ast.Tuple(parts[:-1]), *rest], node.keywords)
        case ast.Subscript(slice=ast.Tuple(elts=[_, _, *_] as parts)):
            yield "key", ast.Subscript(node.value, ast.Tuple(parts[::-1]))
        case ast.Call(func=ast.Attribute(attr="empty" | "empty_like")):
            size = f"repr(({', '.join(map(ast.unparse, node.args))},))"
            key = f"('scratch', {node.lineno}, {size})"
            shared = f"__import__('builtins').__dict__.setdefault({key}, {ast.unparse(node)})"
            yield "scratch", ast.parse(shared, mode="eval").body
        case ast.Call(keywords=named) if _AXES & {each.arg for each in named}:
            for each in named:
                if each.arg in _AXES:
                    other = ast.keyword(
                        each.arg, ast.Constant(0 if _text(each.value) != "0" else -1)
                    )
                    more = [other if one is each else one for one in named]
                    yield "axis", ast.Call(node.func, node.args, more)
        case ast.Call(args=[first, second, *rest]) if _text(first) != _text(second):
            yield "order", ast.Call(node.func, [second, first, *rest], node.keywords)
        case ast.Tuple(elts=[_, _, *_] as parts, ctx=ast.Load()) if not {ast.Slice} & {
            *map(type, parts)
        }:
            texts = [*map(_text, parts)]
            if texts != texts[::-1]:  # else it is the same program
                yield "order", ast.Tuple(parts[::-1])


def sample(seed: int, only: str = "") -> Iterator[Fault]:
    """Faults in a random order: first the kind is drawn, then one of that kind.

    ``only``: a regular expression that finds something in the names of their modules.
    """
    found: dict[str, list[Fault]] = {}
    for part in PARTS:
        for path in sorted((ROOT / "proto/npucall" / part).glob("**/*.py")):
            for fault in faults(path) if re.search(only, path.stem) else ():
                found.setdefault(fault.kind, []).append(fault)
    draw = random.Random(seed)
    for kind in sorted(found):
        draw.shuffle(found[kind])
    while found:
        kind = draw.choice(sorted(found))
        yield found[kind].pop()
        found = {name: several for name, several in found.items() if several}


class Known(NamedTuple):
    """Calls that are drawn of an operator, and what a right server says to them."""

    cases: list[Case]
    calls: list[MadeCall]
    answers: list[Any]
    ran: frozenset[tuple[str, int]]
    """The functions that run for it: module and first line. Line 0: it is declared there."""


def known_of(statement: Statement, subject: Any) -> Known:
    """Calls of an operator as they are sent; none that the suite itself draws."""
    every = (drawn(statement, f"faults/{number}") for number in range(CALLS))
    cases = [case for case in every if applies(case, subject)]
    calls = [call_of(case, 0, subject.server.product) for case in cases]
    formula = CATALOGUE.find(statement.operator, statement.variant).formula
    ran = {(formula.__module__, 0)} if formula else set()

    def note(frame: Any, *_: object) -> None:
        ran.add((frame.f_globals.get("__name__", ""), frame.f_code.co_firstlineno))

    for cache in caches():  # else a function that another operator called does not run again
        cache.cache_clear()
    sys.settrace(note)  # small calls are computed in this thread
    try:
        said = [compared(subject.ask(call)) for call in calls]
    finally:
        sys.settrace(None)
    return Known(cases, calls, said, frozenset(ran))


@functools.cache
def caches() -> list[Any]:
    """What keeps results of functions in this process."""
    # They have no public name.
    return [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]  # noqa: SLF001


def compared(answer: AnswerOrError) -> Any:
    """An answer in a form that can be compared."""
    if isinstance(answer, NpucallError):
        return answer.reason, answer.aclnn_status, answer.parameters
    return answer.outputs, answer.storages, answer.reply.warned


def near(fault: Fault, right: dict[str, Known]) -> list[str]:
    """The operators that are declared where a fault is, or run its function; of many, some."""
    places = {(fault.module, fault.scope), (fault.module, 0)}
    found = [title for title, each in right.items() if places & each.ran]
    return random.Random(str(fault)).sample(found, min(len(found), FEW))


def tried(
    fault: Fault, right: dict[str, Known], runs: Runs, operators: list[str] | None
) -> dict[str, Any]:
    """What runs of the suite say of a fault, in this process, which has it from now on.

    ``operators``: those whose answers it changes, if that is known.
    """
    try:
        put(pytest.MonkeyPatch(), fault.module, fault.source())
    except Exception as error:  # noqa: BLE001  # a module that cannot be loaded is seen by all
        return {"said": "no fault", "why": f"{type(error).__name__}: {error}"}
    for cache in caches():
        cache.cache_clear()
    said: dict[str, Any] = {}
    if operators is None:
        operators, said["fair"] = concerned(fault, right)
    if not operators:
        return {"said": "no fault", "why": "changes no answer"}
    for run, title in product(runs, operators):
        cases = select(statements(), Selection(operators=(title,), quick=run == "quick"))
        runner = Runner(local(), rounds=QUICK_ROUNDS, repeat=QUICK_REPEAT)
        for outcome in runner.run(cases):
            if outcome.status == "failed":
                return said | {"said": run, "case": outcome.case, "why": outcome.problems[0][:200]}
    return said | {"said": "passes", "operators": operators, "runs": runs}


def concerned(fault: Fault, right: dict[str, Known]) -> tuple[list[str], bool]:
    """Operators of which an answer is wrong in this process, if there are any; else another."""
    wrong: list[str] = []
    others: list[str] = []
    for title in near(fault, right):
        said = is_wrong(right[title])
        wrong += [title] * (said is True)
        others += [title] * (said is False)
        if len(wrong) == JUDGED:
            break
    return (wrong or others)[:JUDGED], bool(wrong)


def is_wrong(known: Known) -> bool | None:
    """Whether an answer is wrong in this process; False: one is another; None: none is."""
    subject, another = local(), None
    for case, call, before in zip(known.cases, known.calls, known.answers, strict=True):
        answer = subject.ask(call)
        now = compared(answer)
        if now != before and now[0] != InternalError.reason:
            another = False
            if check(expectation_of(case, call), answer, CPU_STRICT).problems:
                return True
    return another


def judged(
    fault: Fault,
    right: dict[str, Known],
    runs: Runs = RUNS,
    operators: list[str] | None = None,
) -> dict[str, Any]:
    """What a fork says of a fault."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of CPU: the machine may be busy
        signal.alarm(_WAITS * SECONDS)
        try:
            found = tried(fault, right, runs, operators)
        except BaseException as error:  # noqa: BLE001  # whatever it does, it is seen
            found = {"said": "quick", "why": f"the run ended: {type(error).__name__}: {error}"}
        with os.fdopen(writing, "w") as out:
            json.dump(found, out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"said": "quick", "why": "the process ended, or hung"}


def main() -> None:
    """Judges as many faults as are asked for, and prints the shares."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=300)
    asked.add_argument("--seed", type=int, nargs="+", default=[0])
    asked.add_argument("--only", default="", metavar="REGEX", help="of modules: layer_norm|glu")
    asked.add_argument("--out", type=Path, default=Path("build/faults"))
    asked.add_argument("--again", action="store_true", help="judge again what passed")
    chosen = asked.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for seed in chosen.seed:
        path = chosen.out / f"{seed}.jsonl"
        with path.open("a") as out:
            said = judged_of(chosen, seed, _before(path), out)
        for fault, each in said.items():
            if each["said"] == "passes":
                fair = "" if each["fair"] else ", within the tolerance"
                print(f"{fault.module}:{fault.line} {fault.kind}: {fault.new}{fair}")
        fair = [each["said"] for each in said.values() if each.get("fair", True)]
        print(f"seed {seed}: {_shares([each['said'] for each in said.values()])}")
        print(f"of which fair: {_shares(fair)}", flush=True)


def _shares(said: list[str]) -> str:
    quick, full = (sum(each in RUNS[:most] for each in said) for most in (1, 2))
    share = 100 / max(len(said), 1)
    return f"{len(said)} faults, quick {quick * share:.1f} %, full {full * share:.1f} %"


def judged_of(
    chosen: argparse.Namespace, seed: int, known: dict[Fault, dict[str, Any]], out: TextIO
) -> dict[Fault, dict[str, Any]]:
    """What is said of the faults of a seed; ``known``: what ``out`` says already."""

    def judge(fault: Fault, runs: Runs, operators: list[str] | None = None) -> None:
        said = judged(fault, {} if operators else right(), runs, operators)
        known[fault] = {"fair": known.get(fault, {}).get("fair", True), **said}
        out.write(json.dumps({**fault._asdict(), **known[fault]}) + "\n")
        out.flush()

    found: list[Fault] = []
    for fault in sample(seed, chosen.only):
        if fault not in known:
            judge(fault, ("quick",))
        found += [fault] * (known[fault]["said"] != "no fault")
        if len(found) == chosen.count:
            break
    for fault in sorted(found, key=lambda each: not known[each]["fair"]):  # fair ones first
        said = known[fault]
        if said["said"] == "passes" and (chosen.again or "full" not in said["runs"]):
            judge(fault, RUNS if chosen.again else ("full",), said["operators"])
    return {fault: known[fault] for fault in found}


@functools.cache
def right() -> dict[str, Known]:
    """What a right server says, by operator."""
    subject = local()
    found = {each.title: known_of(each, subject) for each in statements()}
    gc.freeze()  # forks share it
    return found


def _before(out: Path) -> dict[Fault, dict[str, Any]]:
    """What a run that ended early says of faults; of a fault that was judged twice, the last."""
    lines = map(json.loads, out.read_text().splitlines() if out.exists() else ())
    return {Fault(*(each[name] for name in Fault._fields)): each for each in lines}


if __name__ == "__main__":
    main()
