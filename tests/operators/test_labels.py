"""Labels that are no class: no device may see them, since they lead a kernel out of its memory."""

import inspect
import tracemalloc
from types import CodeType
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.compute.evaluate import check_values
from npucall.declare.prepare import Prepared
from npucall.dtypes import BY_NUMPY, FLOAT, INT64
from npucall.errors import ArgumentError, CancelledError
from npucall.operators import CATALOGUE
from npucall.operators.cross_entropy_loss import cross_entropy_loss
from npucall.operators.cross_entropy_loss_grad import cross_entropy_loss_grad
from npucall.operators.ctc_loss import ctc_loss
from npucall.operators.ctc_loss_backward import ctc_loss_backward
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode

from . import ctc

GRAD, CTC_BACK = "aclnnCrossEntropyLossGrad", "aclnnCtcLossBackward"
CTC = ctc.rounded(ctc.call(ctc.log_softmax((5, 2, 4)), [[1, 2], [3]], (5, 5)), np.float32)
CROSS_ENTROPY = {
    "grad_loss": np.array(1, np.float32),
    "log_prob": ctc.log_softmax((3, 4)).astype(np.float32),
    "target": np.array([2, 0, 1]),
}
FORWARD_OF_CTC = ("log_probs", "targets", "input_lengths", "target_lengths", "blank")
CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    GRAD: (cross_entropy_loss_grad, CROSS_ENTROPY),
    CTC_BACK: (ctc_loss_backward, CTC),
    "aclnnCrossEntropyLoss": (
        cross_entropy_loss,
        {"input": CROSS_ENTROPY["log_prob"], "target": CROSS_ENTROPY["target"]},
    ),
    "aclnnCtcLoss": (ctc_loss, {n: CTC[n] for n in FORWARD_OF_CTC} | {"zero_infinity": False}),
}

each_case = each("name", CALLS)


def called(name: str, **changes: Any) -> tuple[Prepared, dict[str, bytes]]:
    """A call and its storages; changes replace arguments."""
    operator, arguments = CALLS[name]
    arguments = arguments | changes
    tensors = {n: a for n, a in arguments.items() if isinstance(a, np.ndarray)}
    specs = {n: TensorSpec(BY_NUMPY[a.dtype], a.shape) for n, a in tensors.items()}
    data = encode(operator.name, "", {**arguments, **specs}, tuple(tensors))
    return PreparedCalls(CATALOGUE, A2, "").of(data), {n: a.tobytes() for n, a in tensors.items()}


def labels_of(name: str) -> str:
    """The input that has an operator's labels."""
    (labels,) = CALLS[name][0].values.reads
    return str(labels)


def with_label(name: str, label: int) -> dict[str, Any]:
    """The call's labels, of which the first is this one."""
    labels = CALLS[name][1][labels_of(name)].copy()
    labels.flat[0] = label
    return {labels_of(name): labels}


@each_case
def test_classes_pass(name: str) -> None:
    check_values(*called(name))


@each_case
@each("label", [-1, 4, 2**40])
def test_a_label_that_is_no_class_is_refused_and_nothing_computed(name: str, label: int) -> None:
    with pytest.raises(ArgumentError, match=f"labels from 0 to 3, found {label}") as caught:
        check_values(*called(name, **with_label(name, label)))
    assert (caught.value.aclnn_status, caught.value.parameters) == (161002, (labels_of(name),))
    operator, _ = CALLS[name]
    assert caught.value.details == {"operator": operator.name, "phase": "run"}


def test_the_label_that_does_not_count_passes() -> None:
    check_values(*called(GRAD, **with_label(GRAD, 9), ignore_index=9))


def test_labels_behind_an_items_length_pass() -> None:
    assert CTC["targets"][1, 1] == 77  # of the second item the first label alone counts
    check_values(*called(CTC_BACK))


def test_labels_are_read_through_their_strides() -> None:
    call, storages = called(GRAD)
    spread = np.array([2, 77, 0, 77, 1])
    spec = TensorSpec(call.inputs["target"].dtype, (3,), (2,), 0, (5,))
    inputs = dict(call.inputs) | {"target": spec}
    object.__setattr__(call, "inputs", inputs)
    check_values(call, storages | {"target": spread.tobytes()})


def test_a_call_that_ended_early_has_no_labels_to_check() -> None:
    empty = np.zeros((0, 4), np.float32)
    call, storages = called(GRAD, log_prob=empty, target=np.zeros(0, np.int64))
    assert call.done
    check_values(call, storages)


def many(name: str, count: int) -> tuple[Prepared, dict[str, bytes]]:
    """A call with many labels, all of them 0; its other tensors are one element each."""
    single, labels = np.zeros(1, np.float32), np.zeros(count, np.int64)
    operator, _ = CALLS[name]
    shapes: dict[str, tuple[int, ...]] = {"grad_loss": (), "grad_out": (1,)}
    shapes |= {"log_prob": (count, 4), "input": (count, 4)}
    shapes |= {
        "log_probs": (1, 1, 4),
        "neg_log_likelihood": (1,),
        "log_alpha": (1, 1, 2 * count + 1),
    }
    given: dict[str, Any] = {"target": TensorSpec(INT64, (count,))}
    if labels_of(name) == "targets":
        given = {"targets": TensorSpec(INT64, (1, count)), "blank": 0, "zero_infinity": False}
        given |= {"input_lengths": (1,), "target_lengths": (count,)}
    inputs = {p.name for p in operator.inputs}
    specs = {n: TensorSpec(FLOAT, s, (0,) * len(s)) for n, s in shapes.items() if n in inputs}
    data = encode(operator.name, "", {**specs, **given}, (*specs, labels_of(name)))
    storages = dict.fromkeys(specs, single.tobytes()) | {labels_of(name): labels.tobytes()}
    return PreparedCalls(CATALOGUE, A2, "").of(data), storages


@pytest.mark.alone
@pytest.mark.more
@each_case
def test_many_labels_are_checked_in_a_few_mebibytes(name: str) -> None:
    call, storages = many(name, 1 << 22)
    tracemalloc.start()
    try:
        check_values(call, storages)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@each_case
def test_the_last_of_many_labels_is_looked_at(name: str) -> None:
    call, storages = many(name, 300_000)
    last = storages[labels_of(name)][:-8] + np.int64(7).tobytes()
    with pytest.raises(ArgumentError, match="labels from 0 to 3, found 7"):
        check_values(call, storages | {labels_of(name): last})


@each_case
def test_between_blocks_of_labels_the_call_may_end(name: str) -> None:
    def ended() -> None:
        pauses.append(1)
        if len(pauses) == 3:
            raise CancelledError("nobody waits")

    pauses: list[int] = []
    with pytest.raises(CancelledError):
        check_values(*many(name, 1 << 20), ended)


def names_of(code: CodeType) -> set[str]:
    """Those of what a function's code uses, functions in it included."""
    nested = (names_of(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*nested)


def reached(function: Any, seen: set[Any]) -> set[Any]:
    """The functions of npucall that one uses, and that these use."""
    if function in seen:
        return seen
    seen.add(function)
    names, own = names_of(function.__code__), function.__globals__
    modules = [own[name] for name in names if inspect.ismodule(own.get(name))]
    spaces = [own, *(vars(one) for one in modules if one.__name__.startswith("npucall."))]
    found = [space[name] for space in spaces for name in names if name in space]
    for used in (*found, *(cell.cell_contents for cell in function.__closure__ or ())):
        members = vars(used).values() if inspect.isclass(used) else [getattr(used, "func", used)]
        for member in (getattr(one, "__func__", one) for one in members):
            if inspect.isfunction(member) and member.__module__.startswith("npucall."):
                reached(member, seen)
    return seen


@each("operator", list(CATALOGUE))
def test_an_operator_whose_formula_refuses_labels_lets_devices_refuse_them(operator: Any) -> None:
    used = reached(operator.formula, set())
    refuses = any("ArgumentError" in names_of(one.__code__) for one in used)
    assert (operator.values is not None) is refuses
