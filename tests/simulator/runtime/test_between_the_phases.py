"""What must live unchanged from phase one to phase two."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double, c_void_p
from typing import TYPE_CHECKING

from .helpers import planned_relu
from .raw import DOUBLE, FLOAT16

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann


def test_a_descriptor_destroyed_between_the_phases_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    executor, (source, _) = planned_relu(cann)
    cann.ok(cann.aclDestroyTensor(source))
    assert cann.aclnnRelu(None, 0, executor, None) == 561103
    assert simulator.violations() == ["aclnnRelu: self was destroyed between the phases"]


def test_a_descriptor_moved_between_the_phases_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    executor, (source, _) = planned_relu(cann)
    cann.ok(cann.aclSetRawTensorAddr(source, cann.device(32)))
    cann.aclnnRelu(None, 0, executor, None)
    assert simulator.violations() == [
        "aclnnRelu: self was given another address between the phases"
    ]


def test_a_scalar_destroyed_between_the_phases_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(3)]
    alpha = cann.aclCreateScalar(byref(c_double(2)), DOUBLE)
    plan = cann.planned("aclnnAdd", *tensors[:2], alpha, tensors[2])
    cann.ok(cann.aclDestroyScalar(alpha))
    cann.aclnnAdd(cann.device(plan.workspace), plan.workspace, plan.executor, None)
    assert simulator.violations() == ["aclnnAdd: alpha was destroyed between the phases"]


def test_a_text_changed_between_the_phases_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    tensors = [cann.tensor(cann.device(16), [8], FLOAT16) for _ in range(3)]
    text = ctypes.create_string_buffer(b"tanh")
    plan = cann.planned("aclnnGeluBackwardV2", tensors[0], tensors[1], text, tensors[2])
    text.value = b"none"
    workspace = cann.device(plan.workspace)
    cann.aclnnGeluBackwardV2(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations() == [
        "aclnnGeluBackwardV2: the text of approximate was changed or freed between the phases"
    ]


def test_descriptors_may_go_as_soon_as_phase_two_returned(cann: Cann, simulator: Simulator) -> None:
    executor, tensors = planned_relu(cann)
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    for tensor in tensors:
        cann.ok(cann.aclDestroyTensor(tensor))
    assert (cann.aclrtSynchronizeStream(None), simulator.violations()) == (0, [])


def test_an_executor_destroyed_after_its_descriptors_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    executor, (source, _) = planned_relu(cann)
    cann.ok(cann.aclDestroyTensor(source))
    cann.ok(cann.aclDestroyAclOpExecutor(executor))
    assert simulator.violations() == [
        "aclDestroyAclOpExecutor: self was destroyed before the executor"
    ]


def test_an_element_of_a_list_must_live_until_phase_two(cann: Cann, simulator: Simulator) -> None:
    elements = (c_void_p * 1)(cann.tensor(cann.device(32), [8]))
    tensors = cann.aclCreateTensorList(elements, 1)
    plan = cann.planned("aclnnCat", tensors, 0, cann.tensor(cann.device(32), [8]))
    cann.aclDestroyTensor(elements[0])
    workspace = cann.device(max(plan.workspace, 64))
    cann.aclnnCat(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations()[1:] == ["aclnnCat: tensors was destroyed between the phases"]


def test_an_element_of_a_list_of_scalars_must_live_until_phase_two(
    cann: Cann, simulator: Simulator
) -> None:
    inputs, outputs = (
        cann.aclCreateTensorList((c_void_p * 1)(cann.tensor(cann.device(32), [8])), 1)
        for _ in range(2)
    )
    scalar = cann.aclCreateScalar(byref(c_double(2)), DOUBLE)
    scalars = cann.aclCreateScalarList((c_void_p * 1)(scalar), 1)
    plan = cann.planned("aclnnForeachAddScalarList", inputs, scalars, outputs)
    cann.aclDestroyScalar(scalar)
    workspace = cann.device(max(plan.workspace, 64))
    cann.aclnnForeachAddScalarList(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations()[1:] == [
        "aclnnForeachAddScalarList: an element of scalars was destroyed between the phases"
    ]


def test_the_elements_of_a_list_must_live_until_phase_two(cann: Cann, simulator: Simulator) -> None:
    elements = (c_void_p * 2)(*[cann.tensor(cann.device(32), [8]) for _ in range(2)])
    tensors = cann.aclCreateTensorList(elements, 2)
    plan = cann.planned("aclnnCat", tensors, 0, cann.tensor(cann.device(64), [16]))
    cann.ok(cann.aclDestroyTensorList(tensors))
    workspace = cann.device(max(plan.workspace, 64))
    cann.aclnnCat(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations() == ["aclnnCat: tensors was destroyed between the phases"]
