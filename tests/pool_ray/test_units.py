"""The units by which systemd starts Ray: what a pool needs them to say."""

import subprocess

import pytest
from tests.rows import each

from .units import RAY, ROOT, Unit

NAMES = ["ray-head.service", "ray-worker.service"]
HOST = {"NODE_ADDRESS": "10.0.0.6", "HEAD_ADDRESS": "10.0.0.5", "RAY_OPTIONS": "--num-cpus=2"}
HOUR = 3600


@each("name", NAMES)
def test_ray_comes_back_however_often_it_ends(name: str) -> None:
    unit = Unit.read(name, HOST)
    assert unit.restart == "always"
    assert "StartLimitIntervalSec=0\n" in (ROOT / "deploy/ray" / name).read_text()


@each("name", NAMES)
def test_servers_outlive_a_head_that_is_away_for_hours(name: str) -> None:
    seconds = Unit.read(name, HOST).environment["RAY_gcs_rpc_server_reconnect_timeout_s"]
    assert int(seconds) >= 12 * HOUR


@each("name", NAMES)
def test_the_process_of_the_unit_is_the_one_that_ends_when_ray_does(name: str) -> None:
    command = Unit.read(name, HOST).command
    assert command[:2] == [str(RAY / "bin/ray"), "start"]
    assert "--block" in command
    assert command[-1] == "--num-cpus=2"


def test_a_worker_is_told_its_head() -> None:
    assert "--address=10.0.0.5:6379" in Unit.read("ray-worker.service", HOST).command


@pytest.mark.long
@each("name", NAMES)
def test_ray_knows_the_flags_of_a_unit(name: str, can_have_hosts: None) -> None:
    said = subprocess.run(
        [RAY / "bin/ray", "start", "--help"], capture_output=True, text=True, check=True
    )
    for word in Unit.read(name, HOST).command[2:]:
        assert word.partition("=")[0] in said.stdout
