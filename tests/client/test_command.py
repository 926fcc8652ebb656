"""``npucall info``, ``operators`` and ``run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.errors import ArgumentMissingError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2, ASCEND_310B
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.listing import describe
from npucall_client import client as client_module

from .fake_transport import FakeTransport, connected, operator

typer = pytest.importorskip("typer", reason="the extra cli is not installed")
from typer.testing import CliRunner  # noqa: E402  # as typer

from npucall_client import command  # noqa: E402  # needs typer

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

CAT = operator("aclnnCat", tensors="in const aclTensorList*", dim="int64_t", out="out aclTensor*")
ADD = operator(
    "aclnnInplaceAdd",
    selfRef="in/out const aclTensor*",
    other="in const aclTensor*",
    alpha="const aclScalar*",
)
SPLIT = operator(
    "aclnnSplit", self="in const aclTensor*", sizes="aclIntArray*", out="out aclTensorList*"
)
EXP2 = operator("aclnnExp2", self="in const aclTensor*", out="in const aclTensor*")


def cat(tensors: Any, dim: int, out: Any) -> None:
    out[...] = np.concatenate(tensors, dim)


def add(other: Any, alpha: Any, **written: Any) -> None:
    written["selfRef"] += other * np.float32(alpha.value)


def split(self: Any, sizes: Any, out: Any) -> None:
    start = 0
    for size, part in zip(sizes, out, strict=True):
        part[...] = self[start : start + size]
        start += size


def exp2(self: Any, out: Any) -> None:
    out[...] = np.exp2(self)


class Server(FakeTransport):
    """Also lists a declared operator, says why it cannot run one, and has a device."""

    def __init__(self) -> None:
        super().__init__({CAT: cat, ADD: add, SPLIT: split, EXP2: exp2})
        self.info = pb.GetServerInfoResponse()

    async def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        missing = describe(EXP2, A2, "expected aclnnExp2 in a library [of this host]")
        return [describe(CAT, A2), missing, describe(kl_div_backward, ASCEND_310B)]

    async def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        if name == kl_div_backward.name:
            return describe(kl_div_backward, ASCEND_310B)
        return await super().operator(name, variant, timeout)

    async def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        return self.info


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server at every target."""
    transport = Server()
    monkeypatch.setattr(command, "connect", lambda *_, **__: connected(transport))
    return transport


def call(*words: str) -> Result:
    app = typer.Typer()
    for name in ("info", "operators", "run"):
        app.command(name)(getattr(command, name))
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def said(*words: str) -> str:
    result = call(*words)
    assert (result.exit_code, result.exception) == (0, None)
    return result.output


def lines(text: str) -> list[str]:
    """The lines of a table, blanks as one."""
    return [" ".join(line.split()) for line in text.splitlines()]


# npucall operators


def test_an_operator_without_reference_is_marked(server: Server) -> None:
    assert "aclnnCat yes no reference, unvalidated" in lines(said("operators"))


def test_the_reason_why_an_operator_is_unavailable_stands_below_it(server: Server) -> None:
    shown = said("operators")
    assert "aclnnExp2 no no reference, unvalidated" in lines(shown)
    assert "expected aclnnExp2 in a library [of this host]" in shown
    assert "Ascend310B (Atlas 200I/500 A2 inference) does not have it" in shown


def test_a_declared_operator_is_shown_with_its_summary(server: Server) -> None:
    shown = said("operators")
    assert "Gradient of kl_div(self, target) with respect to self." in shown


def test_an_operator_may_be_named_without_what_all_names_begin_with(server: Server) -> None:
    shown = said("operators", "-o", "KlDivBackward")
    assert shown == said("operators", "-o", "aclnnKlDivBackward")
    assert "out[0] = [1.]\n" in said("run", "Split", "self=[1]", "sizes=[1]", "out=[[0]]")


def test_one_operator_without_reference_is_described_by_its_prototype(server: Server) -> None:
    shown = said("operators", "--operator", "aclnnInplaceAdd")
    assert "aclnnStatus aclnnInplaceAddGetWorkspaceSize(const aclTensor* selfRef," in shown
    assert "Known by its C prototype alone: no reference, unvalidated." in shown
    assert "The server guesses from the header which tensors are outputs." in shown
    assert "selfRef const aclTensor* selfRef in/out" in lines(shown)
    assert "other const aclTensor* other in" in lines(shown)
    assert "alpha const aclScalar* alpha" in lines(shown)
    assert "Rules" not in shown


def test_one_operator_that_is_unavailable_is_described_with_the_reason(server: Server) -> None:
    shown = said("operators", "--operator", "aclnnKlDivBackward")
    assert "Not available here: Ascend310B (Atlas 200I/500 A2 inference) does not" in shown
    assert "Rules, in order" in shown


def test_a_parameter_is_shown_with_its_type_and_name_in_c(server: Server) -> None:
    shown = lines(said("operators", "--operator", "aclnnKlDivBackward"))
    assert any(line.startswith("grad_output const aclTensor* gradOutput in") for line in shown)


def test_one_operator_that_is_available_is_described_without_a_reason(server: Server) -> None:
    assert "Not available here" not in said("operators", "--operator", "aclnnCat")


# npucall info


def test_what_a_device_says_of_itself_is_shown(server: Server) -> None:
    device = server.info.device
    device.cann_version, device.driver_version = "8.1.RC1", "25.5.0"
    device.runtime_version = "1.13.0"
    device.memory_total_bytes, device.memory_free_bytes = 64 << 30, 48 << 30
    device.utilization.cube_percent, device.utilization.vector_percent = 97, 0
    device.health = pb.DEVICE_HEALTH_ABNORMAL
    device.product_guess = "soc: a guess"
    shown = lines(said("info"))
    assert "CANN 8.1.RC1" in shown
    assert "driver 25.5.0" in shown
    assert "runtime 1.13.0" in shown
    assert "device memory 48.00 GiB free of 64.00 GiB" in shown
    assert "busy cube 97 %, vector 0 %" in shown
    assert "health abnormal" in shown
    assert "guess soc: a guess" in shown


def test_a_device_without_free_memory_is_shown_as_that(server: Server) -> None:
    server.info.device.memory_total_bytes = 1 << 30
    assert "device memory none free of 1.00 GiB" in lines(said("info"))


def test_nothing_is_shown_of_a_device_that_is_no_hardware(server: Server) -> None:
    shown = said("info")
    for row in ("CANN", "driver", "runtime", "device memory", "busy", "health", "guess"):
        assert row not in shown


def test_who_the_server_takes_the_caller_for_is_shown(server: Server) -> None:
    assert "known as" not in said("info")
    caller = server.info.caller
    caller.tenant, caller.name, caller.expires_seconds = "vision", "alice", 90 * 86_400
    caller.role, caller.known_by = pb.CALLER_ROLE_USER, pb.KNOWN_BY_LOCAL_USER
    expected = "known as vision/alice by local user, role user, for 90 days"
    assert expected in lines(said("info"))
    caller.expires_seconds = 100
    assert expected.replace("90 days", "100 seconds") in lines(said("info"))


# npucall run


def test_a_list_of_tensors_is_typed_as_a_list(server: Server) -> None:
    shown = said("run", "aclnnCat", "tensors=[[1,2],[3]]", "dim=0", "out=[0,0,0]")
    assert "out = [1., 2., 3.]" in shown
    assert "aclnnCat: no reference, unvalidated" in shown


def test_an_output_in_place_is_typed_as_what_it_holds(server: Server) -> None:
    shown = said("run", "aclnnInplaceAdd", "selfRef=[1,2]", "other=[3,4]", "alpha=2")
    assert "selfRef = [ 7., 10.]" in shown


def test_outputs_of_a_list_are_shown_one_by_one(server: Server) -> None:
    shown = said("run", "aclnnSplit", "self=[1,2,3]", "sizes=[1,2]", "out=[[0],[0,0]]")
    assert "out[0] = [1.]\nout[1] = [2., 3.]\n" in shown


def test_outputs_of_a_list_are_saved_one_by_one(server: Server, tmp_path: Path) -> None:
    typed = ("self=[1,2,3]", "sizes=[1,2]", "out=[[0],[0,0]]")
    said("run", "aclnnSplit", *typed, "--save", str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out[0].npy", "out[1].npy"]
    assert np.load(tmp_path / "out[1].npy").tolist() == [2, 3]


def test_a_tensor_that_the_listing_takes_for_an_input_may_be_an_output(server: Server) -> None:
    shown = said("run", "aclnnExp2", "self=[0]", "out=[0]", "--output", "out")
    assert "out = [1.]" in shown


def test_an_output_that_is_not_typed_is_missing(server: Server) -> None:
    result = call("run", "aclnnCat", "tensors=[[1,2]]", "dim=0")
    assert isinstance(result.exception, ArgumentMissingError)


def test_a_declared_operator_runs_without_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "connect", client_module.connect)
    typed = ("grad_output=[1,2]", "self=[1,2]", "target=[1,2]", "reduction=0")
    shown = said("run", "aclnnKlDivBackward", *typed, "--target", "local:")
    assert "out = [-1., -4.]" in shown
    assert "unvalidated" not in shown
