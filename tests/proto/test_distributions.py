"""The four distributions and the released descriptors."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tests.rows import each

from npucall.v1 import operator_service_pb2, shared_memory_pb2, tensor_pb2

ROOT = Path(__file__).parents[2]
MEMBERS = {
    "proto": "npucall",
    "server": "npucall-server",
    "client": "npucall-client",
    "pool": "npucall-pool",
}


def project(member: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]
    return table


def requirements(member: str) -> list[str]:
    table = project(member)
    extras = table.get("optional-dependencies", {}).values()
    return [*table["dependencies"], *(line for extra in extras for line in extra)]


@each("member", MEMBERS)
def test_a_member_is_the_distribution_of_its_name(member: str) -> None:
    assert project(member)["name"] == MEMBERS[member]


def test_the_four_distributions_have_one_version() -> None:
    assert len({project(member)["version"] for member in MEMBERS}) == 1


@each("member", ["server", "client"])
def test_members_depend_on_exactly_their_own_version_of_each_other(member: str) -> None:
    pins = [line for line in requirements(member) if line.startswith("npucall")]
    assert [line.partition("==")[2] for line in pins] == [project(member)["version"]] * len(pins)
    assert f"npucall=={project('proto')['version']}" in pins


def test_the_keepers_need_none_of_the_others() -> None:
    """They stand in Ray's environment, whose grpcio and protobuf are not to meet the server's."""
    assert [line for line in requirements("pool") if line.startswith("npucall")] == []


def test_nobody_needs_the_keepers() -> None:
    others = [line for member in ("proto", "server", "client") for line in requirements(member)]
    assert [line for line in others if line.startswith("npucall-pool")] == []


def test_the_installed_contract_has_the_version_of_the_tree() -> None:
    assert version("npucall") == project("proto")["version"]


def released() -> FileDescriptorSet:
    return FileDescriptorSet.FromString((ROOT / "proto/released/npucall.v1.binpb").read_bytes())


def test_the_released_descriptors_hold_the_package() -> None:
    files = {file.name for file in released().file if file.package == "npucall.v1"}
    names = ("operator_service", "shared_memory", "tensor")
    assert files == {f"npucall/v1/{name}.proto" for name in names}


def test_every_released_message_is_still_there() -> None:
    there = {
        message for module in (operator_service_pb2, shared_memory_pb2, tensor_pb2)
        for message in module.DESCRIPTOR.message_types_by_name
    }  # fmt: skip
    files = [file for file in released().file if file.package == "npucall.v1"]
    assert {message.name for file in files for message in file.message_type} <= there
