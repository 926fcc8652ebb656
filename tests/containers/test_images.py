"""The images of the Dockerfile, built and run: what they may do, and who answers from them."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from . import images
from .engines import TOOLS, Podman

pytestmark = pytest.mark.containers
MEGABYTE = 10**6


@pytest.fixture(scope="module")
def cpu(podman: Podman, cpu_image: str, network: str) -> Iterator[str]:
    """A healthy server that others find as cpu."""
    options = f"--network={network}", "--network-alias=cpu"
    with podman.container(cpu_image, *options) as name:
        podman.wait_healthy(name)
        yield name


@pytest.fixture(scope="module")
def npu(podman: Podman, npu_image: str, network: str) -> Iterator[str]:
    """A healthy server on the simulated NPU, found as npu."""
    options = f"--network={network}", "--network-alias=npu"
    with podman.container(npu_image, *options) as name:
        podman.wait_healthy(name)
        yield name


def is_confined(podman: Podman, container: str) -> None:
    """Its process is not root, has no capability, and writes to /tmp and its volume alone."""
    status = podman("exec", container, "cat", "/proc/1/status")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    assert set(lines["Uid"].split()) == {"10001"}
    assert int(lines["CapEff"], 16) == int(lines["CapBnd"], 16) == 0
    assert lines["NoNewPrivs"].strip() == "1"
    assert podman.succeeds("exec", container, "touch", "/tmp/written")
    for kept in "server-id", "usage.jsonl":
        assert podman.succeeds("exec", container, "test", "-w", f"/var/lib/npucall/{kept}"), kept
    for folder in "/opt/npucall", "/etc", "/":
        assert not podman.succeeds("exec", container, "touch", f"{folder}/written"), folder


def test_the_cpu_server_is_healthy_without_root_on_a_file_system_that_is_only_read(
    podman: Podman, cpu: str
) -> None:
    is_confined(podman, cpu)


def test_the_image_of_the_cpu_server_is_150_mb_at_most_beyond_its_base(
    podman: Podman, cpu_image: str
) -> None:
    assert podman.size(cpu_image) - podman.size(images.BASE) <= 150 * MEGABYTE


def test_the_image_of_the_cpu_server_has_nothing_that_installs(podman: Podman, cpu: str) -> None:
    program = (
        "from importlib.util import find_spec; print(find_spec('pip'), find_spec('setuptools'))"
    )
    assert podman("exec", cpu, "/opt/npucall/bin/python", "-c", program).split() == ["None", "None"]


def test_a_probe_from_another_container_finds_the_server_by_name(
    podman: Podman, cpu: str, network: str, cpu_image: str
) -> None:
    probe = "run", "--rm", f"--network={network}", cpu_image, "health", "cpu:50051"
    assert podman(*probe).strip() == "cpu:50051: SERVING"


def test_the_suite_judges_the_cpu_server(podman: Podman, cpu: str) -> None:
    target = f"{podman.address(cpu)}:50051"
    suite = [TOOLS / "npucall", "conform", target, "--quick", "--operator=aclnnKlDivBackward"]
    done = subprocess.run([*podman.enter, *suite], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search("^Conforms.* all [0-9,]+ cases passed", done.stdout, re.MULTILINE)


@pytest.mark.long
def test_the_conformance_tests_pass_from_one_container_against_another(
    podman: Podman, cpu: str, network: str, test_image: str
) -> None:
    target = "--env=NPUCALL_TARGET=cpu:50051"
    with podman.container(test_image, f"--network={network}", target) as name:
        code = podman("wait", name).strip()
        assert code == "0", podman("logs", "--tail=40", name)


@pytest.mark.long
def test_the_suite_judges_the_npu_server_from_another_container(
    podman: Podman, npu: str, network: str, test_image: str
) -> None:
    suite = "conform", "npu:50051", "--quick"
    options = f"--network={network}", "--entrypoint=/opt/npucall/bin/npucall"
    with podman.container(test_image, *options, command=suite) as name:
        code = podman("wait", name).strip()
        assert code == "0", podman("logs", "--tail=40", name)


@pytest.mark.long
def test_the_npu_server_is_healthy_without_root_on_a_file_system_that_is_only_read(
    podman: Podman, npu: str
) -> None:
    is_confined(podman, npu)


@pytest.mark.long
def test_the_doctor_of_the_npu_image_finds_the_libraries_and_tries_them(
    podman: Podman, npu_image: str
) -> None:
    """Faults that it finds are the driver's, of which the stand-in has none."""
    with podman.container(npu_image, command=("doctor",)) as name:
        podman("wait", name)
        said = podman("logs", name)
    assert "declared operators are in the libraries" in said
    assert ": right twice; first phases " in said
