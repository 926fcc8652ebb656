"""``Client`` over every device that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT, FLOAT16
from npucall.errors import (
    ArgumentMissingError,
    ArgumentUnknownError,
    DTypeError,
    OperatorUnknownError,
    ShapeError,
)
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.kl_div_target_backward_documented import kl_div_target_backward_documented
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from npucall_client import Client

KL, L1, KL_TARGET = "aclnnKlDivBackward", "aclnnL1LossBackward", "aclnnKlDivTargetBackward"
ONES = np.ones((2, 3), np.float32)
TARGET = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def test_run_answers_an_array(client: Client) -> None:
    result = client.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=2)
    np.testing.assert_array_equal(result, -TARGET, strict=True)


@pytest.mark.parametrize(
    "operator", [kl_div_backward, l1_loss_backward, kl_div_target_backward_builtin]
)
def test_a_typed_call_and_one_by_name_give_the_same_bits(client: Client, operator: Any) -> None:
    arguments = {"grad_output": ONES / 3, "self": TARGET / 7, "target": TARGET / 5}
    typed = client.run(operator, **arguments)
    variant = operator.variant or None
    assert client.run(operator.name, variant=variant, **arguments).tobytes() == typed.tobytes()


def test_a_declared_operator_takes_positions_by_name_too(client: Client) -> None:
    typed = client.run(kl_div_backward, ONES, ONES, TARGET, 1)
    np.testing.assert_array_equal(client.run(KL, ONES, ONES, TARGET, 1), typed)


def test_execute_answers_everything(client: Client) -> None:
    half = ONES.astype(np.float16)
    result = client.execute(KL, half, self=half, target=half, reduction=7)
    assert result.outputs.keys() == {"out"}
    assert result.outputs["out"] is result.value
    assert (result.variant, result.kernel_dtype) == ("", FLOAT16)
    assert result.timings.run_ns > 0
    assert result.total_ns > result.timings.run_ns
    (warning,) = result.warnings
    assert warning.startswith("reduction: 7")
    assert result.server.soc == client.server_info().server.soc
    assert result.server.instance == client.server_info().server.instance


def test_plan_answers_the_outputs_without_running(client: Client) -> None:
    plan = client.plan(l1_loss_backward, ONES, self=ONES[:1], target=TARGET)
    assert plan.outputs == {"grad_input": TensorSpec(FLOAT, (2, 3))}
    assert (plan.workspace_bytes, plan.variant, plan.kernel_dtype) == (0, "", FLOAT)
    assert plan.warnings == ()
    assert plan.server.instance == client.server_info().server.instance


def test_plan_refuses_what_run_would_refuse(client: Client) -> None:
    with pytest.raises(ShapeError) as planned:
        client.plan(KL, np.ones((4, 4), np.float32), self=ONES, target=ONES)
    with pytest.raises(ShapeError) as ran:
        client.run(KL, np.ones((4, 4), np.float32), self=ONES, target=ONES)
    assert str(planned.value) == str(ran.value)
    assert planned.value.parameter == ran.value.parameter == "grad_output"


def test_operators_lists_the_catalogue_by_name_then_variant(client: Client) -> None:
    listed = [(info.name, info.variant) for info in client.operators()]
    assert listed == sorted((operator.name, operator.variant) for operator in CATALOGUE)


def test_operator_describes_one(client: Client) -> None:
    assert client.operator(KL).name == KL
    assert client.operator(KL_TARGET, "builtin").variant == "builtin"
    assert client.operator(KL_TARGET).variant == client.server_info().default_variant


@pytest.mark.parametrize(("name", "variant"), [("aclnnNope", ""), (KL_TARGET, "other")])
def test_an_operator_that_is_not_there_is_unknown(client: Client, name: str, variant: str) -> None:
    with pytest.raises(OperatorUnknownError):
        client.operator(name, variant)
    with pytest.raises(OperatorUnknownError):
        client.run(name, variant=variant, grad_output=ONES, self=ONES, target=ONES)


def test_server_info_tells_soc_product_and_limits(client: Client) -> None:
    info = client.server_info()
    assert (info.server.soc, info.product) == ("Ascend910B1", "Ascend910B")
    assert info.default_variant == "documented"
    assert info.limits.max_rank == 32
    assert info.version


@pytest.mark.parametrize("variant", ["builtin", "community", "documented"])
def test_the_variant_of_a_call_by_name_runs(client: Client, variant: str) -> None:
    arguments = {"grad_output": ONES, "self": ONES, "target": TARGET}
    assert client.execute(KL_TARGET, variant=variant, **arguments).variant == variant
    assert client.options(variant=variant).execute(KL_TARGET, **arguments).variant == variant


def test_an_operator_object_runs_as_its_own_variant_whatever_the_options_say(
    client: Client,
) -> None:
    options = client.options(variant="builtin")
    ran = options.execute(kl_div_target_backward_documented, ONES, self=ONES, target=TARGET)
    assert ran.variant == "documented"


def test_a_variant_in_the_options_does_not_disturb_an_operator_without_variants(
    client: Client,
) -> None:
    options = client.options(variant="builtin")
    assert options.execute(KL, ONES, self=ONES, target=TARGET).variant == ""


def test_options_leave_the_client_that_they_come_from_alone(client: Client) -> None:
    client.options(variant="builtin", outputs={"grad_target": None})
    ran = client.execute(KL_TARGET, grad_output=ONES, self=ONES, target=TARGET)
    assert ran.variant == client.server_info().default_variant


def test_options_add_up(client: Client) -> None:
    out = np.zeros((2, 3), np.float32)
    options = client.options(variant="builtin").options(outputs={"grad_target": out})
    ran = options.execute(KL_TARGET, grad_output=ONES, self=ONES, target=TARGET)
    assert ran.variant == "builtin"
    assert ran.value is out


def test_a_call_by_name_takes_its_options_among_the_arguments(client: Client) -> None:
    out = np.zeros((2, 3), np.float32)
    result = client.run(
        KL, ONES, self=ONES, target=TARGET, reduction=0, outputs={"out": out}, timeout=30.0
    )
    assert result is out
    np.testing.assert_array_equal(out, -TARGET)


def test_an_operator_object_takes_no_options_among_its_arguments(client: Client) -> None:
    with pytest.raises(TypeError, match=r"use client\.options\(timeout=\.\.\.\)"):
        client.run(kl_div_backward, ONES, self=ONES, target=TARGET, timeout=3.0)  # type: ignore[call-overload]


def test_none_is_a_null_pointer(client: Client) -> None:
    with pytest.raises(ArgumentMissingError) as caught:
        client.run(KL, ONES, self=ONES, target=None)
    error = caught.value
    assert (error.parameter, error.aclnn_status) == ("target", 161001)
    assert error.aclnn_name == "ACLNN_ERR_PARAM_NULLPTR"
    assert error.details["soc"] == "Ascend910B1"
    assert error.details["operator"] == KL


def test_a_type_that_the_product_has_not_is_refused(client: Client) -> None:
    with pytest.raises(DTypeError) as caught:
        client.run(KL, TARGET.astype(np.float64), self=ONES, target=TARGET)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("grad_output", 161002)


def test_a_name_that_is_no_parameter_is_a_type_error_before_anything_is_sent(
    client: Client,
) -> None:
    with pytest.raises(TypeError, match="targt"):
        client.run(KL, ONES, ONES, TARGET, targt=TARGET)


def test_a_null_output_by_a_wrong_name_is_refused_by_the_device(client: Client) -> None:
    with pytest.raises(ArgumentUnknownError):
        client.run(KL, ONES, self=ONES, target=TARGET, outputs={"y": None})


@pytest.mark.parametrize("operator", [None, 3, "", ONES])
def test_what_is_no_operator_is_refused(client: Client, operator: Any) -> None:
    with pytest.raises((TypeError, OperatorUnknownError)):
        client.run(operator)


# A call may be 64 KiB, errors quote its names, and a trailer has to stay below 8 KiB.
@pytest.mark.parametrize("character", ["a", "中", "%"])
def test_an_error_that_quotes_a_very_long_name_arrives_as_itself(
    client: Client, character: str
) -> None:
    with pytest.raises(OperatorUnknownError, match="operator: expected one that this server lists"):
        client.run(character * 20_000)
