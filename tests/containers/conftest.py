"""podman of these tests alone, and the images; what is not asked for is not built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import images, needs
from .podman import Podman

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """podman whose containers and networks are gone at the end; images stay for the next run."""
    needs.need(needs.PACKAGES)
    with needs.own_network() as enter:
        podman = Podman(enter)
        podman("rm", "--all", "--force")  # of a run that was killed
        try:
            yield podman
        finally:
            podman("rm", "--all", "--force")
            podman("network", "prune", "--force")
            podman.on_host("image", "prune", "--force")


def _image(build: Callable[[Podman], None], name: str) -> Callable[..., str]:
    @pytest.fixture(scope="session")
    def image(podman: Podman) -> str:
        build(podman)
        return name

    return image


cpu_image = _image(images.build_cpu, images.CPU)
client_image = _image(images.build_client, images.CLIENT)
test_image = _image(images.build_test, images.TEST)
npu_image = _image(images.build_npu, images.NPU)


@pytest.fixture(scope="module")
def network(podman: Podman) -> Iterator[str]:
    """A network in which containers find each other by name."""
    name = "npucall-test"
    podman("network", "create", name)
    yield name
    podman("network", "rm", "--force", name)
