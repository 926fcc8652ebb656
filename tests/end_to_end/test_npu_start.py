"""What ``npucall-server --device cann:N`` says where it cannot serve, and what it serves with."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.more import only
from tests.npu import environment, running_npu_server

import npucall_client

from . import wire

if TYPE_CHECKING:
    from pathlib import Path

LIBRARIES = ("libascendcl.so", "libacl_rt.so")


def refused(*flags: str, given: dict[str, str]) -> str:
    """What a server says that ends with 69 instead of serving."""
    command = [sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0", *flags]
    ended = subprocess.run(
        command, env=given, capture_output=True, text=True, timeout=wire.PATIENCE, check=False
    )
    assert ended.returncode == 69, ended.stderr
    return ended.stderr


def without_cann(**variables: str) -> dict[str, str]:
    names = ("LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH")
    return {k: v for k, v in os.environ.items() if k not in names} | variables


def test_without_a_toolkit_every_name_that_was_tried_is_said() -> None:
    said = refused("--device=cann:0", given=without_cann())
    assert said.startswith("npucall-server: device cann:0: expected one of libascendcl.so, ")
    lines = said.splitlines()
    for library in LIBRARIES:
        assert any(line.startswith(f"  {library}: ") for line in lines)
    assert "set_env.sh" in said


def test_a_toolkit_without_libraries_is_named_path_by_path(tmp_path: Path) -> None:
    said = refused("--device=cann:0", given=without_cann(ASCEND_HOME_PATH=str(tmp_path)))
    lines = said.splitlines()
    for library in LIBRARIES:
        assert any(line.startswith(f"  {library}: ") for line in lines)
        assert any(line.startswith(f"  {tmp_path}/lib64/{library}: ") for line in lines)


@pytest.mark.parametrize(
    ("custom", "has", "asked"), [(False, "builtin", "community"), (True, "community", "builtin")]
)
def test_a_variant_that_the_host_has_not_is_refused(custom: bool, has: str, asked: str) -> None:
    said = refused("--device=cann:0", f"--variant={asked}", given=environment(custom=custom))
    assert said.startswith(f"npucall-server: variant: expected {has}, ")
    assert said.endswith(f"found {asked}\n")


def test_the_variant_that_the_host_has_may_be_asked_for() -> None:
    with (
        running_npu_server("--variant=builtin") as server,
        npucall_client.connect(server.target) as client,
    ):
        assert client.server_info().default_variant == "builtin"


def test_a_device_that_is_not_there_is_refused() -> None:
    said = refused("--device=cann:2", given=environment(NPUCALL_SIM_DEVICES="2"))
    assert said.startswith("npucall-server: device cann:2: aclrtSetDevice: ")
    assert "107001 (ACL_ERROR_RT_INVALID_DEVICEID)" in said


def test_a_soc_of_no_known_product_is_refused() -> None:
    said = refused("--device=cann:0", given=environment(NPUCALL_SIM_SOC="Ascend2000"))
    assert said.startswith("npucall-server: device cann:0: ")
    assert "Ascend2000" in said


@pytest.mark.parametrize(
    "function", only("aclrtSetDevice", "aclInit", "aclrtCreateStreamWithConfig")
)
def test_a_host_that_fails_at_the_start_is_refused_with_the_function(function: str) -> None:
    fault = f"{function}:1:return:507033"
    said = refused("--device=cann:0", given=environment(NPUCALL_SIM_FAULTS=fault))
    assert said.startswith(f"npucall-server: device cann:0: {function}: ")
    assert "507033 (ACL_ERROR_RT_DEV_SETUP_ERROR)" in said


def test_another_device_of_the_host_serves_under_its_own_name() -> None:
    with (
        running_npu_server(device=1, NPUCALL_SIM_DEVICES="2") as server,
        npucall_client.connect(server.target) as client,
    ):
        assert client.server_info().server.device == "cann:1"
