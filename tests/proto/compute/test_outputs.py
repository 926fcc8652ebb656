"""Outputs that nobody asks for, that are updated, and that have a dtype of their own; lists."""

from typing import Any

import numpy as np
import pytest

from npucall.compute import evaluate
from npucall.compute.helpers import Helpers
from npucall.declare import Attribute, Facts, Input, Kind, Output, at_once, operator, rules
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT, FLOAT16, INT64, AnyArray
from npucall.errors import ArgumentMissingError, NpucallError
from npucall.products import A2
from npucall.tensors import Format, TensorSpec
from npucall.wire.listing import declare, describe

ROW = TensorSpec(FLOAT16, (4,))
EVERY = (True, True)


@operator(
    "aclnnEveryOutput",
    Input("parts", "a list", many=True),
    Output("state_ref", "updated", in_place=True, as_is=True, optional=True),
    Attribute("output_mask", Kind.BOOL_ARRAY, "which are asked for"),
    Output("total", "masked", "row", "half", asked=lambda d: d.attribute("output_mask")[0]),
    Output(
        "place", "masked, with a dtype of its own", "row", "whole", as_is=True,
        asked=lambda d: d.attribute("output_mask")[1],
    ),
    Output("double", "may be null", "row", "half", optional=True),
    products={A2: (FLOAT16,)},
    checks=(
        rules.present("parts", "output_mask", "total", "place"),
        rules.shape_of("parts", into="row", make=lambda draft: draft.shape("parts[0]")),
        rules.dtype_from("parts", into="half", make=lambda _: FLOAT16),
        rules.dtype_from("parts", into="whole", make=lambda _: INT64),
        rules.succeed_if_empty("parts[0]"),
    ),
    kernel_dtype=rules.always(FLOAT16),
    over=at_once(),
    area="arithmetic",
    source="this test",
    formats_by_rank=True,
)  # fmt: skip
def every_output(
    facts: Facts, parts: Any, state_ref: Any, output_mask: tuple[bool, ...]
) -> tuple[AnyArray | None, ...]:
    """All of a list, one more than it was, and places that FLOAT16 does not have."""
    total = sum(facts.read(part, ...) for part in parts)
    state = None if state_ref is None else facts.read(state_ref, ...) + 1
    places = np.arange(4) + 2049 if "place" in facts.asked else None
    return state, total, places, total * 2 if "double" in facts.asked else None


HALVES = np.array([1, 2, 3, 4], np.float16)
STATE = np.array([0.1, 4097, 3], np.float32)


def prepared(stored: tuple[str, ...] = (), **given: Any) -> Prepared:
    usual = {"parts": (ROW, ROW), "state_ref": TensorSpec(FLOAT, (3,)), "output_mask": EVERY}
    arguments = {name: each for name, each in {**usual, **given}.items() if each != "left out"}
    sent = ("parts[0]", "parts[1]", *("state_ref",) * (arguments["state_ref"] is not None), *stored)
    return prepare(Call(every_output, arguments, sent), A2, Catalogue([every_output]))


def ran(call: Prepared, **stored: bytes) -> dict[str, Any]:
    given = {"parts[0]": HALVES.tobytes(), "parts[1]": HALVES.tobytes()}
    given |= {"state_ref": STATE.tobytes()}
    found = evaluate.run(call, {name: {**given, **stored}[name] for name in call.stored})
    pairs = zip(call.outputs.items(), found, strict=True)
    return {name: np.frombuffer(data, spec.dtype.numpy).tolist() for (name, spec), data in pairs}


def test_lists_and_old_values_reach_the_formula_and_each_output_has_its_dtype() -> None:
    assert ran(prepared()) == {
        "state_ref": (STATE + np.float32(1)).tolist(),
        "total": [2, 4, 6, 8],
        "place": [2049, 2050, 2051, 2052],
        "double": [4, 8, 12, 16],
    }


@operator(
    "aclnnOfLists",
    Input("x", "numbers", many=True),
    Output("total_ref", "sums, updated", many=True, in_place=True),
    Output("twice", "of each", "x", "x", many=True),
    products={A2: (FLOAT, FLOAT16)},
    checks=(
        rules.present("x", "total_ref"),
        rules.supported("x"),
        rules.rank_is("x", 1),
        rules.fill_if_empty("x", fill=lambda _: 7, meaning="7", outputs=("twice",)),
    ),
    kernel_dtype=rules.dtype_of("x[0]"),
    over=at_once(),
    area="arithmetic",
    source="this test",
)
def of_lists(facts: Facts, x: Any, total_ref: Any) -> tuple[list[AnyArray], list[AnyArray]]:
    """Each added to its total, and doubled."""
    pairs = zip(x, total_ref, strict=True)
    return [facts.read(a, ...) + facts.read(b, ...) for a, b in pairs], [a[...] * 2 for a in x]


def of_two(*extents: int, dtype: Any = FLOAT) -> Prepared:
    some = tuple(TensorSpec(dtype, (n,)) for n in extents)
    stored = tuple(f"{name}[{n}]" for name in ("x", "total_ref") for n in range(len(some)))
    call = Call(of_lists, {"x": some, "total_ref": some}, stored)
    return prepare(call, A2, Catalogue([of_lists]))


def test_lists_are_updated_and_an_output_has_a_tensor_for_each_of_the_list_that_it_follows() -> (
    None
):
    call = of_two(1, 2)
    given = [np.array([1.0] * 1), np.array([2.0, 3]), np.array([10.0]), np.array([20.0, 30])]
    found = evaluate.run(
        call, {n: a.astype(np.float32).tobytes() for n, a in zip(call.stored, given, strict=True)}
    )
    answers = {n: np.frombuffer(a, np.float32) for n, a in zip(call.outputs, found, strict=True)}
    assert {name: answer.tolist() for name, answer in answers.items()} == {
        "total_ref[0]": [11], "total_ref[1]": [22, 33], "twice[0]": [2], "twice[1]": [4, 6],
    }  # fmt: skip
    assert evaluate.compute(of_lists, [given[0]], [given[2]])[1][0].tolist() == [2]


def test_what_ends_the_checks_fills_each_tensor_of_a_list() -> None:
    call = of_two(2, 0)
    zeros = {name: bytes(8 if name.endswith("[0]") else 0) for name in call.stored}
    *_, twice, none = evaluate.run(call, zeros)
    assert (np.frombuffer(twice, np.float32).tolist(), bytes(none)) == ([7, 7], b"")


def test_rules_look_at_each_tensor_of_a_list_and_blame_it() -> None:
    pair = (ROW, TensorSpec(FLOAT16, (2, 2)))
    for x, blamed in ((pair, "x[1]"), ((ROW, None), "x[1]"), (None, "x")):
        stored = ("x[0]",) if x else ()
        with pytest.raises(NpucallError) as raised:
            prepare(Call(of_lists, {"x": x, "total_ref": ()}, (*stored, "x[1]")), A2, Catalogue([]))
        assert raised.value.parameters == (blamed,)


def test_what_is_null_or_masked_off_is_not_derived_and_not_computed() -> None:
    call = prepared(output_mask=(True, False), double=None, state_ref=None)
    assert ran(call) == {"total": [2, 4, 6, 8]}
    assert call.asked == call.facts.asked == {"total"}
    assert set(prepared(output_mask=(False, False), double=ROW).outputs) == {"state_ref", "double"}


def test_what_is_asked_for_must_not_be_null() -> None:
    with pytest.raises(ArgumentMissingError, match="total: expected a value"):
        prepared(total=None)
    assert "total" not in prepared(total=None, output_mask=(False, True)).outputs


def test_what_nobody_asks_for_comes_back_as_it_was_if_it_is_sent() -> None:
    call = prepared(("total",), total=ROW, output_mask=(False, True), double=None)
    assert ran(call, total=HALVES.tobytes())["total"] == [1, 2, 3, 4]
    assert "total" not in call.unwritten
    assert "total" not in prepared(total=ROW, output_mask=(False, True)).outputs


def test_a_call_that_is_done_leaves_what_it_would_update() -> None:
    none = TensorSpec(FLOAT16, (0,))
    call = prepared(parts=(none, none))
    assert call.done
    assert ran(call)["state_ref"] == STATE.tolist()
    assert call.unwritten.keys() == {"total", "place", "double"}


def test_in_float64_all_of_it_is_computed_too() -> None:
    wide = HALVES.astype(np.float64)
    state, total, place, double = evaluate.compute(every_output, [wide] * 2, None, EVERY)
    assert state is None
    assert (total.dtype, place.dtype) == (np.float64, np.int64)
    assert double.tolist() == [4, 8, 12, 16]


def test_a_tensor_in_nd_has_the_format_of_its_rank_where_the_operator_looks_at_it() -> None:
    plane = TensorSpec(FLOAT16, (1, 2, 1, 2))
    other = TensorSpec(FLOAT16, (1, 2, 1, 2), format=Format.NHWC)
    call = prepared(parts=(plane, other))
    assert [spec.format for spec in call.inputs.values()] == [Format.NCHW, Format.NHWC]
    assert call.outputs["total"].format is Format.NCHW
    assert call.outputs["state_ref"].format is Format.ND


def test_a_listing_says_so() -> None:
    info = describe(every_output, A2)
    assert info.formats_by_rank
    said = {each.name: (each.role, each.optional) for each in info.parameters}
    assert said["state_ref"] == (3 + 1, True)
    assert [said[name][1] for name in ("total", "place", "double")] == [True] * 3
    assert [output.optional for output in declare(info).outputs] == [True] * 4


def test_blocks_of_what_gets_everything_at_once_are_computed_by_idle_threads_too() -> None:
    @operator(
        "aclnnBlocks",
        Input("x", "numbers"),
        Output("y", "twice", "x", "x"),
        Output("sum", "of all", "one", "x"),
        products={A2: (FLOAT,)},
        checks=(rules.shape_of("x", into="one", make=lambda _: ()),),
        kernel_dtype=rules.always(FLOAT),
        over=at_once(),
        area="arithmetic",
        source="this test",
    )
    def blocks(facts: Facts, x: Any) -> tuple[AnyArray, AnyArray]:
        out, sums = facts.output("y", x.shape), []

        def double(number: int) -> float:
            row = slice(number, number + 1)
            out[row] = facts.read(x, row) * 2 / 0.0 if number == 0 else facts.read(x, row) * 2
            return float(facts.read(x, row).sum())

        facts.each(range(64), double, lambda number, part: sums.append((number, part)))
        assert [number for number, _ in sums] == list(range(64))
        return out, np.float64(sum(part for _, part in sums))

    x = np.arange(640, dtype=np.float32).reshape(64, 10)
    call = prepare(Call(blocks, {"x": TensorSpec(FLOAT, x.shape)}, ("x",)), A2, Catalogue([blocks]))
    answers = []
    for count in (0, 3):
        helpers = Helpers(count)
        answers.append(evaluate.run(call, {"x": x.tobytes()}, helpers=helpers))
        helpers.close()
    assert [bytes(a) for a in answers[0]] == [bytes(a) for a in answers[1]]
    assert np.frombuffer(answers[0][1], np.float32) == x.sum()
