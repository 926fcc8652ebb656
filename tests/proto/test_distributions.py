"""The six distributions and the released descriptors."""

import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tests.rows import each

from npucall.v1 import operator_service_pb2, shared_memory_pb2, tensor_pb2

ROOT = Path(__file__).parents[2]
NAMES = {
    "proto": "npucall",
    "server": "npucall-server",
    "client": "npucall-client",
    "conformance": "npucall-conformance",
    "exec": "npucall-exec",
    "pool": "npucall-pool",
}


def project(member: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]
    return table


def ours(member: str) -> list[str]:
    """What a member requires of the others."""
    table = project(member)
    extras = table.get("optional-dependencies", {}).values()
    lines = [*table["dependencies"], *(line for extra in extras for line in extra)]
    return [line for line in lines if line.startswith("npucall")]


def test_the_six_distributions_have_their_names_and_one_version() -> None:
    projects = {member: project(member) for member in NAMES}
    assert {member: told["name"] for member, told in projects.items()} == NAMES
    assert {told["version"] for told in projects.values()} == {version("npucall")}


@each("member", ["server", "client", "conformance", "exec"])
def test_members_depend_on_exactly_their_own_version_of_each_other(member: str) -> None:
    own = project(member)["version"]
    assert {line.partition("==")[2] for line in ours(member)} == {own}
    assert f"npucall=={own}" in ours(member)


def test_the_keepers_need_none_of_the_others_and_nobody_needs_them() -> None:
    """They stand in Ray's environment, whose grpcio and protobuf are not to meet the server's."""
    assert ours("pool") == []
    others = [line for member in NAMES for line in ours(member)]
    assert not any(line.startswith("npucall-pool") for line in others)


def test_every_released_message_is_still_there() -> None:
    released = FileDescriptorSet.FromString((ROOT / "proto/released/npucall.v1.binpb").read_bytes())
    files = {file.name: file for file in released.file if file.package == "npucall.v1"}
    modules = operator_service_pb2, shared_memory_pb2, tensor_pb2
    assert files.keys() == {module.DESCRIPTOR.name for module in modules}
    there = {name for module in modules for name in module.DESCRIPTOR.message_types_by_name}
    assert {message.name for file in files.values() for message in file.message_type} <= there
