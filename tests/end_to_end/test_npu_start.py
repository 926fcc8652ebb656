"""What ``npucall-server --device cann:N`` says where it cannot serve, and what it serves with."""

import os
import subprocess
import sys
from typing import NamedTuple

import pytest
from tests.npu import environment, running_npu_server

import npucall_client

from . import wire


class Refusal(NamedTuple):
    """What a server says that ends with 69 instead of serving: how it begins, and lines of it."""

    begins: str
    has: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    simulator: dict[str, str] | None = None
    """Variables of the simulator; None: the host has no CANN."""
    home: str = ""
    custom: bool = False


DEVICE = "npucall-server: device cann:"
REFUSALS = {
    "no toolkit: every name that was tried": Refusal(
        f"{DEVICE}0: expected one of libascendcl.so, ",
        ("\n  libascendcl.so: ", "\n  libacl_rt.so: ", "set_env.sh"),
    ),
    "no such variant": Refusal(
        "npucall-server: variant: expected builtin, ",
        ("found community\n",),
        ("--variant=community",),
        {},
    ),
    "a toolkit without libraries: path by path": Refusal(
        f"{DEVICE}0: expected one of ",
        ("\n  /nowhere/lib64/libascendcl.so: ", "\n  /nowhere/lib64/libacl_rt.so: "),
        home="/nowhere",
    ),
    "no such variant beside a custom package": Refusal(
        "npucall-server: variant: expected community, ",
        ("found builtin\n",),
        ("--variant=builtin",),
        {},
        custom=True,
    ),
    "no such device": Refusal(
        f"{DEVICE}2: aclrtSetDevice: ",
        ("107001 (ACL_ERROR_RT_INVALID_DEVICEID)",),
        ("--device=cann:2",),
        {"NPUCALL_SIM_DEVICES": "2"},
    ),
    "a SoC of no known product": Refusal(
        f"{DEVICE}0: ", ("Ascend2000",), simulator={"NPUCALL_SIM_SOC": "Ascend2000"}
    ),
    **{
        f"{function} fails": Refusal(
            f"{DEVICE}0: {function}: ",
            ("507033 (ACL_ERROR_RT_DEV_SETUP_ERROR)",),
            simulator={"NPUCALL_SIM_FAULTS": f"{function}:1:return:507033"},
        )
        for function in ("aclrtSetDevice", "aclInit", "aclrtCreateStreamWithConfig")
    },
}


def without_cann(home: str) -> dict[str, str]:
    names = ("LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH")
    kept = {key: value for key, value in os.environ.items() if key not in names}
    return {**kept, "ASCEND_HOME_PATH": home} if home else kept


@pytest.mark.parametrize(
    "cases", [[*REFUSALS][:1], pytest.param([*REFUSALS][1:], marks=pytest.mark.more)]
)
def test_where_it_cannot_serve_it_says_why_and_ends_with_69(cases: list[str]) -> None:
    wrong = {}
    for name in cases:
        case = REFUSALS[name]
        if case.simulator is None:
            given = without_cann(case.home)
        else:
            given = environment(custom=case.custom, **case.simulator)
        command = [sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0"]
        ended = subprocess.run(
            [*command, "--device=cann:0", *case.flags],
            env=given, capture_output=True, text=True, timeout=wire.PATIENCE, check=False,
        )  # fmt: skip
        said = ended.stderr
        right = ended.returncode == 69 and said.startswith(case.begins)
        if not right or not all(text in said for text in case.has):
            wrong[name] = (ended.returncode, said)
    assert wrong == {}


def test_another_device_of_the_host_serves_under_its_name_with_the_variant_asked_for() -> None:
    with (
        running_npu_server("--variant=builtin", device=1, NPUCALL_SIM_DEVICES="2") as server,
        npucall_client.connect(server.target) as client,
    ):
        info = client.server_info()
    assert (info.server.device, info.default_variant) == ("cann:1", "builtin")
