"""The kinds of devices: found by what ``--device`` says, opened without a look at the others."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.server.serving import serving

import npucall_client
from npucall_server.devices import open_device
from npucall_server.settings.device_kinds import CANN, CPU, KINDS, DeviceKind
from npucall_server.settings.server import ServerSettings, device_kinds

Register = Callable[[pytest.MonkeyPatch, Path], None]

ECHO = Path(__file__).parents[3] / "examples/echo"
"""A folder with a device that npucall does not know."""
OPENER = "npucall_echo.device:open_echo"


@pytest.fixture
def _echo_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ECHO)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("npucall_echo"):
            del sys.modules[name]


def by_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    kinds = (*KINDS, DeviceKind("echo:N", "an echo", OPENER))
    monkeypatch.setattr(device_kinds, "KINDS", kinds)


def by_an_entry_point(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As pip leaves a distribution that has the entry point."""
    metadata = folder / "npucall_echo-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: npucall-echo\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[npucall_server.devices]\necho = {OPENER}\n")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("_echo_can_be_imported")
@pytest.mark.parametrize("register", [by_a_line_of_the_table, by_an_entry_point])
def test_a_folder_and_one_registration_are_a_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, register: Register
) -> None:
    register(monkeypatch, tmp_path)
    notes: list[str] = []
    device = open_device(ServerSettings(device="echo:7"), notes.append)
    with serving(device, lanes=2) as server, npucall_client.connect(server.target) as client:
        one, two = np.full((2, 3), 1, np.float32), np.full((2, 3), 2, np.float32)
        inputs = {"grad_output": two, "self": one, "target": one}
        assert client.server_info().server.device == "echo:7"
        assert client.plan("aclnnL1LossBackward", **inputs).workspace_bytes == 4 * 64
        assert client.run("aclnnL1LossBackward", **inputs).tobytes() == two.tobytes()
    device.close()
    assert notes == ["echo:7 is open"]


def test_a_device_that_nobody_registered_is_refused_with_the_forms_that_are() -> None:
    with pytest.raises(ValueError, match=r"expected one of cpu, cann:N \(N: a number\), found 'x'"):
        device_kinds.kind_of("x")


def test_a_device_is_of_the_kind_whose_form_it_has(subtests: pytest.Subtests) -> None:
    for kind, device, number in [
        (CPU, "cpu", 0),
        (CANN, "cann:0", 0),
        (CANN, "cann:12", 12),
        (CPU, "cpu:0", None),
        (CPU, "cpu\n", None),
        (CANN, "cann", None),
        (CANN, "cann:", None),
        (CANN, "cann:-1", None),
        (CANN, "cann:1\n", None),
        (CANN, "cann:\N{ARABIC-INDIC DIGIT ONE}", None),
        (CANN, "scann:1", None),
    ]:
        with subtests.test(device, kind=kind.form):
            assert kind.number_in(device) == number


def test_what_opens_a_kind_is_there_and_help_says_what_each_is() -> None:
    description = str(ServerSettings.model_fields["device"].description)
    for kind in KINDS:
        assert callable(kind.load())
        assert f"{kind.form}, {kind.meaning};" in description


def test_a_server_on_a_cpu_imports_nothing_of_other_devices() -> None:
    program = """
import json, sys
from npucall_server.commands.serve import read
from npucall_server.devices import open_device
open_device(read([]), print).close()
print(json.dumps(sorted(name for name in sys.modules if ".devices." in name)))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    modules: list[Any] = json.loads(ended.stdout)
    assert modules == [f"npucall_server.devices.{name}" for name in ("base", "cpu", "host_memory")]
