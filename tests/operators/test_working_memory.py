"""What evaluating a call takes of memory, measured, beside what its operator declares.

The calls are those of the statements' block ``large``, grown: of every operator long rows and many
short ones, many sums and few, many classes and few.
"""

import math
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from npucall.compute import evaluate
from npucall.compute.work import Work
from npucall.declare.call import Call, parameter_of
from npucall.declare.domain import LANE_BYTES
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT16
from npucall.errors import ArgumentError
from npucall.operators import CATALOGUE
from npucall.products import A2, ASCEND_950
from npucall.tensors import Shape, TensorSpec, row_major
from npucall_conformance.cases.case import Case, Maker
from npucall_conformance.cases.made_call import attributes_of, in_lists
from npucall_conformance.statements import statements
from npucall_conformance.stating.parts import Setup
from npucall_conformance.stating.statement import Statement

MANY = 1 << 22
"""Elements of a large tensor: one of FLOAT beside it exceeds what a lane may take."""
ABSURD = 3
"""So many times what is taken is too much to declare."""


def cases(*every: Statement, step: int = 1) -> Iterator[Case]:
    """One in so many of them. All inputs are given; attributes are taken in turn."""
    places = count()
    for statement in every:
        own = [(setup, next(places) % step == 0) for setup in statement.large]
        make = Maker(statement, "memory")
        for setup, wanted in own if any(wanted for _, wanted in own) else ():
            case = grown(make, replace(setup, absent=setup.absent or ("",)))
            if wanted:
                yield case


def grown(make: Maker, setup: Setup) -> Case:
    """The case with one extent so long that its largest tensor has about ``MANY`` elements.

    It is the longest extent with which the call is none that the operator refuses.
    """
    statement = make.statement
    dtype = FLOAT16 if FLOAT16 in statement.dtypes else statement.dtypes[0]
    base = statement.layout_shape if setup.base is None else setup.base
    factor = -(-MANY // max(map(math.prod, make.case(dtype, setup).shapes.values())))
    for longest in sorted({*base, *sum(setup.shapes.values(), ())}, reverse=True):

        def long(shape: Shape, longest: int = longest) -> Shape:
            return tuple(n * factor if n == longest else n for n in shape)

        shapes = {name: long(shape) for name, shape in setup.shapes.items()}
        base_of_it = statement.fitted(long(base))
        case = make.case(dtype, replace(setup, base=base_of_it, shapes=shapes))
        try:
            prepared(case)
        except ArgumentError:
            continue
        return case
    raise AssertionError(f"{statement.title} {setup.note}: no extent can be longer")


def prepared(case: Case) -> tuple[Prepared, dict[str, bytes]]:
    """The call and its storages: one element each, which all of the tensor is."""
    whole = {each.name for each in case.statement.inputs if each.dense or each.updated}
    specs = {
        name: TensorSpec(
            case.dtypes[name], shape, row_major(shape) if name in whole else (0,) * len(shape)
        )
        for name, shape in case.shapes.items()
    }
    operator = CATALOGUE.find(case.statement.operator, case.statement.variant)
    attributes = attributes_of(case.statement, case.attributes)
    product = A2 if not case.products or A2.soc in case.products else ASCEND_950
    product = operator.product_near(product)
    given = Call(operator, {**in_lists(specs), **attributes}, tuple(specs))
    call, values, storages = prepare(given, product, CATALOGUE), operator.values, {}
    for name, spec in specs.items():
        number = (
            values.passes(call.facts).start
            if values and parameter_of(name) in values.reads
            else 0.5
        )
        one = np.full(1, number).astype(spec.dtype.numpy).tobytes()
        storages[name] = bytes(spec.storage_bytes) if name in whole else one
    return call, storages


def taken(call: Prepared, storages: dict[str, bytes]) -> int:
    """The most bytes that evaluating a call holds at a time, without its answer."""
    evaluate._keep_memory_of_blocks()  # once a process, and given back at once
    tracemalloc.start()
    try:
        answers = evaluate.run(call, storages)
        return tracemalloc.get_traced_memory()[1] - sum(map(len, answers))
    finally:
        tracemalloc.stop()


@pytest.mark.alone
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(307, id="some"),
        pytest.param(29, marks=pytest.mark.more, id="many"),
        pytest.param(1, marks=pytest.mark.long, id="all"),
    ],
)
def test_a_call_takes_what_is_declared_and_no_more_than_a_lane_may(step: int) -> None:
    wrong = []
    for case in cases(*statements(), step=step):
        call, storages = prepared(case)
        held = taken(call, storages)
        absurd = call.working_bytes > max(LANE_BYTES, ABSURD * held)
        if held > call.working_bytes + LANE_BYTES or absurd:
            wrong.append((case.id, held, call.working_bytes))
    assert not wrong


@pytest.mark.alone
@pytest.mark.more
def test_the_measure_sees_a_copy_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Work, "block", MANY)
    (hardswish,) = (s for s in statements() if s.title == "aclnnHardswishBackward")
    call, storages = prepared(next(cases(hardswish)))
    assert taken(call, storages) > LANE_BYTES
