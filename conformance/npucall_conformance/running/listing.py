"""Compares a server's listing of an operator with the operator's statement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npucall.dtypes import BY_WIRE, DType
from npucall.errors import NpucallError
from npucall.v1 import operator_service_pb2 as pb
from npucall_conformance.running.subject import Subject
from npucall_conformance.statements import statements
from npucall_conformance.stating.arguments import parameter_of
from npucall_conformance.stating.parts import Invalid
from npucall_conformance.stating.statement import Parameter, Statement
from npucall_conformance.stating.tables import product_of

_ROLES = {
    pb.ROLE_INPUT: "input",
    pb.ROLE_OUTPUT: "output",
    pb.ROLE_INPUT_OUTPUT: "both",
    pb.ROLE_ATTRIBUTE: "attribute",
}
_MEMBERS = {bool: "boolean", int: "integer", float: "number", str: "text"}
A_TEXT = object()
"""Any text but an empty one is expected."""


def listing_problems(statement: Statement, subject: Subject, *, partly: bool) -> list[str]:
    """What is wrong with a server's entry of an operator.

    ``partly``: the entry may have fewer products and types. Raises NotJudgedError for a library in
    place of a server, which lists nothing.
    """
    found = subject.entries(statement.title)
    if len(found) != 1:
        return [f"listing: expected {statement.title} once, found it {len(found)} times"]
    facts = (
        *_whole(statement, subject, found[0]),
        *_products(statement, found[0], partly=partly),
        *_parameters(statement, found[0]),
    )
    problems = [
        f"{what}: expected {'a text' if wanted is A_TEXT else wanted}, found {here or 'none'}"
        for what, wanted, here in facts
        if (not here if wanted is A_TEXT else wanted != here)
    ]
    problems += [*_rules(statement, found[0]), *_alone(statement, subject, found[0])]
    return [f"listing: {problem}" for problem in problems]


def _whole(
    statement: Statement, subject: Subject, info: pb.OperatorInfo
) -> Iterator[tuple[str, Any, Any]]:
    """Facts about the server and the operator: what it is, what is expected, what is found."""
    server, product = subject.server, subject.server.product
    # If no family has the SoC, the server guesses the product, and any product is accepted.
    yield f"product of {server.soc}", product_of(server.soc) or product, product
    prototype = (
        f"aclnnStatus {statement.operator}GetWorkspaceSize({statement.prototype}, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )
    yield "prototype", prototype, info.prototype
    yield "reference", True, info.reference
    yield "formats by rank", statement.formats_by_rank, info.formats_by_rank
    for name in ("summary", "description", "source"):
        yield name, A_TEXT, getattr(info, name)
    yield f"available on {product}", product in statement.takes, info.available
    why = info.unavailable_because
    yield "why it is unavailable", "" if info.available else A_TEXT, why
    if statement.variant and not any(each.title == statement.operator for each in statements()):
        title = f"{statement.operator}.{server.default_variant}"
        there = title in subject.dtypes or product not in statement.takes
        yield f"default variant {server.default_variant} is available", True, there
        taken = subject.client.operator(statement.operator).variant
        yield "variant of an entry without one", server.default_variant, taken


def _products(
    statement: Statement, info: pb.OperatorInfo, *, partly: bool
) -> Iterator[tuple[str, Any, Any]]:
    found, takes = sorted(each.soc for each in info.products), statement.takes
    some = partly and len({*found}) == len(found) and {*found} <= takes.keys()
    yield "products", found if some else sorted(takes), found
    for each in info.products:
        wanted, here = {dtype.wire for dtype in takes.get(each.soc, ())}, list(each.dtypes)
        some = partly and len({*here}) == len(here) and {*here} <= wanted
        yield each.soc, _names(here if some else wanted), _names(here)
        documented = each.soc not in statement.legacy
        yield f"{each.soc} in current documents", documented, not each.legacy


def _names(wires: Any) -> str:
    return ", ".join(sorted(str(BY_WIRE.get(wire, wire)) for wire in wires)) or "nothing"


def _parameters(statement: Statement, info: pb.OperatorInfo) -> Iterator[tuple[str, Any, Any]]:
    wanted = [(p.name, p.c_name, p.c_type, _role(statement, p)) for p in statement.parameters]
    found = [(p.name, p.c_name, p.c_type, _ROLES.get(p.role, str(p.role))) for p in info.parameters]
    yield "parameters", wanted, found
    inputs = {parameter_of(each.name): each for each in statement.inputs}
    optional = {each.name for each in statement.inputs if each.optional}
    optional |= {each.name for each in statement.outputs if each.nullable}
    optional |= {name for name, default in statement.defaults.items() if default is None}
    for each in info.parameters:
        stated = inputs.get(each.name)
        yield f"description of {each.name}", A_TEXT, each.description
        yield f"{each.name} is read", stated is not None and stated.read, each.read
        yield f"{each.name} is optional", each.name in optional, each.optional
        default = _shown(statement.defaults.get(each.name))
        yield f"default of {each.name}", default, _default(each)
    for number, rule in enumerate(info.rules, 1):
        yield f"description of rule {number}", A_TEXT, rule.description
        known = {each.name for each in info.parameters}
        yield f"parameters that rule {number} blames alone", [], sorted({*rule.blames} - known)


def _rules(statement: Statement, info: pb.OperatorInfo) -> Iterator[str]:
    """What is wrong with the listed checks: each row of the error table has one, in its order.

    Rows about values, which the formula checks, have none. Rules without a status are not compared:
    what they say, such as that an empty call is done, only their text tells.
    """
    place, left = 0, {n for n, rule in enumerate(info.rules) if rule.aclnn_status}
    for row in statement.invalid:
        fitting = [n for n, rule in enumerate(info.rules) if _fits(row, rule)]
        left.difference_update(fitting)
        tensors = [change for change in row.changes.values() if isinstance(change, dict)]
        in_order = not (row.alone or any("values" in each for each in tensors))
        if in_order and row.status is not None:
            found = next((n for n in fitting if n >= place), None)
            if found is None:
                yield f"rules: expected {row.status} blaming {row.blames} in its place, found none"
            place = place if found is None else found
    for number in sorted(left):
        yield f"rules: expected none but those of the error table, found rule {number + 1}"


def _fits(row: Invalid, rule: pb.RuleInfo) -> bool:
    return row.status == rule.aclnn_status and {*map(parameter_of, row.blames)} <= {*rule.blames}


def _alone(statement: Statement, subject: Subject, info: pb.OperatorInfo) -> Iterator[str]:
    """What is wrong if the operator is asked for alone: the answer must be the same entry."""
    try:
        alone = subject.client.operator(statement.operator, statement.variant)
    except NpucallError as error:
        yield f"GetOperator: expected the entry, found {error.reason}: {error}"
        return
    if alone != info:
        yield "GetOperator: expected the entry of the listing, found another"


def _role(statement: Statement, parameter: Parameter) -> str:
    name, inputs = parameter.name, {parameter_of(each.name): each for each in statement.inputs}
    if name in inputs:
        return "both" if inputs[name].updated else "input"
    outputs = {parameter_of(each.name) for each in statement.outputs}
    return "output" if name in outputs else "attribute"


def _shown(default: Any) -> Any:
    """A default in the form of listings: with its kind; sequences are not shown."""
    if default is None or isinstance(default, tuple):
        return None
    if isinstance(default, int) and default >= 2**63:  # an uint64_t, as it travels
        default -= 2**64
    return "dtype" if isinstance(default, DType) else _MEMBERS[type(default)], default


def _default(info: pb.ParameterInfo) -> Any:
    member = info.WhichOneof("default_value")
    if member is None:
        return None
    value = getattr(info, member)
    return member, BY_WIRE.get(value, value) if member == "dtype" else value
