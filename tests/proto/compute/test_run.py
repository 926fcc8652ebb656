"""npucall.compute.evaluate.run: from storages to storages, into given memory, and with helpers."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.proto.computing import Counted, call_of, storages_of
from tests.rows import each

from npucall.compute import evaluate
from npucall.compute.helpers import Helpers
from npucall.compute.recipes import recipe_of
from npucall.declare.call import Call
from npucall.declare.prepare import Prepared, prepare
from npucall.declare.samples import Form, sample, sample_storages
from npucall.dtypes import FLOAT, FLOAT16, FLOATS, INT64
from npucall.errors import ArgumentError, NpucallError
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec, view

L1, KL = CATALOGUE.find("aclnnL1LossBackward"), CATALOGUE.find("aclnnKlDivBackward")
BUILTIN = CATALOGUE.find("aclnnKlDivTargetBackward", "builtin")
INPUTS = ("grad_output", "self", "target")


def poisoned(size: int) -> bytearray:
    return bytearray(b"\xa5" * size)


def test_an_output_is_computed_into_the_memory_that_is_given_for_it_or_into_new_memory() -> None:
    call = call_of(L1, (300, 500), (300, 500), (300, 500))
    storages, target = storages_of(call), poisoned(600_000)
    (answer,) = evaluate.run(call, storages, targets={"grad_input": target})
    assert answer is target
    assert (
        [bytes(target)] == evaluate.run(call, storages) == evaluate.run(call, storages, targets={})
    )


def test_a_call_of_one_block_has_the_bits_of_one_that_is_computed_in_blocks() -> None:
    """Which it is where memory is given for its output, or where inputs are not aligned."""
    whole = 0
    ways = [(dtype, Form.ORDINARY) for dtype in FLOATS] + [(FLOATS[0], form) for form in Form]
    for operator, (dtype, form) in itertools.product(CATALOGUE, ways):
        try:
            call = sample(operator, A2, CATALOGUE, dtype, form)
        except NpucallError:
            continue  # the operator takes no such tensors
        storages = sample_storages(call, 1)
        outputs = {name: spec.storage_bytes for name, spec in call.outputs.items()}
        blocks = evaluate.run(call, storages, targets={n: bytearray(s) for n, s in outputs.items()})
        shifted = {name: memoryview(b"x" + each)[1:] for name, each in storages.items()}
        for given in storages, shifted:
            answers = evaluate.run(call, given)
            assert list(map(bytes, answers)) == list(map(bytes, blocks)), (operator, dtype, form)
        whole += recipe_of(call).whole is not None
    assert whole > len(CATALOGUE)


def test_memory_that_is_too_small_is_refused() -> None:
    call = call_of(L1, (3,), (3,), (3,))
    with pytest.raises(ValueError, match="size of buffer"):
        evaluate.run(call, storages_of(call), targets={"grad_input": bytearray(8)})


@each("given", [False, True])
def test_gaps_of_an_output_come_back_as_they_were_sent(given: bool) -> None:
    spec = TensorSpec(FLOAT, (4, 3), (6, 2), 5)
    call = call_of(L1, (4, 3), (4, 3), (4, 3), grad_input=spec)
    storages = storages_of(call)
    targets = {"grad_input": poisoned(spec.storage_bytes)} if given else {}
    (answer,) = evaluate.run(call, storages, targets=targets)
    found = np.frombuffer(bytes(answer), np.float32).copy()
    sent = np.frombuffer(storages["grad_input"], np.float32).copy()
    dense = call_of(L1, (4, 3), (4, 3), (4, 3))
    (expected,) = evaluate.run(dense, {name: storages[name] for name in INPUTS})
    assert view(spec, found.data).tobytes() == bytes(expected)
    view(spec, found.data)[...] = view(spec, sent.data)[...] = 0
    assert found.tobytes() == sent.tobytes()


def test_a_storage_that_was_sent_is_written_only_where_it_is_the_memory_of_its_output() -> None:
    call = call_of(L1, (4,), (4,), (4,), grad_input=TensorSpec(FLOAT, (4,), (2,)))
    storages = {name: bytearray(data) for name, data in storages_of(call).items()}
    before = {name: bytes(data) for name, data in storages.items()}
    expected = evaluate.run(call, storages)
    assert storages == before
    assert evaluate.run(call, storages, targets={"grad_input": storages["grad_input"]}) == expected


@each("given", [False, True])
def test_sums_of_nothing_are_zeros_between_the_gaps_that_were_sent(given: bool) -> None:
    spec = TensorSpec(FLOAT, (2, 1), (3, 1))
    call = call_of(KL, (), (2, 1), (2, 0), out=spec, reduction=0)
    assert not call.done
    storages = storages_of(call)
    targets = {"out": poisoned(spec.storage_bytes)} if given else {}
    (answer,) = evaluate.run(call, storages, targets=targets)
    sent = np.frombuffer(storages["out"], np.float32)
    expected = [0, sent[1], sent[2], 0]
    assert np.frombuffer(bytes(answer), np.float32).tolist() == expected


def test_a_call_that_the_rules_ended_answers_zeros_in_given_memory_too() -> None:
    call = call_of(BUILTIN, (0,), (0,), (1,), reduction=0)
    assert call.done
    target = poisoned(4)
    evaluate.run(call, storages_of(call), targets={"grad_target": target})
    assert bytes(target) == bytes(4)


def test_the_storage_of_an_output_without_elements_comes_back_as_it_was_sent() -> None:
    call = call_of(L1, (0,), (0,), (0,), grad_input=TensorSpec(FLOAT, (0,), (1,), 0, (3,)))
    storages, target = storages_of(call), poisoned(12)
    evaluate.run(call, storages, targets={"grad_input": target})
    assert bytes(target) == storages["grad_input"]


@each(("elements", "turns"), [(1, 1), (294_912, 1), (294_913, 2), (900_000, 4)])
def test_a_turn_is_taken_for_three_blocks(elements: int, turns: int) -> None:
    call, turn = call_of(L1, (elements,), (elements,), (elements,)), Counted()
    evaluate.run(call, storages_of(call), turn)
    assert turn.taken == turns


# What is summed goes into 7 sums of all blocks, into sums of a few blocks, or into one.
SUMMED = [((4000, 70), (1, 70)), ((70, 4000), (70, 1)), ((300, 1000), (1, 1))]


@each("dtype", [FLOAT, FLOAT16])
@each(("large", "small"), SUMMED)
def test_helpers_do_not_change_a_bit_of_a_sum(
    dtype: Any, large: Any, small: Any, helpers: Helpers
) -> None:
    call = call_of(KL, large, small, large, dtype=dtype, reduction=0)
    storages = storages_of(call)
    alone = evaluate.run(call, storages)
    for _ in range(5):
        assert evaluate.run(call, storages, helpers=helpers) == alone


def test_terms_are_rounded_to_float16_before_they_are_summed() -> None:
    call = call_of(KL, (2,), (1,), (2,), dtype=FLOAT16, reduction=0)
    grad_output = np.array([1 + 2**-10, 1], np.float16)
    target = np.array([1 + 2**-10, -(1 + 2**-9)], np.float16)
    # The first product is 1 + 2**-9 + 2**-20; in FLOAT16 it is the second one's opposite.
    sent = {"grad_output": grad_output.tobytes(), "self": bytes(2), "target": target.tobytes()}
    (answer,) = evaluate.run(call, sent)
    assert np.frombuffer(bytes(answer), np.float16).tolist() == [0]


def test_helpers_say_nothing_of_overflow_and_of_division_by_0(helpers: Helpers) -> None:
    size = 300_000
    call = call_of(KL, (size,), (size,), (size,), dtype=FLOAT16, log_target=True)
    large = np.full(size, 6e4, np.float16).tobytes()
    evaluate.run(call, dict.fromkeys(INPUTS, large), helpers=helpers)  # warnings are errors


def test_one_preparation_serves_calls_with_other_memory_and_at_the_same_time() -> None:
    call = call_of(L1, (7,), (7,), (7,))
    first, second = storages_of(call, 1), storages_of(call, 2)
    answers = [evaluate.run(call, first), evaluate.run(call, second)]
    assert answers[0] != answers[1]
    assert [evaluate.run(call, first), evaluate.run(call, second)] == answers


def test_a_formula_gets_views_of_what_is_fit_for_it_and_aligned_copies_of_the_rest() -> None:
    seen: list[Any] = []

    def formula(facts: Any, grad_output: Any, self: Any, target: Any, reduction: int = 1) -> Any:
        seen.extend([grad_output, self, target])
        return grad_output

    call = call_of(replace(L1, formula=formula), (1000,), (1000,), (1000,))
    storages = {name: np.frombuffer(data, np.uint8) for name, data in storages_of(call).items()}
    storages["target"] = np.concatenate([storages["target"][:1], storages["target"]])[1:]
    evaluate.run(call, {name: memoryview(array) for name, array in storages.items()})
    shared = [np.shares_memory(array, storages[n]) for array, n in zip(seen, INPUTS, strict=True)]
    assert shared == [True, True, False]
    assert all(array.flags.aligned for array in seen)


def places_told(
    call: Prepared, target: bytearray, helpers: Helpers | None = None, shift: int = 0
) -> list[Any]:
    """What a formula that computes into its place, if it is told one, is told in a run."""
    told: list[Any] = []

    def formula(facts: Any, grad_output: Any, self: Any, target: Any, reduction: int = 1) -> Any:
        told.append(facts.out)
        return np.add(grad_output, self, out=facts.out)

    call = replace(call, operator=replace(call.operator, formula=formula))
    storages = storages_of(call)
    (answer,) = evaluate.run(
        call, storages, targets={"grad_input": memoryview(target)[shift:]}, helpers=helpers
    )
    first, second = (view(call.inputs[name], storages[name]) for name in ("grad_output", "self"))
    expected = np.broadcast_to(np.add(first, second), call.outputs["grad_input"].shape)
    found = view(call.outputs["grad_input"], answer)
    assert found.tolist() == expected.astype(found.dtype).tolist()
    return told


@each("helped", [False, True])
@each("number", [False, True])
def test_a_formula_may_compute_its_last_step_where_the_result_belongs(
    helped: bool, number: bool, helpers: Helpers
) -> None:
    size = 900_001
    call = call_of(L1, (1,) if number else (size,), (size,), (size,))
    target = poisoned(4 * size)
    places = places_told(call, target, helpers if helped else None)
    assert sum(place.size for place in places) == size
    assert all(np.shares_memory(place, np.frombuffer(target, np.uint8)) for place in places)


ELSEWHERE: dict[str, tuple[Prepared, int]] = {
    "few elements": (call_of(L1, (4095,), (4095,), (4095,)), 0),
    "elements that are rounded": (call_of(L1, (5000,), (5000,), (5000,), dtype=FLOAT16), 0),
    "shapes that broadcast": (call_of(L1, (100,), (100, 100), (1,)), 0),
    "memory that is not aligned": (call_of(L1, (5000,), (5000,), (5000,)), 1),
}


@each(("call", "shift"), ELSEWHERE.values())
def test_other_results_are_copied_to_where_they_belong(call: Prepared, shift: int) -> None:
    size = call.outputs["grad_input"].storage_bytes
    assert set(places_told(call, poisoned(size + shift), shift=shift)) == {None}


def test_an_error_of_values_names_the_operator_with_helpers_too(helpers: Helpers) -> None:
    operator = CATALOGUE.find("aclnnCrossEntropyLossGrad")
    specs = {"grad_loss": TensorSpec(FLOAT, ()), "log_prob": TensorSpec(FLOAT, (2, 3))}
    tensors = {**specs, "target": TensorSpec(INT64, (2,))}
    call = prepare(Call(operator, tensors, tuple(tensors)), A2, CATALOGUE)
    labels = np.array([0, 3]).tobytes()
    storages = {"grad_loss": bytes(4), "log_prob": bytes(24), "target": labels}
    with pytest.raises(ArgumentError) as raised:
        evaluate.run(call, storages, helpers=helpers)
    assert raised.value.details["operator"] == "aclnnCrossEntropyLossGrad"
