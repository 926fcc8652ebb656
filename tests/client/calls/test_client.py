"""``Client`` over every device that is there."""

from typing import Any

import numpy as np
import pytest
from tests.client.conftest import EVERY_DEVICE
from tests.rows import each

import npucall_client
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
from npucall.wire.calls import decode
from npucall_client import Client
from npucall_client.calls import arguments
from npucall_client.settings import ClientSettings

KL, L1, KL_TARGET = "aclnnKlDivBackward", "aclnnL1LossBackward", "aclnnKlDivTargetBackward"
ONES = np.ones((2, 3), np.float32)
TARGET = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
GIVEN: dict[str, Any] = {"grad_output": ONES, "self": ONES, "target": TARGET}


@EVERY_DEVICE
def test_a_typed_call_and_one_by_name_give_the_same_bits(client: Client) -> None:
    result = client.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=2)
    np.testing.assert_array_equal(result, -TARGET, strict=True)
    arguments = {"grad_output": ONES / 3, "self": TARGET / 7, "target": TARGET / 5}
    called: Any
    for called in kl_div_backward, l1_loss_backward, kl_div_target_backward_builtin:
        typed = client.run(called, **arguments)
        by_name = client.run(called.name, variant=called.variant or None, **arguments)
        assert by_name.tobytes() == typed.tobytes()
    typed = client.run(kl_div_backward, ONES, ONES, TARGET, 1)
    np.testing.assert_array_equal(client.run(KL, ONES, ONES, TARGET, 1), typed)


@EVERY_DEVICE
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


@EVERY_DEVICE
def test_plan_refuses_what_run_would_refuse_and_answers_outputs(client: Client) -> None:
    with pytest.raises(ShapeError) as planned:
        client.plan(KL, np.ones((4, 4), np.float32), self=ONES, target=ONES)
    with pytest.raises(ShapeError) as ran:
        client.run(KL, np.ones((4, 4), np.float32), self=ONES, target=ONES)
    assert str(planned.value) == str(ran.value)
    assert planned.value.parameter == ran.value.parameter == "grad_output"
    plan = client.plan(l1_loss_backward, ONES, self=ONES[:1], target=TARGET)
    assert plan.outputs == {"grad_input": TensorSpec(FLOAT, (2, 3))}
    assert (plan.variant, plan.kernel_dtype, plan.warnings) == ("", FLOAT, ())
    assert plan.server.instance == client.server_info().server.instance


@EVERY_DEVICE
def test_a_client_describes_one_operator_and_its_server(client: Client) -> None:
    assert client.operator(KL).name == KL
    assert client.operator(KL_TARGET, "builtin").variant == "builtin"
    info = client.server_info()
    assert client.operator(KL_TARGET).variant == info.default_variant
    assert (info.server.soc, info.product) == ("Ascend910B1", "Ascend910B")
    assert info.limits.max_rank == 32
    assert info.version


def test_the_reference_lists_the_catalogue_and_needs_no_workspace(client: Client) -> None:
    for each_client in client, npucall_client.connect("local:"):
        listed = [(info.name, info.variant) for info in each_client.operators()]
        assert listed == sorted((operator.name, operator.variant) for operator in CATALOGUE)
        assert each_client.server_info().default_variant == "documented"
        assert each_client.plan(l1_loss_backward, ONES, ONES, TARGET).workspace_bytes == 0


def test_an_operator_object_runs_as_its_own_variant_whatever_options_say(client: Client) -> None:
    options = client.options(variant="builtin")
    ran = options.execute(kl_div_target_backward_documented, ONES, self=ONES, target=TARGET)
    assert ran.variant == "documented"
    assert client.execute(KL_TARGET, variant="documented", **GIVEN).variant == "documented"
    assert options.execute(KL, ONES, self=ONES, target=TARGET).variant == ""


@pytest.mark.parametrize(
    "outputs", [np.ones(2), [np.ones(2)], "out"], ids=["array", "list", "text"]
)
def test_outputs_that_are_no_mapping_are_told_as_such(client: Client, outputs: Any) -> None:
    with pytest.raises(
        TypeError, match=r'outputs: expected arrays by name, \{"out": array\}, found'
    ):
        client.options(outputs=outputs)


@EVERY_DEVICE
def test_options_add_up_and_leave_the_client_that_they_come_from_alone(client: Client) -> None:
    out = np.zeros((2, 3), np.float32)
    options = client.options(variant="builtin").options(outputs={"grad_target": out})
    ran = options.execute(KL_TARGET, **GIVEN)
    assert (ran.variant, ran.value is out) == ("builtin", True)
    ran = client.execute(KL_TARGET, **GIVEN)
    assert (ran.variant, ran.value is out) == (client.server_info().default_variant, False)


@each("method", ["run", "execute", "plan"])
@each("name", ["timeout", "outputs", "request_id", "keep_layout", "progress"])
def test_an_option_among_the_arguments_of_an_object_is_told_where_it_goes(
    client: Client, method: str, name: str
) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(client, method)(kl_div_backward, ONES, self=ONES, target=ONES, **{name: 5})
    assert f"use client.options({name}=...)" in str(caught.value)
    with pytest.raises(TypeError, match="call it by name"):
        client.run(kl_div_backward, ONES, self=ONES, target=ONES, variant="builtin")


@EVERY_DEVICE
def test_errors_arrive_with_what_they_blame(client: Client) -> None:
    with pytest.raises(ArgumentMissingError) as missing:
        client.run(KL, ONES, self=ONES, target=None)
    error = missing.value
    assert (error.parameter, error.aclnn_status) == ("target", 161001)
    assert error.aclnn_name == "ACLNN_ERR_PARAM_NULLPTR"
    assert (error.details["soc"], error.details["operator"]) == ("Ascend910B1", KL)
    with pytest.raises(DTypeError) as caught:
        client.run(KL, TARGET.astype(np.float64), self=ONES, target=TARGET)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("grad_output", 161002)
    with pytest.raises(ArgumentUnknownError):
        client.run(KL, ONES, self=ONES, target=TARGET, outputs={"y": None})


@EVERY_DEVICE
def test_what_is_no_operator_is_refused(client: Client) -> None:
    for operator in None, 3, "", ONES:
        with pytest.raises((TypeError, OperatorUnknownError)):
            client.run(operator)  # type: ignore[call-overload]
    for name, variant in ("aclnnNope", ""), (KL_TARGET, "other"):
        with pytest.raises(OperatorUnknownError):
            client.operator(name, variant)
        with pytest.raises(OperatorUnknownError):
            client.run(name, variant=variant, **GIVEN)


# Inputs whose values an operator never reads: their shape and dtype go, their bytes do not.

HUGE = np.broadcast_to(np.float16(1), (2**20, 2**20))
"""Two TiB, should anybody gather it."""


def bound(called: Any = kl_div_backward, unread: Any = ONES, **options: Any) -> Any:
    given = {"grad_output": ONES, "self": unread, "target": ONES}
    return arguments.bind(called, "", (), given, {}, keep_layout=False, **options)


def test_the_bytes_of_an_input_that_is_not_read_stay_at_home() -> None:
    request = bound(send_unread=False)
    assert list(request.storage) == ["grad_output", "target"]
    assert decode(request.call, CATALOGUE).stored == ("grad_output", "target")
    spec: Any = decode(bound(unread=HUGE).call, CATALOGUE).arguments["self"]
    assert (str(spec.dtype), spec.shape) == ("FLOAT16", (2**20, 2**20))
    assert list(bound(l1_loss_backward).storage) == ["grad_output", "self", "target"]


def test_a_setting_sends_them_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(bound(send_unread=True).storage) == ["grad_output", "self", "target"]
    with npucall_client.connect("local:", send_unread=True) as sending:
        assert sending.run(kl_div_backward, ONES, ONES, ONES, 2).tolist() == (-ONES).tolist()
    assert not ClientSettings.of().send_unread
    monkeypatch.setenv("NPUCALL_SEND_UNREAD", "true")
    assert ClientSettings.of().send_unread
