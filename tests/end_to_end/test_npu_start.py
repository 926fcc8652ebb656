"""What ``npucall-server --device cann:N`` says where it cannot serve, and what it serves with."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.npu import environment, need_compiler, running_npu_server
from tests.simulator.build import build

import npucall_client
from npucall_server.commands.doctor.host import check_environment

from . import wire
from .pages import ROOT


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


@pytest.mark.more
def test_another_device_of_the_host_serves_under_its_name_with_the_variant_asked_for() -> None:
    with (
        running_npu_server("--variant=builtin", device=1, NPUCALL_SIM_DEVICES="2") as server,
        npucall_client.connect(server.target) as client,
    ):
        info = client.server_info()
    assert (info.server.device, info.default_variant) == ("cann:1", "builtin")


RECIPES = ("Dockerfile", "deploy/npucall-server@.service", "deploy/slurm/npucall.sbatch")


@pytest.mark.parametrize(
    ("installed", "found"), [("8.1", "8.1"), ("9.x", "9.x"), ("8.1 9.x", "9.x")]
)
def test_a_release_is_found_where_cann_s_installer_puts_it(
    installed: str, found: str, tmp_path: Path
) -> None:
    """By what starts a server, and by the doctor of a shell that has sourced nothing."""
    need_compiler()
    tree, folder = build(), tmp_path / "usr/local/Ascend"
    folder.mkdir(parents=True)
    for name in installed.split():
        for entry in tree.ascend(name).iterdir():
            (folder / entry.name).symlink_to(entry)
    homes = dict[str, str]()
    for recipe in RECIPES:
        text = (
            (ROOT / recipe).read_text().replace("$$", "$").replace('\\"', '"').replace("\\\n", "")
        )
        sourcing = text[text.index("for each in /usr") : text.index(" || exit 69")]
        script = f"{sourcing.replace('/usr/local/Ascend', str(folder))}; echo $ASCEND_HOME_PATH"
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        homes[recipe] = ran.stdout.strip()
    assert homes == dict.fromkeys(RECIPES, str(tree.generation(found).home))
    script = tree.generation(found).set_env.relative_to(tree.ascend(found))
    (fault, *_) = check_environment({}, tmp_path, 0)
    assert fault.todo is not None
    assert f"CANN_SET_ENV=/usr/local/Ascend/{script}" in fault.todo
