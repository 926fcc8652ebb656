"""Faults of a server as changed text of its modules, and how they get into this process."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from npucall import dtypes, products
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator
from npucall.operators import CATALOGUE
from npucall.wire.listing import listing
from npucall_client.local import transport

EVALUATE, RECIPES = ".compute.evaluate", ".compute.recipes"


@dataclass(frozen=True)
class Fault:
    """A text of a module that is replaced by another one, and who has to report it."""

    operator: str
    """The title of the operator that is judged."""
    seen: frozenset[str]
    """The blocks of a quick run that report it: exactly these. Of a fault on paths: the paths."""
    module: str
    old: str
    new: str
    soc: str = "Ascend910B1"
    profile: str = "cpu-strict"
    quick: bool = True
    """Whether a quick run shows it."""

    def __str__(self) -> str:
        return f"{self.operator} {self.module.rpartition('.')[2]} {self.old!r} -> {self.new!r}"

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Puts it into this process until the patch is undone."""
        source = Path(import_module(self.module).__file__ or "").read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.module}: expected {self.old!r} once")
        put(patch, self.module, source.replace(self.old, self.new))


def put(patch: pytest.MonkeyPatch, name: str, source: str) -> None:
    """This process has another text of a module until the patch is undone."""
    module = import_module(name)
    code = compile(source, str(module.__file__), "exec")
    patch.setattr(transport, "listing", unwrap(listing))  # not the one made before
    if any(isinstance(value, Operator) for value in vars(module).values()):
        _declare_again(patch, module, code)
    else:
        patch.setattr(module, "STATE", {}, raising=False)  # what a fault remembers
        for function, changed in _functions(module, code):
            patch.setattr(function, "__code__", changed)


def _declare_again(patch: pytest.MonkeyPatch, module: ModuleType, code: CodeType) -> None:
    """``local:`` has the operators of the changed module; the suite goes on knowing the right."""
    fresh = ModuleType(module.__name__)
    known = {**vars(dtypes), **vars(products)}
    vars(fresh).update({name: value for name, value in known.items() if name[0] != "_"})
    exec(code, vars(fresh))
    gone, new = (
        [value for value in vars(each).values() if isinstance(value, Operator)]
        for each in (module, fresh)
    )
    changed = Catalogue((*(e for e in CATALOGUE if e not in gone), *new))
    patch.setattr(transport, "CATALOGUE", changed)


def _functions(module: ModuleType, code: CodeType) -> Iterator[tuple[FunctionType, CodeType]]:
    """The module's functions and methods whose code is another one now."""
    for new in _codes(code):
        owner: Any = module
        *classes, name = new.co_qualname.split(".")
        for each in classes:
            owner = getattr(owner, each, None)
        function = _plain(vars(owner).get(name)) if owner is not None else None
        if isinstance(function, FunctionType) and function.__code__ != new:
            yield function, new


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType) and "<" not in each.co_qualname:
            yield each
            yield from _codes(each)


def _plain(value: Any) -> Any:
    for name in ("fget", "func", "__func__"):  # of properties, cached ones, and class methods
        value = getattr(value, name, None) or value
    return unwrap(value) if callable(value) else value


# --- Rows of the tables ---------------------------------------------------------------------------


def of(operator: str, seen: str, old: str, new: str, **more: Any) -> Fault:
    """A fault in the module that declares the operator."""
    name, _, variant = operator.partition(".")
    formula = CATALOGUE.find(f"aclnn{name}", variant).formula
    assert formula is not None
    return at(formula.__module__, operator, seen, old, new, **more)


def at(module: str, operator: str, seen: str, old: str, new: str, **more: Any) -> Fault:
    """A fault in a module of all operators; ``.compute.work`` is one of ``npucall``."""
    name = f"npucall{module}" if module.startswith(".") else module
    return Fault(f"aclnn{operator}", frozenset(seen.split()), name, old, new, **more)


def read(operator: str, seen: str, layout: str) -> Fault:
    """Each input with the ``spec`` is read as if it had another layout."""
    old = "Layout.of_spec(spec) for name, spec in call.inputs.items()}"
    return at(RECIPES, operator, seen, old, old.replace("Layout.of_spec(spec)", layout))


def written(operator: str, seen: str, statement: str, **more: Any) -> Fault:
    """Outputs are changed after a call was computed for the ``run``-th time: each array ``a``."""
    ran = "targets, turn, helpers)\n"
    end = "    return answers\n\n\ndef _filled("
    each = (
        "    runs = STATE.setdefault(id(call), [call])\n"
        "    run = len(runs)\n"
        "    runs.append(None)\n"
        "    for answer, storage in zip(recipe.answers, answers):\n"
        "        a = answer.layout.over(storage)\n"
    )
    return at(
        EVALUATE, operator, seen, f"{ran}{end}", f"{ran}{each}        {statement}\n{end}", **more
    )


def stored(operator: str, seen: str, dtype: str, new: str, **more: Any) -> Fault:
    """Results ``r`` of float32 become others before they are rounded to a dtype."""
    store = "    convert(target, result if target.dtype == kernel else rounded(result, kernel))"
    other = (
        f"    if target.dtype.name == {dtype!r} and result.dtype == np.float32:\n"
        f"        r = np.ascontiguousarray(result)\n"
        f"        result = np.reshape({new}, result.shape)\n"
    )
    return at(".compute.operands", operator, seen, store, other + store, **more)
