"""``npucall info``, ``operators`` and ``run``: what they show of a fake server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.client.calls.test_operators_of_the_server import FUNCTIONS, FakeTransport, connected

from npucall.errors import ArgumentMissingError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2, ASCEND_310B
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.listing import describe
from npucall_client import client as client_module

typer = pytest.importorskip("typer", reason="the extra cli is not installed")
from typer.testing import CliRunner  # noqa: E402  # as typer

from npucall_client.commands import calling, command  # noqa: E402  # needs typer

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


CAT, EXP2 = (
    next(each for each in FUNCTIONS if each.name == name) for name in ("aclnnConcat", "aclnnExp2")
)


class Server(FakeTransport):
    """Also lists a declared operator, says why it cannot run one, and has a device."""

    def __init__(self) -> None:
        super().__init__(FUNCTIONS)
        self.info = pb.GetServerInfoResponse()

    async def carrier(self, request: Any) -> str:
        del request
        return "grpc"

    def list_operators(self, asked: pb.ListOperatorsRequest) -> pb.ListOperatorsResponse:
        missing = describe(EXP2, A2, "expected aclnnExp2 in a library [of this host]")
        every = [describe(CAT, A2), missing, describe(kl_div_backward, ASCEND_310B)]
        return pb.ListOperatorsResponse(operators=every)

    def get_operator(self, asked: pb.GetOperatorRequest) -> pb.GetOperatorResponse:
        if asked.operator == kl_div_backward.name:
            return pb.GetOperatorResponse(operator=describe(kl_div_backward, ASCEND_310B))
        return super().get_operator(asked)

    def get_server_info(self, asked: pb.GetServerInfoRequest) -> pb.GetServerInfoResponse:
        return self.info


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server at every target."""
    transport = Server()
    for module in command, calling:
        monkeypatch.setattr(module, "connect", lambda *_, **__: connected(transport))
    return transport


def call(*words: str) -> Result:
    app = typer.Typer()
    for name in ("info", "operators", "run"):
        app.command(name)(getattr(calling if name == "run" else command, name))
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def said(*words: str) -> str:
    result = call(*words)
    assert (result.exit_code, result.exception) == (0, None)
    return result.output


def lines(*words: str) -> list[str]:
    """The lines of what it says, blanks as one."""
    return [" ".join(line.split()) for line in said(*words).splitlines()]


@pytest.mark.usefixtures("server")
def test_operators_are_listed_with_what_they_are_or_why_they_are_unavailable() -> None:
    shown, rows = said("operators"), lines("operators")
    assert "aclnnConcat yes no reference, unvalidated" in rows
    assert "aclnnExp2 no no reference, unvalidated" in rows
    assert "expected aclnnExp2 in a library [of this host]" in shown
    assert "Ascend310B (Atlas 200I/500 A2 inference) does not have it" in shown
    assert "Gradient of kl_div(self, target) with respect to self." in shown


@pytest.mark.usefixtures("server")
def test_one_operator_without_reference_is_described_by_its_prototype() -> None:
    shown = said("operators", "--operator", "aclnnInplaceVendorAdd")
    rows = lines("operators", "--operator", "aclnnInplaceVendorAdd")
    assert "aclnnStatus aclnnInplaceVendorAddGetWorkspaceSize(const aclTensor* selfRef," in shown
    assert "Known by its C prototype alone: no reference, unvalidated." in shown
    assert "The server guesses from the header which tensors are outputs." in shown
    assert "selfRef const aclTensor* selfRef in/out" in rows
    assert "other const aclTensor* other in" in rows
    assert "alpha const aclScalar* alpha" in rows
    assert "Rules" not in shown
    assert "Not available here" not in shown


@pytest.mark.usefixtures("server")
def test_one_operator_that_is_unavailable_is_described_with_the_reason() -> None:
    """It may be named without what all names begin with."""
    shown = said("operators", "-o", "KlDivBackward")
    assert shown == said("operators", "-o", "aclnnKlDivBackward")
    assert "Not available here: Ascend310B (Atlas 200I/500 A2 inference) does not" in shown
    assert "Rules, in order" in shown
    rows = lines("operators", "-o", "aclnnKlDivBackward")
    assert any(line.startswith("grad_output const aclTensor* gradOutput in") for line in rows)


def test_what_a_device_says_of_itself_is_shown(server: Server) -> None:
    for row in ("CANN", "driver", "runtime", "device memory", "busy", "health", "guess"):
        assert row not in said("info")  # of a device that is no hardware
    device = server.info.device
    device.cann_version, device.driver_version = "8.1.RC1", "25.5.0"
    device.runtime_version = "1.13.0"
    device.memory_total_bytes, device.memory_free_bytes = 64 << 30, 48 << 30
    device.utilization.cube_percent, device.utilization.vector_percent = 97, 0
    device.health = pb.DEVICE_HEALTH_ABNORMAL
    device.product_guess = "soc: a guess"
    assert set(lines("info")) >= {
        "CANN 8.1.RC1",
        "driver 25.5.0",
        "runtime 1.13.0",
        "device memory 48.0 GiB free of 64.0 GiB",
        "busy cube 97 %, vector 0 %",
        "health abnormal",
        "guess soc: a guess",
    }
    device.memory_free_bytes = 0
    assert "device memory 0 B free of 64.0 GiB" in lines("info")


def test_who_the_server_takes_the_caller_for_is_shown(server: Server) -> None:
    assert "known as" not in said("info")
    assert "largest message" not in said("info")  # of a process that sends none
    assert "calls travel over gRPC" in lines("info")
    caller = server.info.caller
    caller.tenant, caller.name, caller.expires_seconds = "vision", "alice", 90 * 86_400
    caller.role, caller.known_by = pb.CALLER_ROLE_USER, pb.KNOWN_BY_LOCAL_USER
    expected = "known as vision/alice by local user, role user, for 90 d"
    assert expected in lines("info")
    caller.expires_seconds = 100
    assert expected.replace("90 d", "1 min 40 s") in lines("info")


@pytest.mark.usefixtures("server")
def test_arguments_are_typed_and_outputs_are_shown() -> None:
    shown = said("run", "aclnnConcat", "tensors=[[1,2],[3]]", "dim=0", "out=[0,0,0]")
    assert "out = [1., 2., 3.]" in shown
    assert "aclnnConcat: no reference, unvalidated" in shown
    in_place = said("run", "aclnnInplaceVendorAdd", "selfRef=[1,2]", "other=[3,4]", "alpha=2")
    assert "selfRef = [ 7., 10.]" in in_place
    # The listing takes this output for an input.
    assert "out = [1.]" in said("run", "aclnnExp2", "self=[0]", "out=[0]", "--output", "out")
    result = call("run", "aclnnConcat", "tensors=[[1,2]]", "dim=0")
    assert isinstance(result.exception, ArgumentMissingError)


@pytest.mark.usefixtures("server")
def test_outputs_of_a_list_are_shown_and_saved_one_by_one(tmp_path: Path) -> None:
    typed = ("Split", "self=[1,2,3]", "sizes=[1,2]", "out=[[0],[0,0]]")
    assert "out[0] = [1.]\nout[1] = [2., 3.]\n" in said("run", *typed)
    said("run", *typed, "--save", str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out[0].npy", "out[1].npy"]
    assert np.load(tmp_path / "out[1].npy").tolist() == [2, 3]


def test_a_declared_operator_runs_without_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "connect", client_module.connect)
    typed = ("grad_output=[1,2]", "self=[1,2]", "target=[1,2]", "reduction=0")
    shown = said("run", "aclnnKlDivBackward", *typed, "--target", "local:")
    assert "out = [-1., -4.]" in shown
    assert "unvalidated" not in shown
