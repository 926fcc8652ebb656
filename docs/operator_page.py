"""operators.md and the pages of its folder, from the catalogue."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import gradient_pages
import numpy as np
import page_parts

from npucall.compute.evaluate import compute
from npucall.declare.call import element
from npucall.declare.declaration import Area
from npucall.declare.parameters import Attribute, Input, c_name
from npucall.declare.samples import sample
from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall_conformance.cases.case import Maker
from npucall_conformance.cases.made_call import call_of, in_lists
from npucall_conformance.statements import statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npucall.declare.declaration import Operator
    from npucall.declare.parameters import Parameter
    from npucall.declare.rules import Rule
    from npucall.dtypes import DType

SAMPLE = [[2, 3], [5, 8]]
"""What the vendor's sample programs call the operators with, for every tensor."""
_GRADIENT = re.compile("Backward|Grad")
"""In the names of gradients."""
SAMPLED = ("aclnnKlDivBackward", "aclnnKlDivTargetBackward", "aclnnL1LossBackward")
"""Those that have a sample program; the others' examples are drawn."""


def pages() -> dict[str, str]:
    """``operators.md`` and a page for each area, by their places in ``docs``."""
    return {"operators.md": _index(), **{_file(area): _area_page(area) for area in _areas()}}


def forwards_and_gradients() -> tuple[list[str], list[str]]:
    """The names of the catalogue without ``aclnn``, in its order, in two families."""
    names = list(dict.fromkeys(operator.name.removeprefix("aclnn") for operator in CATALOGUE))
    gradients = [name for name in names if _GRADIENT.search(name)]
    return [name for name in names if name not in gradients], gradients


# --- operators.md ---------------------------------------------------------------------------------


def _index() -> str:
    forwards, gradients = forwards_and_gradients()
    return page_parts.page(
        "Operators",
        f"""
        {len(forwards) + len(gradients)} operators, {len(forwards)} forward and {len(gradients)}
        gradients. Their names in C begin with `aclnn`. Each links to its section: C prototype,
        arguments, products and dtypes, formula, rules in the order in which the server checks
        them, a worked example. To find one, search this page for the name in CANN or in PyTorch,
        or ask `npucall operators --like gelu`.

        From the declarations in `npucall.operators`. CANN's pages say more of each; `ops-nn`,
        `ops-math`, `ops-cv` and `ops-transformer` are its repositories.
        [sources.md](sources.md) says what was learned from pages, headers and sources.
        """,
        *(part for area in _areas() for part in (f"## {area.capitalize()}", _rows(area))),
        "## Which of CANN's gradients are here",
        """
        Of the public pages of gradients in August 2026. The experimental folders have 46 more:
        most are other kernels of operators above, under the same names, the others have names of
        their own and no product that promises them. A server with a real NPU runs whatever is
        installed there, also what is not here ([ascend.md](ascend.md)).

        One of them, HardswishBackward, has the prototype of CANN's own and other results: at -3
        and 3 those of HardswishBackwardV2. It is the variant `experimental`, which a call to a
        server without an NPU names; no NPU's server can tell which of them is installed there.
        """,
        gradient_pages.section(),
    )


def _areas() -> list[Area]:
    """Those that have operators."""
    used = {operator.area for operator in CATALOGUE}
    return [area for area in get_args(Area) if area in used]


def _file(area: Area) -> str:
    return f"operators/{area.replace(' ', '-')}.md"


def _rows(area: Area) -> str:
    """A function with its gradients in a row, by its name in PyTorch."""
    here = [operator for operator in CATALOGUE if operator.area == area]
    heads = {operator.title: _forward_of(operator, here) for operator in here}
    rows = []
    for operator in here:
        if heads[operator.title] is not operator:
            continue
        own = [each for each in here if heads[each.title] is operator]
        forward = [each for each in own if not _GRADIENT.search(each.name)]
        back = [each for each in own if each not in forward]
        in_torch = f"`{operator.torch}`" if operator.torch else ""
        first = page_parts.line(operator.summary)
        rows.append((in_torch, _links(area, forward), _links(area, back), first))
    return page_parts.table(("in PyTorch", "forward", "gradient", "what it computes"), rows)


def _forward_of(operator: Operator[Any, Any], here: list[Operator[Any, Any]]) -> Operator[Any, Any]:
    """Of a gradient the operator of its name, or else of its name in PyTorch, or else itself."""
    if not _GRADIENT.search(operator.name):
        return operator
    base = _GRADIENT.sub("", operator.name)
    alike = [each for each in here if operator.torch and each.torch == operator.torch]
    named = [each for each in here if each.name == base]
    forwards = [each for each in alike if not _GRADIENT.search(each.name)]
    return [*named, *forwards, *alike, operator][0]


def _links(area: Area, operators: list[Operator[Any, Any]]) -> str:
    shown = []
    for operator in operators:
        name = operator.name.removeprefix("aclnn")
        text = f"{name} ({operator.variant})" if operator.variant else name
        shown.append(f"[{text}]({_file(area)}#{page_parts.anchor(operator.title)})")
    return ", ".join(shown)


# --- The page of an area --------------------------------------------------------------------------


def _area_page(area: Area) -> str:
    operators = [operator for operator in CATALOGUE if operator.area == area]
    return page_parts.page(
        area.capitalize(),
        """
        [All operators](../operators.md). Rules are in the order in which the server checks them:
        the first one that is broken is the answer. The software accepts products with a *, but
        current documents do not list them. Next to the name of an argument is its name in C. You
        may use either name, and give a word for a number that has one: `reduction="mean"`.
        """,
        *map(_section, operators),
        root="../",
    )


def _dtypes(dtypes: tuple[DType, ...], *, legacy: bool) -> str:
    return ", ".join(map(str, dtypes)) + ("\\*" if legacy else "")


def _section(operator: Operator[Any, Any]) -> str:
    parts = (
        f"## {operator.title}",
        page_parts.docstring(operator.description),
        f"In Python: `npucall.ops.{operator.formula.__name__}`.",
        f"Declaration in C, of phase one:\n\n```c\n{_prototype(operator)}\n```",
        page_parts.table(
            ("parameter", "in C", "type", "default", "meaning"),
            [_parameter(operator, parameter) for parameter in operator.parameters],
        ),
        *([_in_torch(operator)] if operator.torch else []),
        f"Products: {_products(operator)}.",
        f"Kernel dtype, in which it computes and rounds: {_kernel_dtypes(operator)}.",
        page_parts.table(
            ("", "rule", "may blame", "aclnn status"),
            [_rule(number, rule) for number, rule in enumerate(operator.checks, start=1)],
        ),
        _example(operator),
        f"Written from: {operator.source}.",
    )
    return "\n\n".join(parts)


def _in_torch(operator: Operator[Any, Any]) -> str:
    gradient = "the gradient of " if _GRADIENT.search(operator.name) else ""
    return f"In PyTorch: {gradient}`torch.{operator.torch}`."


def _prototype(operator: Operator[Any, Any]) -> str:
    """The declaration, a parameter a line."""
    start, _, end = operator.prototype.partition("(")
    return f"{start}(\n    " + end.replace(", ", ",\n    ")


def _parameter(operator: Operator[Any, Any], parameter: Parameter) -> tuple[str, ...]:
    default = ""
    if isinstance(parameter, Attribute):
        default = f"`{operator.default(parameter)}`"
    unread = isinstance(parameter, Input) and not parameter.read
    meaning = parameter.description + ("; its values are not read" if unread else "")
    c_spelling = c_name(parameter)
    return f"`{parameter.name}`", f"`{c_spelling}`", f"`{parameter.c_type}`", default, meaning


def _products(operator: Operator[Any, Any]) -> str:
    listed = [
        f"{product.name} ({_dtypes(dtypes, legacy=products is operator.legacy)})"
        for products in (operator.products, operator.legacy)
        for product, dtypes in products.items()
    ]
    return "; ".join(listed)


def _kernel_dtypes(operator: Operator[Any, Any]) -> str:
    """Which kernel dtype the inputs' dtypes give: asked of the operator, on its first product.

    It is asked by its sample, whose indices and labels keep their own dtypes.
    """
    product = next(iter(operator.products))
    dtypes = operator.dtypes_on(product)
    asked: list[tuple[str, DType, dict[str, Any]]] = [(f"all {each}", each, {}) for each in dtypes]
    of_one = [p.name for p in operator.inputs if p.name not in operator.sample.dtypes][1:2]
    for name, other in zip(of_one, dtypes[1:2], strict=False):
        spec = sample(operator, product, CATALOGUE, dtypes[0]).inputs.get(name)
        if spec is not None:
            given = {name: replace(spec, dtype=other)}
            asked.append((f"{other} and {dtypes[0]}", dtypes[0], given))
    said = []
    for words, dtype, given in asked:
        try:
            call = sample(operator, product, CATALOGUE, dtype, given=given)
        except NpucallError:
            said.append(f"inputs {words} are refused")
        else:
            said.append(f"{call.kernel_dtype} for inputs {words}")
    return "; ".join(said)


def _rule(number: int, rule: Rule) -> tuple[str, ...]:
    found = f" (`{rule.finds}`)" if rule.finds else ""
    blames = ", ".join(f"`{name}`" for name in rule.blames)
    return str(number), rule.description + found, blames, str(rule.status or "")


def _example(operator: Operator[Any, Any]) -> str:
    """A small call, in float64, so that every machine prints the same digits."""
    if not any(FLOAT in dtypes for dtypes in operator.products.values()):
        return "None: the operator does not take FLOAT, in which examples are computed."
    arguments = _sample(operator) if operator.name in SAMPLED else _drawn(operator)
    if arguments is None:
        return "None yet."
    result = compute(operator, **arguments)
    values = result if isinstance(result, tuple) else (result,)
    given = [_assigned(name, value, 2) for name, value in _one_by_one(arguments.items())]
    outputs = zip((p.name for p in operator.outputs), values, strict=True)
    gives = [_assigned(name, value, 8) for name, value in _one_by_one(outputs)]
    return "\n".join(["With", "", *given, "", "it gives", "", *gives])


def _one_by_one(values: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Values by name, the tensors of a list by theirs."""
    for name, value in values:
        if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
            yield from ((element(name, index), each) for index, each in enumerate(value))
        else:
            yield name, value


def _sample(operator: Operator[Any, Any]) -> dict[str, Any]:
    """The sample program's call."""
    tensors = {parameter.name: np.array(SAMPLE, np.float64) for parameter in operator.inputs}
    return {**tensors, "reduction": 0}


def _drawn(operator: Operator[Any, Any]) -> dict[str, Any] | None:
    """A call of the conformance suite, its numbers cut to two decimals."""
    for statement in statements():
        if (statement.operator, statement.variant) == (operator.name, operator.variant):
            case = Maker(statement, "grid").case(statement.dtypes[0])
            given = call_of(case, seed=0).given
            own = {each.name: each.dtypes for each in statement.inputs}
            values = {
                name: _plain(value, given.dtypes[name] if own.get(name) else None)
                for name, value in given.values.items()
                if value is not None
            }
            listed = in_lists(values)
            return {p.name: listed[p.name] for p in operator.parameters if p.name in listed}
    return None


def _plain(value: Any, dtype: DType | None) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return np.round(value, 2) + 0.0 if dtype is None else value.astype(dtype.numpy)


def _assigned(name: str, value: Any, decimals: int) -> str:
    """``name = value`` as an indented block; a zero has no sign, which machines differ in."""
    text = repr(value)
    if isinstance(value, np.ndarray):
        clean = value + 0 if value.dtype.kind in "fc" else value
        text = np.array2string(
            clean, separator=", ", precision=decimals, suppress_small=False, max_line_width=90
        )
    first, *rest = f"{name} = {text}".splitlines()
    indent = " " * (4 + len(name) + 3)
    return "\n".join([f"    {first}", *(indent + line for line in rest)])
