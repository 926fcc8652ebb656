"""The container files: read, and run as far as that goes without an engine."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML
from tests.rows import each

from npucall_server.settings.server import ServerSettings

from .pages import ROOT

COMPOSE_FILES = ["docker-compose.yml", "deploy/compose.host8.yml"]
POOL_FILES = ["deploy/compose.pool.yml", "deploy/compose.directory.yml"]
SHARING = "deploy/compose.shared-memory.yml"
"""Added to the first of them."""
TOOLS = Path(sys.executable).parent
PORT = "50051"
FRAMES_PORT = "51051"
SERVERS = ["cpu", "npu"]


class Instruction(NamedTuple):
    keyword: str
    value: str


def read_stages() -> dict[str, list[Instruction]]:
    """The Dockerfile's stages by name, in its order; instructions before the first are under ""."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    stages: dict[str, list[Instruction]] = {"": []}
    for line in filter(None, re.sub(r"\\\n\s*", "", text).splitlines()):
        instruction = Instruction(*line.split(maxsplit=1))
        if instruction.keyword == "FROM":
            stages[instruction.value.split()[-1]] = []
        stages[list(stages)[-1]].append(instruction)
    return stages


def read_services(file: str) -> dict[str, Any]:
    services: dict[str, Any] = YAML(typ="safe").load(ROOT / file)["services"]
    return services


STAGES = read_stages()
SERVICES, POOL_SERVICES = (
    {
        f"{Path(file).stem}:{name}": service
        for file in files
        for name, service in read_services(file).items()
    }
    for files in (COMPOSE_FILES, POOL_FILES)
)
SERVER_SERVICES = {key: service for key, service in SERVICES.items() if "healthcheck" in service}
SERVICES_WITH_PORTS = {
    key: service
    for key, service in {**SERVER_SERVICES, **POOL_SERVICES}.items()
    if "ports" in service and not key.endswith(":directory")
}
NPU_SERVICES = {key: service for key, service in SERVER_SERVICES.items() if "devices" in service}


def values(stage: str, keyword: str) -> list[str]:
    return [instruction.value for instruction in STAGES[stage] if instruction.keyword == keyword]


def environment(stage: str) -> dict[str, str]:
    words = (word for value in values(stage, "ENV") for word in shlex.split(value))
    return dict(word.split("=", 1) for word in words)


def copied(stage: str) -> list[str]:
    """What it copies of this folder, not of other stages."""
    own = (value for value in values(stage, "COPY") if not value.startswith("--from="))
    return [source for value in own for source in value.split()[:-1]]


def filled_in(text: str, **variables: str) -> str:
    """As compose reads it: ``${NAME:-default}`` is the variable, or the default."""
    return re.sub(r"\$\{(\w+):-(.*?)\}", lambda found: variables.get(found[1], found[2]), text)


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_compose_accepts_its_file(file: str) -> None:
    if run("sh", "-c", "docker compose version").returncode != 0:
        pytest.skip("docker compose is not installed")
    result = run("docker", "compose", "-f", file, "--profile", "*", "config", "--quiet", cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_the_test_runner_finds_the_cpu_service_and_its_socket_in_a_volume_of_the_images_user() -> (
    None
):
    services = read_services(SHARING)
    name, folder = services["cpu"]["volumes"][0].split(":")
    assert services["test"]["volumes"] == [f"{name}:{folder}"]
    assert Path(services["cpu"]["environment"]["NPUCALL_SHARED_MEMORY"]).parent == Path(folder)
    assert SERVICES["docker-compose:test"]["environment"] == {"NPUCALL_TARGET": f"cpu:{PORT}"}
    assert environment("test")["NPUCALL_TARGET"] == f"cpu:{PORT}"
    options = YAML(typ="safe").load(ROOT / SHARING)["volumes"][name]["driver_opts"]["o"]
    user, group = values("cpu", "USER")[-1].split(":")
    assert (values("test", "USER")[-1], options) == (
        f"{user}:{group}",
        f"size=1m,uid={user},gid={group},mode=0700",
    )


def test_a_stage_ends_as_a_user_that_is_not_root_and_cpu_is_built_by_default() -> None:
    assert list(STAGES)[-1] == "cpu"
    for stage in *SERVERS, "test":
        assert all(int(number) > 0 for number in values(stage, "USER")[-1].split(":"))


@each("service", SERVER_SERVICES.values())
def test_compose_repeats_the_health_check_of_the_image_which_is_the_servers_own_command(
    service: Any,
) -> None:
    (check,) = values(service["image"].split(":")[1], "HEALTHCHECK")
    options, command = check.split("CMD ")
    assert json.loads(command)[:2] == ["npucall-server", "health"]
    in_compose = dict(service["healthcheck"])
    assert in_compose.pop("test") == ["CMD", *json.loads(command)]
    in_image = dict(option.removeprefix("--").split("=") for option in options.split())
    assert {key.replace("_", "-"): str(value) for key, value in in_compose.items()} == in_image


@each("service", SERVER_SERVICES.values())
def test_a_server_may_drain_fills_no_disk_and_is_on_loopback_unless_told_another_host(
    service: Any,
) -> None:
    drain_timeout = ServerSettings.model_fields["drain_timeout"].default
    assert float(service["stop_grace_period"].removesuffix("s")) > drain_timeout
    options = service["logging"]["options"]
    assert service["logging"]["driver"] == "json-file"  # which the options belong to
    assert int(options["max-size"].removesuffix("m")) * int(options["max-file"]) == 200
    for published, port in zip(service["ports"], (PORT, FRAMES_PORT), strict=True):
        assert re.fullmatch(rf"127\.0\.0\.1:\d+:{port}", filled_in(published))
        told = filled_in(published, NPUCALL_LISTEN_HOST="10.0.0.5")
        assert re.fullmatch(rf"10\.0\.0\.5:\d+:{port}", told)


def test_what_a_stage_copies_is_there_and_not_ignored() -> None:
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    sources = [source for stage in STAGES for source in copied(stage)]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {f"!{source}" for source in sources} <= {*let_through}


def test_an_image_listens_where_it_says_and_asks_its_health_there() -> None:
    for stage in SERVERS:
        assert values(stage, "EXPOSE") == [PORT]
        assert environment(stage)["NPUCALL_LISTEN"] == f"0.0.0.0:{PORT}"
        health = environment(stage)["NPUCALL_HEALTH_LISTEN"]
        assert health.startswith("127.0.0.1:")
        assert health in values(stage, "HEALTHCHECK")[0]  # also where the server has TLS


def test_what_a_server_promises_to_take_fits_into_the_memory_of_its_service() -> None:
    """Which one variable sets for all eight of a host."""
    (limit,) = {one["mem_limit"] for one in read_services("deploy/compose.host8.yml").values()}
    assert (filled_in(limit), filled_in(limit, SERVER_MEMORY="24g")) == ("64g", "24g")
    for service in SERVICES.values():
        gibibytes = int(filled_in(service["mem_limit"]).removesuffix("g"))
        assert might_take(gibibytes * 2**30) <= gibibytes * 2**30
        # Threads of calls and of streams at the defaults, their readers, as many of the device's.
        assert service["pids_limit"] >= 4 * (64 + 8 + 64 + 8)


def might_take(memory: int) -> int:
    """At its peak, of which the default of memory_limit is half; and its file system in memory."""
    return memory // 2 * 3 // 2 + 256 * 2**20 + 256 * 2**20


def pinned_by(folder: Path, answer: str) -> subprocess.CompletedProcess[str]:
    """What ``deploy/pin`` says where this is what docker answers."""
    docker = folder / "docker"
    docker.write_text(f'#!/bin/sh\necho "{answer}"\n')
    docker.chmod(0o755)
    return run(str(ROOT / "deploy/pin"), env={"PATH": f"{folder}:/usr/bin:/bin"})


def test_the_base_images_are_pinned_by_what_docker_answers_alone(tmp_path: Path) -> None:
    digest = "sha256:" + "ab" * 32
    pinned = dict(line.split("=", 1) for line in pinned_by(tmp_path, digest).stdout.splitlines())
    assert pinned.keys() == {"PYTHON_IMAGE", "CANN_IMAGE"}
    assert pinned["PYTHON_IMAGE"] == f"python:3.11-slim@{digest}"
    assert pinned["CANN_IMAGE"].startswith("ascendai/cann:")
    for service in SERVICES.values():
        if "build" in service:
            assert set(service["build"]["args"]) == {*pinned, "PIP_INDEX_URL"}
    result = pinned_by(tmp_path, "")
    assert (result.returncode, result.stdout) == (1, "")
    assert "expected a digest of python:3.11-slim, found ''" in result.stderr
    (tmp_path / "alone").mkdir()
    for tool in "dirname", "sh":
        (tmp_path / "alone" / tool).symlink_to(shutil.which(tool) or "")
    result = run(str(ROOT / "deploy/pin"), env={"PATH": f"{tmp_path}/alone"})
    assert (result.returncode, "docker is not installed" in result.stderr) == (1, True)


def test_no_image_has_to_be_fetched_but_the_bases_which_can_be_given_with_a_digest() -> None:
    """``# syntax=`` is an image too, which a lab without a registry cannot have."""
    bases = [values(stage, "FROM")[0].split()[0] for stage in STAGES if stage]
    assert set(bases) - set(STAGES) == {"${PYTHON_IMAGE}", "${CANN_IMAGE}"}
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"^#\s*syntax\s*=", text, re.MULTILINE)
    sources = {value.split()[0] for stage in STAGES for value in values(stage, "COPY")}
    of_stages = {source.removeprefix("--from=") for source in sources if "--from" in source}
    assert of_stages <= set(STAGES)


def test_a_server_s_image_has_the_environment_of_its_stage_and_not_what_installed_it() -> None:
    for stage in SERVERS:
        assert f"--from={stage}-environment /opt/npucall /opt/npucall" in values(stage, "COPY")
        assert "pip uninstall --yes pip setuptools" in values(f"{stage}-environment", "RUN")[-1]


def test_a_service_of_a_pool_is_confined_as_that_of_one_server() -> None:
    one = SERVICES["docker-compose:cpu"]
    confined = {"read_only", "tmpfs", "cap_drop", "security_opt", "init", "pids_limit"}
    lasting = {"restart", "stop_grace_period", "logging"}
    timing = {"interval", "timeout", "start_period", "retries"}
    for service in POOL_SERVICES.values():
        assert {key: service.get(key) for key in confined} == {key: one[key] for key in confined}
        if "healthcheck" in service:  # which the test runner has not
            assert {key: service[key] for key in lasting} == {key: one[key] for key in lasting}
            check, usual = service["healthcheck"], one["healthcheck"]
            assert check["test"][:3] == usual["test"][:3]
            assert {key: check[key] for key in timing} == {key: usual[key] for key in timing}


def test_a_server_of_a_pool_is_announced_by_the_address_that_is_published() -> None:
    services = read_services("deploy/compose.directory.yml")
    servers = {name: one for name, one in services.items() if name != "directory"}
    for service in servers.values():
        advertised = service["environment"]["NPUCALL_ADVERTISE"]
        assert service["ports"][0] == f"{advertised}:{PORT}"
        assert service["environment"]["NPUCALL_ANNOUNCE"].endswith(":-directory:50050}")
    assert len({one["ports"][0] for one in servers.values()}) == 3


def test_a_service_can_neither_write_to_its_image_or_driver_nor_gain_rights() -> None:
    for service in SERVICES.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service  # the driver would take it for the host, and number so
    for service in NPU_SERVICES.values():
        *driver, _ = service["volumes"]
        assert all(mount["read_only"] for mount in driver)
        assert all(mount["source"] == mount["target"] for mount in driver)


def test_a_server_keeps_its_account_in_a_volume_of_its_own_that_its_user_may_write() -> None:
    for stage in SERVERS:
        (folder,) = values(stage, "VOLUME")
        assert environment(stage)["NPUCALL_STATE_FOLDER"] == folder
        made = f"install -d -o npucall -g npucall -m 0750 {folder}"
        assert any(made in line for line in values(stage, "RUN"))
    for file in (*COMPOSE_FILES, "deploy/compose.directory.yml"):
        named = YAML(typ="safe").load(ROOT / file)["volumes"]
        servers = [each for each in read_services(file).values() if "volumes" in each]
        kept = [each["volumes"][-1].partition(":") for each in servers]
        assert sorted(name for name, _, _ in kept) == sorted(named)
        assert {place for _, _, place in kept} == {folder}


@each("service", SERVICES_WITH_PORTS.values())
def test_a_server_tells_the_port_of_frames_that_is_published(service: Any) -> None:
    _, frames = service["ports"]
    environment = service["environment"]
    assert environment["NPUCALL_FRAMES_LISTEN"] == "+1000"
    assert int(FRAMES_PORT) == int(PORT) + 1000
    told = environment.get("NPUCALL_FRAMES_ADVERTISE", str(FRAMES_PORT))
    assert filled_in(frames) == f"127.0.0.1:{told}:{FRAMES_PORT}"


def test_each_of_eight_services_is_the_npu_service_with_a_device_and_a_port_of_its_own() -> None:
    its_own = {"devices", "ports", "profiles", "build", "environment", "volumes"}
    one, *eight = [
        {"driver": service["volumes"][:-1]}
        | {key: value for key, value in service.items() if key not in its_own}
        for service in NPU_SERVICES.values()
    ]
    assert eight == [one] * 8
    told, *of_eight = [service["environment"].copy() for service in NPU_SERVICES.values()]
    ports = [environment.pop("NPUCALL_FRAMES_ADVERTISE") for environment in (told, *of_eight)]
    assert ports == ["51052", *map(str, range(51051, 51059))]
    assert of_eight == [{**told, "NPUCALL_SERVERS_PER_HOST": "8"}] * 8
    of_eight = read_services("deploy/compose.host8.yml").values()
    assert [service["devices"][0] for service in of_eight] == [
        f"/dev/davinci{index}" for index in range(8)
    ]
    assert [filled_in(service["ports"][0]) for service in of_eight] == [
        f"127.0.0.1:{port}:{PORT}" for port in range(50051, 50059)
    ]
    assert {tuple(service["devices"][1:]) for service in NPU_SERVICES.values()} == {
        ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
    }


def image_command(folder: Path) -> list[str]:
    """What the image starts, with a stub for Python that tells what it was given."""
    stub = folder / "python"
    stub.write_text('#!/bin/sh\necho "$CANN $*"\n')
    stub.chmod(0o755)
    entry = json.loads(values("npu", "ENTRYPOINT")[0]) + json.loads(values("npu", "CMD")[0])
    return [word.replace("/opt/npucall/bin/python", str(stub)) for word in entry]


def test_the_npu_image_starts_the_server_with_cann_s_variables_or_says_what_is_missing(
    tmp_path: Path,
) -> None:
    given = {"CANN_SET_ENV": str(tmp_path / "set_env.sh")}
    assert run(*image_command(tmp_path), env=given).returncode == 69
    (tmp_path / "set_env.sh").write_text("export CANN=found\n")
    started = run(*image_command(tmp_path), env=given).stdout
    assert started.endswith("found -I -m npucall_server serve\n")


def check_python(version: str) -> subprocess.CompletedProcess[str]:
    check = values("npu-environment", "RUN")[0].replace("${PYTHON_VERSION}", version)
    return run("sh", "-c", check, env={"PATH": f"{TOOLS}:/usr/bin:/bin"})


def test_the_npu_image_is_built_on_the_python_of_the_wheels_and_on_no_other() -> None:
    assert check_python(f"{sys.version_info[0]}.{sys.version_info[1]}").returncode == 0
    result = check_python("3.5")
    assert (result.returncode, "not 3.5" in result.stderr) == (1, True)


def test_the_test_stage_builds_the_simulator_before_its_files_can_only_be_read() -> None:
    steps = [step.keyword + " " + step.value for step in STAGES["test"]]
    order = ["apt-get install", "COPY tests", "python -m tests.simulator.build", "USER "]
    places = [next(n for n, step in enumerate(steps) if text in step) for text in order]
    assert places == sorted(places)
    assert (ROOT / "tests/simulator/build.py").exists()
