"""The changes that ``make mutants`` tries: drawn with a seed, made by cosmic-ray."""

from __future__ import annotations

import ast
import random
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PARTS = (
    "proto/npucall",
    "server/npucall_server",
    "client/npucall_client",
    "conformance/npucall_conformance",
)
"""Of each part as many changes are drawn."""


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
    return [mutant for mutant in drawn if changed(root / mutant.module, mutant)]


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


def changed(path: Path, mutant: Mutant) -> str | None:
    """A module's text with the change; None if cosmic-ray cannot make it, as for ``except a.b``."""
    operator = cosmic_ray.plugins.get_operator(mutant.operator)()
    try:
        return mutate_code(path.read_text(encoding="utf-8"), operator, mutant.occurrence)
    except AttributeError:
        return None
