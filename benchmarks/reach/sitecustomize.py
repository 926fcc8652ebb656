"""Writes down which tests reach the lines that ``make mutants`` changes.

Python imports this module when it begins, in every process that the tests start. As modules are
compiled, a call is put before the statement of each such line. A statement outside functions runs
when its module is imported, so there each function of the module gets the call.

``MUTANTS_PLACES`` names a JSON file: for a module's path the numbers and lines of its changes.
Beside it stand the files that are written: a line for each change and test.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

_FILE = Path(os.environ["MUTANTS_PLACES"])
_PLACES: dict[str, list[tuple[int, int]]] = json.loads(_FILE.read_text())
_BEGUN_BY_A_TEST = "PYTEST_CURRENT_TEST" in os.environ
"""Other tests may use this process later."""
_compile = SourceFileLoader.source_to_code
_known: set[tuple[int, str]] = set()


def _reached(number: int) -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (number, test) not in _known:
        _known.add((number, test))
        with (_FILE.parent / f"reached-{os.getpid()}").open("a") as out:
            out.write(json.dumps([number, test, _BEGUN_BY_A_TEST]) + "\n")


def _with_probes(self: SourceFileLoader, data: Any, path: Any, **given: Any) -> Any:
    places = _PLACES.get(os.path.realpath(path))
    if not places:
        return _compile(self, data, path, **given)
    tree = ast.parse(data)
    for number, line in places:
        if not _before(tree, line, number):
            for node in ast.walk(tree):
                _into(node, number)
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def _before(node: ast.AST, line: int, number: int, *, within: bool = False) -> bool:
    """Puts a call before the innermost statement of a line, if that is within a function."""
    within = within or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for _, value in ast.iter_fields(node):
        for index, each in enumerate(value if isinstance(value, list) else ()):
            if not isinstance(each, ast.stmt | ast.excepthandler | ast.match_case):
                continue
            if not isinstance(each, ast.match_case) and not _begin(each) <= line <= each.end_lineno:
                continue
            if _before(each, line, number, within=within):
                return True
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                _into(each, number)
                return True
            if within and isinstance(each, ast.stmt):
                value.insert(index, ast.copy_location(ast.Expr(_call(number)), each))
                return True
    return False


def _begin(node: Any) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])


def _into(node: ast.AST, number: int) -> None:
    """Puts a call at the begin of a function."""
    if isinstance(node, ast.Lambda):
        node.body = ast.copy_location(ast.BoolOp(ast.Or(), [_call(number), node.body]), node.body)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        first = node.body[0]
        call = ast.copy_location(ast.Expr(_call(number)), first)
        node.body.insert(1 if ast.get_docstring(node) is not None else 0, call)


def _call(number: int) -> ast.Call:
    return ast.Call(ast.Name("_mutants_reached", ast.Load()), [ast.Constant(number)], [])


vars(builtins)["_mutants_reached"] = _reached
SourceFileLoader.source_to_code = _with_probes  # type: ignore[assignment,method-assign]
