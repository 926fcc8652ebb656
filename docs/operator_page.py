"""operators.md, from the catalogue."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import page_parts

from npucall.compute.evaluate import compute
from npucall.declare.call import Call
from npucall.declare.parameters import Attribute, Input, c_name
from npucall.declare.prepare import prepare
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.products import PRODUCTS
from npucall.tensors import TensorSpec
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.cases.maker import Maker
from npucall_conformance.statements import statements

if TYPE_CHECKING:
    from npucall.declare.declaration import Operator
    from npucall.declare.parameters import Parameter
    from npucall.declare.rules import Rule
    from npucall.dtypes import DType

SAMPLE = [[2, 3], [5, 8]]
"""What the vendor's sample programs call the operators with, for every tensor."""
LINE = 100
"""Characters of a line."""
SAMPLED = ("aclnnKlDivBackward", "aclnnKlDivTargetBackward", "aclnnL1LossBackward")
"""Those that have a sample program; the others' examples are drawn."""


def page() -> str:
    """Every operator of the catalogue, by name and variant."""
    return page_parts.page(
        "Operators",
        """
        From the declarations in `npucall.operators`. Rules are in the order in which the server
        checks them: the first one that is broken is the answer. The software accepts products with
        a *, but current documents do not list them. Next to the name of an argument is its name
        in C. You may use either name, and give a word for a number that has one:
        `reduction="mean"`.
        """,
        families(),
        product_table(),
        *(_section(operator) for operator in CATALOGUE),
        "## What the declarations were written from",
        """
        `ops-nn` and `ops-math` are CANN's repositories of operators; their folders have a page for
        each operator. [sources.md](sources.md) says what was learned from pages, headers and
        sources.
        """,
    )


def forwards_and_gradients() -> tuple[list[str], list[str]]:
    """The names of the catalogue without ``aclnn``, in its order, in two families."""
    names = list(dict.fromkeys(operator.name.removeprefix("aclnn") for operator in CATALOGUE))
    gradients = [name for name in names if re.search("Backward|Grad", name)]
    return [name for name in names if name not in gradients], gradients


def families() -> str:
    """The catalogue in a paragraph: what goes forward, and what has the gradients of it."""
    forwards, gradients = forwards_and_gradients()
    count = len(forwards) + len(gradients)
    text = (
        f"{count} operators in two families; each name begins with `aclnn`. Forward "
        f"({len(forwards)}): {', '.join(forwards)}. Gradients ({len(gradients)}): "
        f"{', '.join(gradients)}."
    )
    return textwrap.fill(text, LINE, break_on_hyphens=False)


def product_table() -> str:
    """Operators by products, with the dtypes that they take there."""
    shown = [p for p in PRODUCTS if any(operator.dtypes_on(p) for operator in CATALOGUE)]
    rows = [
        (
            f"`{operator.name}`",
            operator.variant,
            *(_dtypes(operator.dtypes_on(p), legacy=p in operator.legacy) for p in shown),
        )
        for operator in CATALOGUE
    ]
    head = ("operator", "variant", *(f"{product.name} ({product.soc})" for product in shown))
    others = ", ".join(product.name for product in PRODUCTS if product not in shown)
    note = "\\* accepted by the software, not listed in current documents."
    return f"{page_parts.table(head, rows)}\n\n{note}" + (f" On {others}: none." if others else "")


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
    """Which kernel dtype the inputs' dtypes give: asked of the operator, on its first product."""
    product = next(iter(operator.products))
    dtypes = operator.dtypes_on(product)
    alike = {f"all {dtype}": [dtype] * len(operator.inputs) for dtype in dtypes}
    mixed = {
        f"{other} and {dtypes[0]}": [dtypes[0], other, *dtypes[:1] * len(operator.inputs)]
        for other in dtypes[1:2]
    }
    said = []
    for words, chosen in (alike | mixed).items():
        specs = {
            parameter.name: TensorSpec(dtype, np.shape(SAMPLE))
            for parameter, dtype in zip(operator.inputs, chosen, strict=False)
        }
        try:
            call = prepare(Call(operator, specs, tuple(specs)), product, CATALOGUE)
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
    arguments = _sample(operator) if operator.name in SAMPLED else _drawn(operator)
    if arguments is None:
        return "None yet."
    result = compute(operator, **arguments)
    values = result if isinstance(result, tuple) else (result,)
    given = [_assigned(name, value, 2) for name, value in arguments.items()]
    gives = [_assigned(p.name, v, 8) for p, v in zip(operator.outputs, values, strict=True)]
    return "\n".join(["With", "", *given, "", "it gives", "", *gives])


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
            values = {p.name: given.values.get(p.name) for p in operator.parameters}
            own = {each.name: each.dtypes for each in statement.inputs}
            return {
                name: _plain(value, given.dtypes[name] if own.get(name) else None)
                for name, value in values.items()
                if value is not None
            }
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
