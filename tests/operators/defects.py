"""The error tables of the statements, row by row: calls with defects, and what the rules answer.

A row is an ``Invalid`` of a statement of the conformance suite, which is written independently of
the product. Rows are in the order in which the device checks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, groupby, islice, product
from typing import Any

from npucall.declare.call import Call, parameter_of
from npucall.declare.declaration import Operator
from npucall.declare.draft import Draft
from npucall.declare.prepare import prepare
from npucall.declare.rules import Rule
from npucall.errors import ArgumentError, NpucallError
from npucall.operators import CATALOGUE
from npucall.products import A2, PRODUCTS, Product
from npucall.tensors import TensorSpec
from npucall_conformance.cases.case import Maker
from npucall_conformance.cases.made_call import argument_of, call_of, in_lists, without
from npucall_conformance.statements import statements
from npucall_conformance.stating.parts import Invalid, Setup, collide
from npucall_conformance.stating.statement import LEFT_OUT, Statement

Answer = tuple[type[NpucallError], "int | None", tuple[str, ...]]
"""Class, aclnn status and blamed parameters of an error."""
FIELDS = ("dtype", "shape", "format")
BY_SOC = {product.soc: product for product in PRODUCTS}


def answer_of(row: Invalid) -> Answer:
    """What a call with this defect alone is answered."""
    return row.error, row.status, row.blames


@lru_cache(maxsize=1024)
def _valid(statement: Statement, product: Product) -> Mapping[str, Any]:
    return valid_call(statement, Setup(), product)


def changed(**changes: Any) -> Invalid:
    """Changes of a call, whatever is answered to them."""
    return Invalid("changed", changes, (), ArgumentError)


def valid_call(statement: Statement, base: Setup, product: Product) -> dict[str, Any]:
    """Arguments of a call without defects, with all outputs and optional inputs."""
    make = Maker(statement, "defects")
    setup = replace(base, absent=base.absent or ("",))
    attributes = {**make.combinations[0], **setup.attributes}
    case = make.case(statement.dtypes[0], setup, attributes, outputs=True)
    return dict(call_of(case, 0, product.soc).arguments)


@dataclass(frozen=True, eq=False)
class Table:
    """An operator's error table, and the rules that must keep it."""

    statement: Statement
    operator: Operator[..., Any]
    _refusing: dict[tuple[str, ...], list[str]] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.statement.title

    @cached_property
    def products(self) -> list[Product]:
        """Those that have the operator."""
        return [BY_SOC[soc] for soc in self.statement.takes]

    def rows(self, product: Product = A2) -> list[Invalid]:
        """The rows that are for a product, but for those of values, which no rule sees."""
        every = (row for row in self.statement.invalid if not _of_values(row))
        return [row for row in every if not row.products or product.soc in row.products]

    def call(self, *rows: Invalid, on: Product = A2) -> Call:
        """A call with these defects and no other."""
        bases = [row.base for row in rows if row.base != Setup()]
        made = valid_call(self.statement, bases[-1], on) if bases else _valid(self.statement, on)
        arguments = dict(made)
        for name, change in chain.from_iterable(row.changes.items() for row in rows):
            self._change(arguments, name, change)
        inputs = {each.name for each in self.statement.inputs}
        given = {n for n, a in arguments.items() if n in inputs and isinstance(a, TensorSpec)}
        places = {p.name: place for place, p in enumerate(self.operator.parameters)}
        order = sorted(arguments, key=lambda name: places[parameter_of(name)])
        listed = in_lists({name: arguments[name] for name in order})
        return Call(self.operator, listed, tuple(name for name in order if name in given))

    def _change(self, arguments: dict[str, Any], name: str, change: Any) -> None:
        """As ``Invalid.changes`` has it."""
        spec = arguments.get(name)
        if change is None or change is LEFT_OUT or change == ():
            without(arguments, name, change)  # an output that nobody asks for is not there
        elif isinstance(change, dict) and isinstance(spec, TensorSpec):
            said = {field: change.get(field, getattr(spec, field)) for field in FIELDS}
            arguments[name] = TensorSpec(**said | {"strides": change.get("strides")})
        else:
            arguments[name] = argument_of(self.statement.attribute(name).c_type, change)

    def refusal(self, *rows: Invalid, on: Product = A2) -> Answer | None:
        """What the rules answer to such a call; None if it passes."""
        try:
            prepare(self.call(*rows, on=on), on, CATALOGUE)
        except NpucallError as error:
            return type(error), error.aclnn_status, error.parameters
        return None

    def neighbours(self, on: Product = A2) -> list[tuple[Invalid, Invalid]]:
        """Pairs of rows that fit into one call; the first must be the answer.

        Within what one check refuses, each with the next. Between checks, one pair of a check and
        the nearest later one, and of a check and the nearest earlier one, that tells their order:
        no two checks can change places unseen then.
        """
        usual = [row for row in self.rows(on) if not row.alone]
        groups = [list(g) for _, g in groupby(usual, lambda row: self.first_of(row, on))]
        pairs = [
            *chain.from_iterable(_within(group) for group in groups),
            *self._between(on, groups, lambda one, other: (one, other)),
            *self._between(on, groups[::-1], lambda one, other: (other, one)),
        ]
        return [pair for n, pair in enumerate(pairs) if pair not in pairs[:n]]

    def _between(
        self, on: Product, groups: list[list[Invalid]], ordered: Callable[..., Any]
    ) -> Iterator[tuple[Invalid, Invalid]]:
        """For each group, a pair with the nearest one behind it that tells the order of both."""
        for number, group in enumerate(groups):
            pairs = (product(group, other) for other in groups[number + 1 :])
            every = (ordered(*pair) for pair in chain.from_iterable(pairs))
            yield from islice((pair for pair in every if self._tell_an_order(on, *pair)), 1)

    def _tell_an_order(self, on: Product, first: Invalid, second: Invalid) -> bool:
        """Whether the checks of both refuse a call with both, and no other before the second."""
        if answer_of(first) == answer_of(second) or not fit(first, second):
            return False
        alone = {*self._alone(first, on), *self._alone(second, on)}
        both = self.refusing(first, second, on=on)
        wanted = [self.first_of(first, on), self.first_of(second, on)]
        return {*wanted} <= {*both} and {*both[: both.index(wanted[1])]} <= alone

    def refusing(self, *rows: Invalid, on: Product) -> list[str]:
        """The checks that refuse a call with these defects, each asked alone."""
        draft = Draft(self.call(*rows, on=on), on, CATALOGUE)
        return [rule.description for rule in self.operator.checks if _refuses(rule, draft)]

    def first_of(self, row: Invalid, on: Product = A2) -> str:
        """The check that is the first to refuse a row."""
        return next(iter(self._alone(row, on)), "none")

    def _alone(self, row: Invalid, on: Product) -> list[str]:
        """The checks that refuse this row, each found once."""
        key = (row.row, str(row.changes), on.soc)  # rows of two defects may have one name
        if key not in self._refusing:
            self._refusing[key] = self.refusing(row, on=on)
        return self._refusing[key]


def _within(group: Sequence[Invalid]) -> Iterator[tuple[Invalid, Invalid]]:
    """Each with the next one for the same products, if both are wrong in what is blamed alone."""
    plain = [row for row in group if {*row.changes} == {*row.blames}]
    for number, first in enumerate(plain):
        fitting = (
            other
            for other in plain[number + 1 :]
            if fit(first, other) and first.products == other.products
        )
        yield from ((first, other) for other in islice(fitting, 1))


def _of_values(row: Invalid) -> bool:
    changes = (change for change in row.changes.values() if isinstance(change, dict))
    return any("values" in change for change in changes)


def _refuses(rule: Rule, draft: Draft) -> bool:
    try:
        rule.check(draft)
    except NpucallError:
        return True
    except Exception:  # noqa: BLE001  # a rule may rely on those before it
        return False
    return False


def fit(first: Invalid, second: Invalid) -> bool:
    """Whether one call can have both, and its answer shows which of them was found."""
    if answer_of(first) == answer_of(second) and len(first.blames) > 1:
        return False
    if first.base != second.base and Setup() not in (first.base, second.base):
        return False
    return not collide(first.changes, second.changes)


TABLES = [Table(each, CATALOGUE.find(each.operator, each.variant)) for each in statements()]


def table_of(operator: Operator[..., Any]) -> Table:
    """The error table of an operator."""
    return next(table for table in TABLES if table.operator is operator)


ON_A2 = [table for table in TABLES if A2 in table.products]
"""Of operators that a device of this process, which is an A2, has."""
