"""Pods of the rendered chart as containers: with their environment, user, Secrets and names."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.chart.rendering import container, of_kind, render, servers

from .engines import CLIENT, TOOLS, Podman

pytestmark = [pytest.mark.containers, pytest.mark.long]
LAB = "ci/lab.yaml"
SET, DIRECTORY, EVERY = (f"pool-npucall{each}.lab.svc" for each in ("-cpu", "-directory", ""))
NAMES = [f"pool-npucall-cpu-0.{SET}", DIRECTORY, EVERY]
TENANTS = """
token_hashes = "../npucall-tokens/tokens"
[tenants.vision]
[tenants.servers]
role = "server"
hosts = ["*.lab.svc"]
"""
METRICS = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[2])
print(urllib.request.urlopen(sys.argv[1], context=context).read().decode())
"""


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each Secret, made as the page says, with mode and group of the pod's volume."""
    folder = tmp_path_factory.mktemp("secrets")
    for name in "tls", "tenants", "tokens", "announce":
        (folder / f"npucall-{name}").mkdir()
    (folder / "npucall-tenants/server.toml").write_text(TENANTS)
    new = "token", "new", "--config=npucall-tenants/server.toml"
    for words in (
        ("certificates", "made", "--host", EVERY, DIRECTORY, f"*.{SET}"),
        (*new, "--tenant=servers", "--name=servers", "--out=npucall-announce/token"),
        (*new, "--tenant=vision", "--name=alice", "--out=alice.token"),
    ):
        subprocess.run([TOOLS / "npucall-server", *words], cwd=folder, check=True)
    for made, name in (
        ("ca.pem", "ca.crt"),
        (f"{EVERY}.pem", "tls.crt"),
        (f"{EVERY}.key", "tls.key"),
    ):
        shutil.move(folder / "made" / made, folder / "npucall-tls" / name)
    subprocess.run(["chgrp", "-R", "10001", folder], check=True)
    subprocess.run(["chmod", "-R", "u=rwX,g=rX,o=", folder], check=True)
    return folder


def options(pod: dict[str, Any], name: str, secrets: Path) -> Iterator[str]:
    """What Kubernetes makes of a pod, as podman is told."""
    security, only = pod["spec"]["securityContext"], container(pod)
    yield f"--user={security['runAsUser']}:{security['runAsGroup']}"
    found: dict[str, str] = {}
    for one in only["env"]:
        value = one.get("value", name)
        found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
    yield from (f"--env={name}={value}" for name, value in found.items())
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    for mount in only["volumeMounts"]:
        if secret := volumes.get(mount["name"], {}).get("secret"):
            yield f"--volume={secrets / secret['secretName']}:{mount['mountPath']}:ro"
    if command := only.get("command"):
        yield f"--entrypoint={json.dumps(command)}"


@pytest.fixture(scope="module")
def pool(podman: Podman, cpu_image: str, network: str, secrets: Path) -> Iterator[list[str]]:
    """Directory and server, once their probes are answered; the names of their containers."""
    rendered = render(LAB)
    (directory,) = (each["spec"]["template"] for each in of_kind(rendered, "Deployment"))
    server = next(pod for pod in servers(rendered) if "cpu" in str(pod["metadata"]["labels"]))
    with ExitStack() as stack:
        names = []
        for pod, known in (directory, [DIRECTORY]), (server, [NAMES[0], EVERY]):
            told = [f"--network-alias={alias}" for alias in known]
            own = options(pod, known[0].partition(".")[0], secrets)
            made = podman.container(cpu_image, f"--network={network}", *told, *own)
            names.append(stack.enter_context(made))
            podman.wait_serving(names[-1], container(pod)["readinessProbe"]["grpc"]["port"])
        yield names


def client(podman: Podman, network: str, secrets: Path, *command: str) -> str:
    """What a caller in the cluster is told who has a token."""
    given = {
        "TARGET": f"pool:directory:{DIRECTORY}:50050",
        "CA": "/secrets/npucall-tls/ca.crt",
        "TOKEN_FILE": "/secrets/alice.token",
    }
    variables = [f"--env=NPUCALL_{name}={value}" for name, value in given.items()]
    mounted = f"--volume={secrets}:/secrets:ro"
    where = f"--network={network}", mounted, f"--entrypoint=/opt/npucall/bin/{command[0]}"
    return podman("run", "--rm", "--user=0", *where, *variables, CLIENT, *command[1:])


def test_callers_with_a_token_find_the_servers_of_the_chart_by_its_directory(
    podman: Podman, client_image: str, network: str, secrets: Path, pool: list[str]
) -> None:
    assert f"{NAMES[0]}:50051" in client(podman, network, secrets, "npucall", "members", "--json")
    call = "run", "Exp", "self=[0,0]"
    assert client(podman, network, secrets, "npucall", *call) == "out = [1., 1.]\n"


def test_prometheus_reads_them_as_the_service_monitor_says(
    podman: Podman, client_image: str, network: str, secrets: Path, pool: list[str]
) -> None:
    (monitor,) = of_kind(render(LAB), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    authority = endpoint["tlsConfig"]["ca"]["secret"]
    url = f"{endpoint['scheme']}://{endpoint['tlsConfig']['serverName']}:9464{endpoint['path']}"
    file = f"/secrets/{authority['name']}/{authority['key']}"
    assert "npucall_" in client(podman, network, secrets, "python", "-c", METRICS, url, file)
