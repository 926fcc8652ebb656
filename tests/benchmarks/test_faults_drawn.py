"""Faults are drawn by a seed, each is another program, and a fork says who reports it."""

import ast
from itertools import islice
from pathlib import Path

import pytest
from faults import ROOT, faults, is_wrong, judged, known_of, local, near, sample
from tests.conformance_suite.servers import STATEMENTS, altered, flip
from tests.rows import each

SILU = "aclnnSilu"


@pytest.mark.more
def test_a_seed_draws_the_same_faults_of_every_kind_and_each_is_another_program() -> None:
    first, again = (list(islice(sample(3, "^[b-h_]"), 60)) for _ in range(2))
    assert first == again
    assert {fault.kind for fault in first} == {
        "axis", "border", "condition", "constant", "dtype", "key", "order", "scratch", "sign",
    }  # fmt: skip
    for fault in first:
        path = ROOT / "proto" / f"{fault.module.replace('.', '/')}.py"
        assert ast.dump(ast.parse(fault.source())) != ast.dump(ast.parse(path.read_text()))


@each(
    ("text", "changes"),
    [
        ("def f(x): return x < 3", {"(x <= 3)", "(4)", "(6)"}),
        ("def f(x, y): return g(x, y)", {"(g(y, x))"}),
        ("def f(x): return x.sum(axis=-1)", {"(x.sum(axis=0))", "(1)", "(2)"}),
        ("def f(c, x, y): return c.get((x, y))", {"(c.get((x,)))", "((y, x))"}),
        ("x: int = 3", set()),
    ],
)
def test_what_an_expression_may_become(text: str, changes: set[str], tmp_path: Path) -> None:
    path = tmp_path / "proto" / "module.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faults.ROOT", tmp_path)
        assert {fault.new for fault in faults(path)} == changes


@pytest.mark.alone
@pytest.mark.more
def test_a_fork_says_whether_a_change_is_a_fault_and_what_reports_it() -> None:
    right = {SILU: known_of(STATEMENTS[SILU], local())}
    module = ROOT / "proto/npucall/operators/silu.py"
    said = {judged(fault, right)["said"] for fault in faults(module)}
    assert "quick" in said
    assert said <= {"quick", "full", "no fault"}


def test_a_change_is_fair_only_if_an_answer_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    known = known_of(STATEMENTS[SILU], local())
    others = known._replace(answers=[None] * len(known.calls))
    assert (is_wrong(known), is_wrong(others)) == (None, False)
    monkeypatch.setattr("faults.local", lambda: altered(flip))
    assert is_wrong(known) is True


def test_a_fault_is_tried_on_operators_that_run_its_function_or_are_declared_there() -> None:
    titles = (SILU, "aclnnSigmoid", "aclnnMean")
    right = {title: known_of(STATEMENTS[title], local()) for title in titles}
    found = {
        name: {
            *(
                title
                for fault in faults(ROOT / "proto/npucall" / name)
                for title in near(fault, right)
            )
        }
        for name in ("operators/silu.py", "operators/_numerics.py", "operators/_ctc_states.py")
    }
    assert found == {
        "operators/silu.py": {SILU},
        "operators/_numerics.py": {SILU, "aclnnSigmoid"},
        "operators/_ctc_states.py": set(),
    }
