"""podman of these tests alone, and the images; what is not asked for is not built."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from . import images, needs
from .podman import Podman

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """podman whose containers and networks are gone at the end; images stay for the next run."""
    needs.need(needs.PACKAGES)
    with needs.namespace(f"npucall-containers-{os.getpid()}") as enter:
        podman = Podman(enter)
        podman("rm", "--all", "--force")  # of a run that was killed
        try:
            yield podman
        finally:
            podman("rm", "--all", "--force")
            podman("network", "prune", "--force")
            podman.on_host("image", "prune", "--force")


@pytest.fixture(scope="session")
def cpu_image(podman: Podman) -> str:
    images.build_cpu(podman)
    return images.CPU


@pytest.fixture(scope="session")
def client_image(podman: Podman) -> str:
    images.build_client(podman)
    return images.CLIENT


@pytest.fixture(scope="session")
def test_image(podman: Podman) -> str:
    images.build_test(podman)
    return images.TEST


@pytest.fixture(scope="session")
def npu_image(podman: Podman) -> str:
    images.build_npu(podman)
    return images.NPU


@pytest.fixture(scope="module")
def network(podman: Podman) -> Iterator[str]:
    """A network in which containers find each other by name."""
    name = "npucall-test"
    podman("network", "create", name)
    yield name
    podman("network", "rm", "--force", name)
