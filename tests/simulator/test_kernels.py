"""What the simulated device computes for the operators that npucall declares."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from npucall.errors import ArgumentMissingError, DTypeError, ShapeError
from npucall.operators import CATALOGUE

from . import launches
from .caller import Caller
from .generic_kernels import FORMULAS
from .kernels import run
from .launches import PROTOTYPES
from .tree import Tree

Launch = Callable[..., None]

ONE = np.ones(2, np.float32)


def test_a_declared_operator_is_evaluated_into_its_output(launch: Launch) -> None:
    out = np.full(2, 9, np.float32)
    launch("aclnnKlDivBackward", ONE, ONE, np.array([2, 3], np.float32), 0, False, out)
    assert out.tolist() == [-2.0, -3.0]


def test_a_stream_without_infnan_saturates(launch: Launch) -> None:
    out = np.empty(3, np.float16)
    given = np.array([60000, -60000, np.nan], np.float16)
    launch("aclnnRsub", -given, given, np.float32(1), out)
    assert out.tolist()[:2] == [np.inf, -np.inf]
    launches.launch("aclnnRsub", -given, given, np.float32(1), out, saturates=True)
    assert out.tolist() == [65504, -65504, 0]


def test_an_output_is_written_through_its_strides_and_its_gaps_stay(launch: Launch) -> None:
    storage = np.full(5, 9, np.float32)
    launch("aclnnL1LossBackward", ONE, ONE, np.array([0, 2], np.float32), 2, storage[1::2])
    assert storage.tolist() == [9.0, 1.0, 9.0, -1.0, 9.0]


def test_an_input_is_read_through_its_strides(launch: Launch) -> None:
    target = np.arange(4, dtype=np.float32)[::2]
    out = np.empty(2, np.float32)
    launch("aclnnKlDivBackward", ONE, ONE, target, 0, False, out)
    assert out.tolist() == [0.0, -2.0]


def test_an_attribute_is_passed_on(launch: Launch) -> None:
    out = np.empty(2, np.float32)
    launch("aclnnMseLossBackward", ONE, ONE * 3, ONE, 1, out)
    assert out.tolist() == [2.0, 2.0]


def test_a_text_is_passed_on(launch: Launch) -> None:
    exact, approximated = np.empty(2, np.float32), np.empty(2, np.float32)
    launch("aclnnGeluBackwardV2", ONE, ONE, "none", exact)
    launch("aclnnGeluBackwardV2", ONE, ONE, "tanh", approximated)
    assert exact[0] == pytest.approx(1.08331, abs=1e-4)
    assert approximated[0] == pytest.approx(1.08296, abs=1e-4)


def test_a_scalar_is_passed_on_with_its_dtype(launch: Launch) -> None:
    out = np.empty(2, np.float32)
    launch("aclnnThresholdBackward", ONE, np.array([1, 3], np.float32), np.int64(2), out)
    assert out.tolist() == [0.0, 1.0]


def test_two_outputs_are_both_written(launch: Launch) -> None:
    out, gradient = np.empty((1, 2), np.float32), np.empty(1, np.float32)
    x = np.array([[-2, 4]], np.float32)
    launch("aclnnPreluBackward", np.ones((1, 2), np.float32), x, ONE[:1] * 0.5, out, gradient)
    assert (out.tolist(), gradient.tolist()) == ([[0.5, 1.0]], [-2.0])


def test_a_null_for_an_optional_input_is_its_absence(launch: Launch) -> None:
    out = np.empty(1, np.float32)
    half = np.array([0.5], np.float32)
    launch("aclnnBinaryCrossEntropyBackward", ONE[:1], half, half * 0, None, 2, out)
    assert out.tolist() == [2.0]


def test_a_null_for_a_required_tensor_fails() -> None:
    with pytest.raises(ArgumentMissingError, match="target"):
        launches.launch("aclnnKlDivBackward", ONE, ONE, None, 0, False, np.empty(2, np.float32))


def test_a_call_that_the_rules_refuse_fails() -> None:
    with pytest.raises(ShapeError, match="out"):
        launches.launch("aclnnKlDivBackward", ONE, ONE, ONE, 0, False, np.empty(3, np.float32))


def test_what_a_kernel_raises_shows_at_the_synchronise(caller: Caller) -> None:
    with pytest.raises(RuntimeError, match="507015"):
        caller.launch("aclnnKlDivBackward", ONE, ONE, ONE, 0, False, np.empty(3, np.float32))


def test_release_8_1_computes_too(tree: Tree) -> None:
    program = """
import numpy
from tests.simulator.build import build
from tests.simulator.caller import Caller
out = numpy.empty(2, numpy.float32)
with Caller(build(), "8.1") as caller:
    caller.launch("aclnnRelu", numpy.array([-1, 2], numpy.float32), out)
print(out)
"""
    command = [sys.executable, "-c", program]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[0. 2.]\n"


def test_the_rules_are_those_of_the_soc() -> None:
    arrays = [np.ones(2, ml_dtypes.bfloat16)] * 3
    with pytest.raises(DTypeError, match="grad_output"):
        launches.launch("aclnnKlDivBackward", *arrays, 0, False, arrays[0].copy(), soc="Ascend910A")


@pytest.mark.parametrize(("package", "gradient"), [("builtin", np.nan), ("custom", 0.0)])
def test_the_package_decides_the_variant(launch: Launch, package: str, gradient: float) -> None:
    out = np.empty(1, np.float32)
    zero = np.zeros(1, np.float32)
    launch("aclnnKlDivTargetBackward", ONE[:1], zero, zero, 0, False, out, package=package)
    np.testing.assert_equal(out[0], np.float32(gradient))


def test_the_output_of_a_call_that_has_nothing_to_do_is_left_as_it_was(launch: Launch) -> None:
    out = np.full((1, 4), 9, np.float32)
    target, empty = np.ones((1, 4), np.float32), np.empty((0, 4), np.float32)
    launch("aclnnKlDivTargetBackward", target, empty, target, 0, False, out)
    assert out.tolist() == [[9.0, 9.0, 9.0, 9.0]]


def test_a_storage_shorter_than_its_descriptor_says_fails() -> None:
    tensor = {"address": 0, "bytes": 4, "dtype": 0, "shape": [2], "strides": [1], "offset": 0}
    argument = {"name": "self", "kind": "Tensor", "output": False}
    value = {**tensor, "storage_shape": [2], "format": 2}
    launched = {"operator": "aclnnExp2", "package": "builtin", "soc": "Ascend910B2"}
    with pytest.raises(ValueError, match="expected 8 bytes of storage, found 4"):
        run(json.dumps({**launched, "arguments": [{**argument, "value": value}]}))


def test_an_operator_without_a_formula_fails() -> None:
    with pytest.raises(NotImplementedError, match="aclnnNonzero"):
        launches.launch("aclnnNonzero", ONE, np.empty(2, np.int64))


def test_no_formula_hides_a_declaration() -> None:
    assert not {operator.name for operator in CATALOGUE} & set(FORMULAS)


def test_every_formula_belongs_to_an_operator() -> None:
    assert set(FORMULAS) <= set(PROTOTYPES)
