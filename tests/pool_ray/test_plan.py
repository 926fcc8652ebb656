"""From what the administrator asks for to what each keeper is told."""

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each

from npucall_pool.order import HostValues, Order
from npucall_pool.plan import Host, PlannedDirectory, PoolPlan, Servers, flags
from npucall_pool.ports import Ports
from npucall_server.directory import settings as directory_settings
from npucall_server.settings.server import read

HEAD = Host("10.0.0.5", "head", {"CPU": 8}, is_alive=True, is_head=True)
FIRST = Host("10.0.0.6", "first", {"CPU": 8, "NPU": 2}, is_alive=True, is_head=False)
SECOND = Host("10.0.0.7", "second", {"CPU": 8, "NPU": 2}, is_alive=True, is_head=False)
INSECURE = {"insecure_bind": True}
PLAN = PoolPlan(
    (Servers(),),
    settings={**INSECURE, "labels": {"rack": "7"}},
    directory=PlannedDirectory(settings=INSECURE),
)
CPU = Servers(device="cpu")
FOUND = HostValues(50051, "cann:0", "3", Path("/tmp/pool"), "first")


def names(plan: PoolPlan) -> list[str]:
    return [order.name for order in plan.orders([HEAD, FIRST, SECOND])]


def order_of(plan: PoolPlan, name: str) -> Order:
    return next(each for each in plan.orders([HEAD, FIRST, SECOND]) if each.name == name)


def test_there_is_a_server_for_each_device_and_one_directory() -> None:
    assert names(PLAN) == [
        "directory", "10.0.0.6-npu-0", "10.0.0.6-npu-1", "10.0.0.7-npu-0", "10.0.0.7-npu-1",
    ]  # fmt: skip


def test_fewer_servers_a_host_can_be_asked_for_but_not_more_than_devices() -> None:
    one, many = (replace(PLAN, servers=(Servers(per_host=count),)) for count in (1, 9))
    assert names(one)[1:] == ["10.0.0.6-npu-0", "10.0.0.7-npu-0"]
    assert names(many) == names(PLAN)


def test_servers_of_two_kinds_share_the_devices_of_their_hosts() -> None:
    careful = Servers(per_host=1, hosts=("first", "10.0.0.7"), settings={"careful": True})
    plan = replace(PLAN, servers=(careful, Servers(hosts=("first",))))
    assert names(plan)[1:] == ["10.0.0.6-npu-0", "10.0.0.6-npu-1", "10.0.0.7-npu-0"]
    assert "--careful" in order_of(plan, "10.0.0.6-npu-0").arguments
    assert "--careful" not in order_of(plan, "10.0.0.6-npu-1").arguments


def test_cpu_servers_stand_beside_them_on_every_host() -> None:
    plan = replace(PLAN, servers=(Servers(), CPU))
    assert "10.0.0.5-cpu-0" in names(plan)
    order = order_of(plan, "10.0.0.6-cpu-0")
    assert (order.device, order.needs) == ("cpu", {"CPU": 1.0, "node:10.0.0.6": 0.001})
    assert "--label=kind=cpu" in order.arguments


def test_a_keeper_is_bound_to_its_host_by_address_not_by_the_number_of_a_node() -> None:
    assert order_of(PLAN, "10.0.0.6-npu-1").needs == {"NPU": 1.0, "node:10.0.0.6": 0.001}
    assert order_of(PLAN, "directory").needs == {"node:__internal_head__": 0.001}


def test_servers_of_a_host_begin_with_ports_of_their_own() -> None:
    plan = replace(PLAN, servers=(Servers(), CPU))
    ports = [order.port for order in plan.orders([HEAD, FIRST]) if order.host == FIRST.address]
    assert ports == [50051, 50052, 50053]


def test_a_pool_with_directories_of_others_starts_none() -> None:
    plan = replace(PLAN, announce="a:50050,b:50050")
    assert "directory" not in names(plan)
    assert "--announce=a:50050,b:50050" in order_of(plan, "10.0.0.6-npu-0").arguments


def test_hosts_without_devices_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="resource: expected hosts with NPU, found none among hea"):
        PLAN.orders([HEAD])


def test_an_order_is_a_text_that_reads_back() -> None:
    for order in PLAN.orders([HEAD, FIRST]):
        assert Order.of_text(order.as_text()) == order
        assert json.loads(order.as_text())["name"] == order.name


def test_the_server_understands_what_it_is_started_with() -> None:
    python, isolated, program, *arguments = order_of(PLAN, "10.0.0.6-npu-0").command(FOUND)
    assert (python, isolated) == ("/opt/npucall/bin/python", "-I")
    assert (program, arguments.pop(0)) == ("/opt/npucall/bin/npucall-server", "serve")
    settings = read(arguments)
    assert settings.device == "cann:0"
    assert settings.listen == "10.0.0.6:50051"
    assert settings.announce == "10.0.0.5:50050"
    assert settings.labels == {"kind": "npu", "host": "first", "node": "10.0.0.6", "rack": "7"}
    assert settings.device_lock == Path("/tmp/pool/NPU-3.lock")
    assert settings.insecure_bind


def test_the_directory_understands_what_it_is_started_with() -> None:
    _, _, program, *arguments = order_of(PLAN, "directory").command(replace(FOUND, port=50050))
    assert program == "/opt/npucall/bin/npucall-directory"
    assert directory_settings.read(arguments).listen == "10.0.0.5:50050"


def test_a_script_of_cann_is_read_before_the_program() -> None:
    order = order_of(replace(PLAN, set_env="/opt/cann/set_env.sh"), "10.0.0.6-npu-0")
    bash, _, script, read_first, *command = order.command(FOUND)
    assert (bash, read_first) == ("/bin/bash", "/opt/cann/set_env.sh")
    assert script == 'source "$0" > /dev/null || exit 69; exec "$@"'
    assert command == replace(order, set_env="").command(FOUND)


@each(
    ("settings", "expected"),
    [
        ({"queue_length": 100}, ["--queue-length=100"]),
        ({"insecure_bind": True, "reflection": False}, ["--insecure-bind", "--no-reflection"]),
        (
            {"memory_limit": "2GiB", "call_timeout": 2.5},
            ["--memory-limit=2GiB", "--call-timeout=2.5"],
        ),
        ({"listen": ["a:1", "b:2"]}, ["--listen=a:1,b:2"]),
        ({"labels": {"a": "b=c"}}, ["--label=a=b=c"]),
    ],
)
def test_settings_are_flags_of_the_server(settings: dict[str, Any], expected: list[str]) -> None:
    assert list(flags(settings)) == expected


@each("settings", [{"": 3}, {"queue-length": 3}, {"-x": True}, {"tenants": {"a": {}}}, {"a": [{}]}])
def test_what_is_no_setting_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"settings: expected names|: expected a text, a number"):
        list(flags(settings))


@each("text", ["", "50051", "50052-50051", "0-3", "50051-70000", "a-b"])
def test_what_are_no_ports_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ports: expected FIRST-LAST, such as 50051-50082, found "):
        Ports.parse(text)


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert Ports(port, port + 20).free("127.0.0.1", port) > port
        with pytest.raises(OSError, match="ports: expected a free one of"):
            Ports(port, port).free("127.0.0.1", port)
