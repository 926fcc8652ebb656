"""The statements, one file an operator: they are found, not listed.

A module here may have a ``Statement``, or a tuple of them, under any name; all of them count.
Modules whose names start with an underscore are shared parts.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from npucall_conformance.stating.statement import Statement


@cache
def statements() -> tuple[Statement, ...]:
    """Every statement, by operator and variant.

    Raises ValueError where an operator is stated twice.
    """
    found: dict[str, Statement] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Statement) and found.setdefault(each.title, each) is not each:
                    raise ValueError(f"{each.title} is stated twice")
    return tuple(found[title] for title in sorted(found))
