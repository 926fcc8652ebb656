"""Compares a server's listing of an operator with the operator's statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npucall.dtypes import BY_WIRE, DType
from npucall.errors import NpucallError
from npucall.v1 import operator_service_pb2 as pb
from npucall_conformance.reporting.report import JudgedServer
from npucall_conformance.running.subject import Subject
from npucall_conformance.stating.parts import Invalid
from npucall_conformance.stating.statement import Parameter, Statement
from npucall_conformance.stating.tables import product_of

_ROLES = {pb.ROLE_INPUT: "input", pb.ROLE_OUTPUT: "output", pb.ROLE_ATTRIBUTE: "attribute"}


def listing_problems(statement: Statement, subject: Subject, *, partly: bool) -> list[str]:
    """What is wrong with a server's entry of an operator.

    ``partly``: the entry may have fewer products and types. Raises NotJudgedError for a library in
    place of a server, which lists nothing.
    """
    server, found = subject.server, subject.entries(statement.title)
    if len(found) != 1:
        return [f"listing: expected {statement.title} once, found it {len(found)} times"]
    info = found[0]
    return [
        f"listing: {problem}"
        for problem in (
            *_product(server),
            *_whole(statement, info),
            *_availability(statement, info, server.product),
            *_default_variant(statement, subject),
            *_products(statement, info, partly=partly),
            *_parameters(statement, info),
            *_rules(statement, info),
            *_alone(statement, subject, info),
        )
    ]


def _product(server: JudgedServer) -> Iterator[str]:
    """What is wrong with the server's product.

    If no family has the SoC, the server guesses the product, and any product is accepted.
    """
    product = product_of(server.soc)
    if product:
        yield from _unequal(f"product of {server.soc}", product, server.product)


def _alone(statement: Statement, subject: Subject, info: pb.OperatorInfo) -> Iterator[str]:
    """What is wrong if the operator is asked for alone: the answer must be the same entry."""
    try:
        alone = subject.client.operator(statement.operator, statement.variant)
    except NpucallError as error:
        yield f"GetOperator: expected the entry, found {error.reason}: {error}"
        return
    if alone != info:
        yield "GetOperator: expected the entry of the listing, found another"


def _default_variant(statement: Statement, subject: Subject) -> Iterator[str]:
    server = subject.server
    title = f"{statement.operator}.{server.default_variant}"
    if statement.variant and server.product in statement.takes and title not in subject.dtypes:
        yield f"default variant: expected one that is available, found {server.default_variant!r}"
    if statement.variant:
        taken = subject.client.operator(statement.operator).variant
        yield from _unequal("variant of an entry without one", server.default_variant, taken)


def _whole(statement: Statement, info: pb.OperatorInfo) -> Iterator[str]:
    prototype = (
        f"aclnnStatus {statement.operator}GetWorkspaceSize({statement.prototype}, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )
    yield from _unequal("prototype", prototype, info.prototype)
    yield from _unequal("reference", expected=True, found=info.reference)
    for name in ("summary", "description", "source"):
        yield from _untold(name, getattr(info, name))


def _availability(statement: Statement, info: pb.OperatorInfo, product: str) -> Iterator[str]:
    because = info.unavailable_because
    if product in statement.takes and not info.available:
        yield f"expected it available on {product}, found: {because or 'no reason'}"
    if product not in statement.takes and info.available:
        yield f"expected it unavailable on {product}, found it available"
    if info.available == bool(because):
        yield f"expected a reason if it is unavailable and none else, found {because!r}"


def _products(statement: Statement, info: pb.OperatorInfo, *, partly: bool) -> Iterator[str]:
    found = sorted(each.soc for each in info.products)
    if not (partly and len({*found}) == len(found) and {*found} <= statement.takes.keys()):
        yield from _unequal("products", sorted(statement.takes), found)
    for each in info.products:
        wanted = {dtype.wire for dtype in statement.takes.get(each.soc, ())}
        here = {int(wire) for wire in each.dtypes}
        fits = here <= wanted if partly else here == wanted
        if not fits or len(each.dtypes) != len(here):
            yield f"{each.soc}: expected {_names(wanted)}, found {_names(each.dtypes)}"
        documented = each.soc not in statement.legacy
        yield from _unequal(f"{each.soc} in current documents", documented, not each.legacy)


def _names(wires: Any) -> str:
    return ", ".join(sorted(str(BY_WIRE.get(wire, wire)) for wire in wires)) or "nothing"


def _parameters(statement: Statement, info: pb.OperatorInfo) -> Iterator[str]:
    wanted = [(p.name, p.c_name, p.c_type, _role(statement, p)) for p in statement.parameters]
    found = [(p.name, p.c_name, p.c_type, _ROLES.get(p.role, str(p.role))) for p in info.parameters]
    yield from _unequal("parameters", wanted, found)
    inputs = {each.name: each for each in statement.inputs}
    outputs = {each.name: each for each in statement.outputs}
    for each in info.parameters:
        yield from _untold(f"description of {each.name}", each.description)
        stated = inputs.get(each.name)
        yield from _unequal(f"{each.name} is read", stated is not None and stated.read, each.read)
        output = outputs.get(each.name)
        optional = (stated is not None and stated.optional) or (output and output.nullable) or False
        optional = optional or statement.defaults.get(each.name, ...) is None
        yield from _unequal(f"{each.name} is optional", optional, each.optional)
        yield from _unequal(
            f"default of {each.name}", _shown(statement.defaults.get(each.name)), _default(each)
        )


def _rules(statement: Statement, info: pb.OperatorInfo) -> Iterator[str]:
    """What is wrong with the listed checks: each row of the error table has one, in its order.

    Rows about values, which the formula checks, have none. Rules without a status are not compared:
    what they say, such as that an empty call is done, only their text tells.
    """
    place, left = 0, {n for n, rule in enumerate(info.rules) if rule.aclnn_status}
    for row in statement.invalid:
        fitting = [n for n, rule in enumerate(info.rules) if _fits(row, rule)]
        left.difference_update(fitting)
        in_order = not (row.alone or any("values" in each for each in _changed(row)))
        if in_order and row.status is not None:
            found = next((n for n in fitting if n >= place), None)
            if found is None:
                yield f"rules: expected {row.status} blaming {row.blames} in its place, found none"
            place = place if found is None else found
    for number in sorted(left):
        yield f"rules: expected none but those of the error table, found rule {number + 1}"
    known = {each.name for each in info.parameters}
    for number, rule in enumerate(info.rules, 1):
        yield from _untold(f"description of rule {number}", rule.description)
        if not known.issuperset(rule.blames):
            yield f"rule {number}: expected parameters blamed, found {list(rule.blames)}"


def _fits(row: Invalid, rule: pb.RuleInfo) -> bool:
    return row.status == rule.aclnn_status and {*row.blames} <= {*rule.blames}


def _changed(row: Invalid) -> list[Mapping[str, Any]]:
    """The tensors that a row changes."""
    return [change for change in row.changes.values() if isinstance(change, dict)]


def _role(statement: Statement, parameter: Parameter) -> str:
    if parameter.name in {each.name for each in statement.inputs}:
        return "input"
    return "output" if parameter.name in {each.name for each in statement.outputs} else "attribute"


def _shown(default: Any) -> Any:
    """A default in the form of listings: with its kind; sequences are not shown."""
    if default is None or isinstance(default, tuple):
        return None
    kind = "dtype" if isinstance(default, DType) else _MEMBERS[type(default)]
    return (kind, default)


_MEMBERS = {bool: "boolean", int: "integer", float: "number", str: "text"}


def _default(info: pb.ParameterInfo) -> Any:
    member = info.WhichOneof("default_value")
    if member is None:
        return None
    value = getattr(info, member)
    return (member, BY_WIRE.get(value, value) if member == "dtype" else value)


def _unequal(what: str, expected: Any, found: Any) -> Iterator[str]:
    if expected != found:
        yield f"{what}: expected {expected}, found {found}"


def _untold(what: str, text: str) -> Iterator[str]:
    if not text:
        yield f"{what}: expected a text, found none"
