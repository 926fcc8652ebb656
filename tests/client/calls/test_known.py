"""npucall_client.calls.known: a call like one before is the same call, with its own arrays."""

import math
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.declare.samples import sample
from npucall.dtypes import DType
from npucall.errors import ArgumentError, NpucallError
from npucall.operators import CATALOGUE
from npucall.operators.cross_entropy_loss import cross_entropy_loss
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.places import HandlePart
from npucall.products import product_of
from npucall.wire.messages import join_request, join_response, split_response
from npucall.wire.replies import Timings, encode_timings
from npucall_client.calls import arguments
from npucall_client.calls.known import KnownCalls
from npucall_client.calls.tensors import HeldTensor

PRODUCT = product_of("Ascend910B1")
LAYOUTS = {
    "dense": lambda array: array,
    "transposed": np.asfortranarray,
    "with gaps": lambda array: np.repeat(array, 2, -1)[..., ::2] if array.ndim else array,
    "backwards": lambda array: array[::-1] if array.ndim else array,
    "broadcast": lambda array: np.broadcast_to(array, (2, *array.shape)),
}
ONES = np.ones((2, 3), np.float32)


def known(calls: KnownCalls, *args: Any, **kwargs: Any) -> arguments.BoundCall:
    return calls.bind(args[0], "", args[1:], kwargs)


def bound(*args: Any, **kwargs: Any) -> arguments.BoundCall:
    return arguments.bind(args[0], "", args[1:], kwargs, {}, keep_layout=False)


def parts(call: arguments.BoundCall) -> tuple[bytes, dict[str, Any]]:
    return call.call, {n: p if isinstance(p, tuple) else bytes(p) for n, p in call.storage.items()}


def arguments_of(operator: Any, dtype: DType, seed: int) -> dict[str, Any]:
    """Random arrays and the attributes of a sample; bits are numbers of any dtype."""
    random, given = np.random.default_rng(seed), dict[str, Any]()
    call = sample(operator, PRODUCT, CATALOGUE, dtype)
    updated = {name: spec for name, spec in call.outputs.items() if name in call.read}
    for name, spec in {**call.inputs, **updated}.items():
        size = math.prod(spec.shape) * spec.dtype.itemsize
        array = np.frombuffer(random.bytes(size), spec.dtype.numpy).reshape(spec.shape)
        listed, _, index = name.partition("[")
        if index:
            given.setdefault(listed, []).append(array)
        else:
            given[name] = array
    follows = operator.sample.follows
    return given | dict(operator.sample.attributes) | ({follows: dtype.numpy} if follows else {})


def laid_out(given: dict[str, Any], layout: Any) -> dict[str, Any]:
    def of(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return [of(each) for each in value]
        return layout(value) if isinstance(value, np.ndarray) else value

    return {name: of(value) for name, value in given.items()}


def test_a_call_like_one_before_is_what_binding_it_anew_gives(subtests: Any) -> None:
    """Of every operator, dtype and layout: its call, its storages, and its message."""
    checked = 0
    for operator in CATALOGUE:
        with subtests.test(operator.title):
            for dtype in operator.dtypes_on(PRODUCT):
                checked += tried(operator, dtype)
    assert checked > 10 * len(CATALOGUE)


def tried(operator: Any, dtype: DType) -> int:
    """How many layouts it tried; none where an operator does not take this dtype alone."""
    try:
        first, second = (arguments_of(operator, dtype, seed) for seed in (1, 2))
    except NpucallError:
        return 0
    calls = KnownCalls()
    for layout in LAYOUTS.values():
        before = known(calls, operator, **laid_out(first, layout))
        given = laid_out(second, layout)
        again, anew = known(calls, operator, **given), bound(operator, **given)
        assert again.form is before.form is not None
        assert parts(again) == parts(anew)
        if again.form.request is not None:
            message = again.form.request.join(again.storage.values())  # type: ignore[arg-type]
            assert message == join_request(anew.call, list(anew.storage.values()))
    return len(LAYOUTS)


def test_a_number_of_numpy_is_known_by_its_value() -> None:
    calls = KnownCalls()
    for value in np.float32(2), np.float32(3):
        given = {"grad_output": value, "self": ONES, "target": ONES, "reduction": np.int64(0)}
        before, again = (known(calls, kl_div_backward, **given) for _ in range(2))
        assert again.form is before.form is not None
        assert parts(again) == parts(bound(kl_div_backward, **given))


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"reduction": 1}, {"reduction": True}),
    ({"reduction": 1}, {"reduction": "mean"}),
    ({"log_target": False}, {"log_target": None}),
    ({"grad_output": ONES}, {"grad_output": ONES[:1]}),
    ({"grad_output": ONES}, {"grad_output": ONES.astype(np.float16)}),
    ({"grad_output": ONES}, {"grad_output": ONES.T.copy().T}),
    ({"grad_output": ONES}, {"grad_output": ONES.astype(">f4")}),
    ({"grad_output": ONES}, {"grad_output": None}),
    ({"grad_output": np.float32(1)}, {"grad_output": np.float16(1)}),
    ({"grad_output": np.float32(1)}, {"grad_output": np.ones((), np.float32)}),
    ({"reduction": np.int64(0)}, {"reduction": np.int64(1)}),
]


@each("one other", DIFFERENT)
def test_calls_that_differ_in_anything_but_bytes_are_not_taken_for_each_other(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    base = {"grad_output": ONES, "self": ONES, "target": ONES}
    calls = KnownCalls()
    for given in (one, other, one, other):
        full, failed = base | given, None
        try:
            expected = parts(bound(kl_div_backward, **full))
        except NpucallError as error:
            failed = type(error)
        if failed is None:
            assert parts(known(calls, kl_div_backward, **full)) == expected
        else:
            with pytest.raises(failed):
                known(calls, kl_div_backward, **full)


def test_zeros_of_both_signs_are_two_values() -> None:
    calls = KnownCalls()
    made = [
        known(calls, leaky_relu_backward, ONES, ONES, slope, False).call for slope in (0.0, -0.0)
    ]
    assert made[0] != made[1]
    assert made == [
        bound(leaky_relu_backward, ONES, ONES, slope, False).call for slope in (0.0, -0.0)
    ]


class Held(HeldTensor):
    """One whose place changes."""

    home: Any = None
    from_torch = False

    def __init__(self) -> None:
        self.tensor = np.dtype(np.float32), (2, 3), None, None
        self.handles = iter((b"first", b"second"))

    def place(self, within: object) -> Any:
        assert within == "the program"
        return HandlePart(next(self.handles), 0, 24)


def test_what_a_session_holds_is_looked_up_in_every_call() -> None:
    calls, held = KnownCalls(), Held()
    for handle in (b"first", b"second"):
        call = calls.bind(
            kl_div_backward, "", (ONES, ONES, held), {}, home=held.home, within="the program"
        )
        assert call.storage["target"] == HandlePart(handle, 0, 24)
        assert (list(call.held), call.form and call.form.request) == ([held], None)


def test_an_answer_like_one_before_is_read_alike_and_any_other_one_is_parsed() -> None:
    calls = KnownCalls()
    form = known(calls, kl_div_backward, ONES, ONES, ONES).form
    assert form is not None
    spent = encode_timings(Timings(1, 2, 3, 4, 5, 6, 7, 8))
    messages = [
        join_response(reply, timings, [bytes([number]) * size])
        for number, (reply, timings, size) in enumerate([
            (b"one", spent, 24), (b"two", spent, 24), (b"three", spent, 24), (b"one", b"", 24),
            (b"one", spent, 23), (b"one", spent[::-1], 24),
        ])
    ]  # fmt: skip
    for message in messages:
        parsed = split_response(message)
        form.learn(message, parsed)
        assert form.read(message) in (parsed, None)
    for message in messages:
        other = bytearray(message)
        other[-1] ^= 1
        read = form.read(bytes(other))
        assert read in (split_response(bytes(other)), None)
    assert [form.read(message) is not None for message in messages] == [1, 1, 0, 0, 0, 1]


def test_labels_are_checked_in_every_call(local: Any) -> None:
    rows = np.zeros((2, 3), np.float32)
    for _ in range(2):
        for labels, is_valid in ((0, 2), True), ((0, 3), False), ((1, 1), True):
            given = rows, np.array(labels)
            if is_valid:
                losses = local.run(cross_entropy_loss, *given, reduction="none")[0]
                np.testing.assert_allclose(losses, np.log([3, 3]), rtol=1e-6)
            else:
                with pytest.raises(ArgumentError):
                    local.run(cross_entropy_loss, *given, reduction="none")
