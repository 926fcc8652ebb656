"""Cases that follow from the products, types and defaults in a statement.

They are the blocks ``listing``, ``products`` and ``defaults``. What the server lists does not
change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from npucall.dtypes import DTYPES, DType
from npucall.errors import PARAM_NULLPTR, ArgumentMissingError, AttributeValueError, DTypeError
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.maker import Maker
from npucall_conformance.stating.defects import all_of
from npucall_conformance.stating.parts import Invalid
from npucall_conformance.stating.statement import LEFT_OUT, Statement
from npucall_conformance.stating.tables import SOCS

LISTING, PRODUCTS_BLOCK = "listing", "products"


def listing(make: Maker) -> Iterator[Case]:
    """One case without a call: it compares the server's listing with the statement."""
    statement = make.statement
    name = f"{statement.title}/{LISTING}/entry"
    yield Case(name, statement, LISTING, statement.dtypes[0], {}, {}, {})


def products(make: Maker) -> Iterator[Case]:
    """Calls that products refuse: an operator that they lack, or types that they do not take."""
    statement = make.statement
    inputs = tuple(each.name for each in statement.inputs if not each.refused)
    of_any = tuple(each.name for each in statement.inputs if not (each.refused or each.dtypes))
    blames = (*inputs, *make.outputs)
    without = tuple(soc for soc in SOCS if soc not in statement.takes)
    row = Invalid("operator-not-there", {}, blames, DTypeError, whoever=True)
    yield make.wrong(row.row, row, outputs=False, products=without)
    for dtype in DTYPES:
        refusing = tuple(soc for soc in statement.takes if _refuses(statement, soc, dtype))
        if refusing:
            name, changes = f"takes-no-{dtype.name.lower()}", all_of(dtype, *(of_any or inputs))
            row = Invalid(name, changes, blames, DTypeError, whoever=True)
            yield make.wrong(name, row, outputs=False, products=refusing)


def _refuses(statement: Statement, soc: str, dtype: DType) -> bool:
    # Ascend 950 has floats of 8 bits, but the sources of these statements say nothing about them.
    if dtype.kind == "other" and soc == "Ascend950":
        return False
    return dtype not in statement.takes[soc]


def defaults(make: Maker) -> Iterator[Case]:
    """Calls that leave out parameters: each alone, all together, and those that are required."""
    statement = make.statement
    names, only = tuple(statement.defaults), statement.defaulted.only
    dtypes = tuple(each for each in statement.dtypes if not only or each in only)
    if statement.variant:
        yield make.case(dtypes[0], note="variant-left-out", unnamed=True)
    for name in names:
        for _ in range(2):
            yield _left_out(make, dtypes[0], f"without-{name}", (name,))
    for dtype in dtypes if names else ():
        yield _left_out(make, dtype, "without-all", names)
    for row in _required(statement):
        yield make.wrong(row.row, row, outputs=False)


def _left_out(make: Maker, dtype: DType, note: str, names: tuple[str, ...]) -> Case:
    return make.case(dtype, replace(make.statement.defaulted, note=note, left_out=names))


def _required(statement: Statement) -> Iterator[Invalid]:
    """Required parameters that are left out: a pointer is then null, a number has no value."""
    optional = {each.name for each in statement.inputs if each.optional}
    outputs = {each.name for each in statement.outputs}
    for each in statement.parameters:
        if each.name in optional | outputs | statement.defaults.keys():
            continue
        changes, row = {each.name: LEFT_OUT}, f"without-{each.name}"
        if each.c_type.endswith("*"):
            yield Invalid(row, changes, (each.name,), ArgumentMissingError, PARAM_NULLPTR)
        else:
            yield Invalid(row, changes, (each.name,), AttributeValueError, None)
