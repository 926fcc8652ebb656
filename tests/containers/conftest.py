"""podman of these tests alone, and the images; what is not asked for is not built."""

from collections.abc import Callable, Iterator

import pytest
from tests.pool.hosts import need

from . import images
from .engines import CLIENT, PODMAN, Podman, own_network


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """podman whose containers and networks are gone at the end; images stay for the next run."""
    need(*PODMAN)
    with own_network() as enter:
        podman = Podman(enter)
        podman("rm", "--all", "--force")  # of a run that was killed
        try:
            yield podman
        finally:
            podman("rm", "--all", "--force")
            podman("network", "prune", "--force")
            podman.on_host("image", "prune", "--force")


def _image(stage: str, name: str) -> Callable[..., str]:
    @pytest.fixture(scope="session")
    def image(podman: Podman) -> str:
        images.build(podman, stage, name)
        return name

    return image


cpu_image = _image("cpu", images.CPU)
client_image = _image("test-environment", CLIENT)  # its command alone, without a compiler
test_image = _image("test", images.TEST)


@pytest.fixture(scope="session")
def npu_image(podman: Podman, test_image: str) -> str:
    images.build_npu(podman)
    return images.NPU


@pytest.fixture(scope="module")
def network(podman: Podman) -> Iterator[str]:
    """A network in which containers find each other by name."""
    name = "npucall-test"
    podman("network", "create", name)
    yield name
    podman("network", "rm", "--force", name)
