"""The Helm chart: linted and rendered by helm, compared with the schemas of Kubernetes."""

import os
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.rows import each

from npucall_server.directory.settings import DirectorySettings
from npucall_server.settings.server import ServerSettings

from .rendering import CHART, ROOT, container, environment, helm, of_kind, pods, render, servers

pytestmark = pytest.mark.more

VALUES = ["values.yaml", *sorted(f"ci/{path.name}" for path in (CHART / "ci").iterdir())]
KUBERNETES = ["1.27", "1.33", "1.37"]
"""The oldest one that Chart.yaml allows, one in between, the newest one that has schemas here."""
DEFAULT, LAB = "values.yaml", "ci/lab.yaml"


def selects(selector: dict[str, str], pod: dict[str, Any]) -> bool:
    return selector.items() <= pod["metadata"]["labels"].items()


@each("values", VALUES)
def test_helm_finds_nothing_to_blame_and_no_name_twice(values: str) -> None:
    done = helm("lint", "--strict", str(CHART), f"--values={CHART / values}")
    assert done.returncode == 0, done.stdout
    names = [(one["kind"], one["metadata"]["name"]) for one in render(values)]
    assert len(set(names)) == len(names)


@each("version", KUBERNETES)
@each("values", VALUES)
def test_kubernetes_knows_every_field(values: str, version: str) -> None:
    resources = render(values)
    validate = pytest.importorskip("kubernetes_validate").validate
    known = [one for one in resources if one["kind"] != "ServiceMonitor"]
    for resource in known:
        validate(resource, version, strict=True)
    assert len(known) >= 4


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    (first, *_) = of_kind(deepcopy(render(DEFAULT)), "StatefulSet")
    kubernetes = pytest.importorskip("kubernetes_validate")
    container(first["spec"]["template"])["readinesProbe"] = {}
    with pytest.raises(kubernetes.ValidationError, match="readinesProbe"):
        kubernetes.validate(first, KUBERNETES[-1], strict=True)


@each("values", VALUES)
def test_every_variable_is_a_setting(values: str) -> None:
    rendered = render(values)
    directories = [one["spec"]["template"] for one in of_kind(rendered, "Deployment")]
    for prefix, chosen, settings in (
        ("NPUCALL_", servers(rendered), ServerSettings),
        ("NPUCALL_DIRECTORY_", directories, DirectorySettings),
    ):
        for pod in chosen:
            ours = {name for name in environment(pod) if name.startswith(prefix)}
            names = {name.removeprefix(prefix).lower() for name in ours}
            assert names <= settings.model_fields.keys()
            assert pod not in directories or ours == environment(pod).keys()


@each("values", ["values.yaml", "ci/cpu.yaml"])
def test_a_server_takes_the_settings_that_it_is_given(values: str) -> None:
    given = [environment(pod) for pod in servers(render(values))]
    for variables in given:
        result = subprocess.run(
            [sys.executable, "-m", "npucall_server", "settings"],
            env={"PATH": os.environ["PATH"], **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert f'device = "{variables["NPUCALL_DEVICE"]}"' in result.stdout


@each("values", VALUES)
def test_a_pod_can_drain_is_probed_where_it_answers_and_has_no_rights(values: str) -> None:
    """It can write to its memory and its own volume, and every mount has its volume."""
    for pod in servers(render(values)):
        drain = float(environment(pod)["NPUCALL_DRAIN_TIMEOUT"])
        assert pod["spec"]["terminationGracePeriodSeconds"] > drain
    for pod in pods(render(values)):
        spec, only = pod["spec"], container(pod)
        (listen,) = (
            value for name, value in environment(pod).items() if name.endswith("HEALTH_LISTEN")
        )
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert only[probe]["grpc"] == {"port": int(listen.rpartition(":")[2])}
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] > 0
        assert not spec["automountServiceAccountToken"]
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        mounts = only["volumeMounts"]
        written = {one["mountPath"] for one in mounts if not one.get("readOnly")}
        assert written <= {"/tmp", "/var/lib/npucall"}
        assert only["resources"]["limits"]["memory"]
        mounted = sorted(one["name"] for one in mounts if one["name"] != "state")  # see below
        assert mounted == sorted(one["name"] for one in spec["volumes"])


@each("values", VALUES)
def test_the_names_of_the_pool_resolve_to_pods_that_are_ready(values: str) -> None:
    rendered = render(values)
    services = {one["metadata"]["name"]: one["spec"] for one in of_kind(rendered, "Service")}
    for name in ("pool-npucall", *(one["metadata"]["name"] for one in _sets(rendered))):
        assert services[name]["clusterIP"] == "None"
        assert services[name]["publishNotReadyAddresses"] is False
    for pod in servers(rendered):
        assert selects(services["pool-npucall"]["selector"], pod)
    for one in _sets(rendered):
        assert one["spec"]["serviceName"] == one["metadata"]["name"]
        own = services[one["metadata"]["name"]]["selector"]
        assert [selects(own, pod) for pod in servers(rendered)].count(True) == 1
        assert selects(own, one["spec"]["template"])
        assert one["spec"]["selector"]["matchLabels"] == own
    for deployment in of_kind(rendered, "Deployment"):
        assert not selects(services["pool-npucall"]["selector"], deployment["spec"]["template"])


def _sets(rendered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return of_kind(rendered, "StatefulSet")


@each("values", VALUES)
def test_a_drain_of_nodes_takes_a_few_servers_of_a_class_at_a_time(values: str) -> None:
    rendered = render(values)
    budgets = of_kind(rendered, "PodDisruptionBudget")
    assert len(budgets) == len(_sets(rendered))
    for budget, one in zip(budgets, _sets(rendered), strict=True):
        assert budget["spec"]["selector"] == one["spec"]["selector"]


def test_a_class_has_one_device_of_its_own_kind_and_says_so_to_the_pool() -> None:
    npu, inference, cpu = (
        next(
            pod for pod in servers(render(LAB)) if pod["metadata"]["labels"]["npucall/class"] == of
        )
        for of in ("npu", "inference", "cpu")
    )
    assert container(npu)["resources"]["limits"] == {
        "huawei.com/Ascend910": 1,
        "memory": "64Gi",
    }
    assert container(inference)["resources"]["limits"]["huawei.com/Ascend310P"] == 1
    assert list(container(cpu)["resources"]["limits"]) == ["memory"]
    labels = [environment(pod)["NPUCALL_LABELS"] for pod in (npu, inference, cpu)]
    assert labels == ["kind=npu,rack=7", "kind=npu", "kind=cpu"]
    images = [container(pod)["image"] for pod in (npu, inference, cpu)]
    assert [image.partition(":")[2] for image in images] == ["npu", "npu-310p", "cpu"]


def test_servers_announce_names_that_their_certificate_can_have() -> None:
    for pod in servers(render(LAB)):
        own = pod["metadata"]["labels"]["npucall/class"]
        told = environment(pod)
        assert told["NPUCALL_ADVERTISE"] == f"$(POD_NAME).pool-npucall-{own}.lab.svc:50051"
        assert told["NPUCALL_ANNOUNCE"] == "pool-npucall-directory.lab.svc:50050"
        names = [one["name"] for one in container(pod)["env"]]
        assert names.index("POD_NAME") < names.index("NPUCALL_ADVERTISE")


def test_prometheus_is_told_of_each_server_once() -> None:
    rendered = render(LAB)
    (monitor,) = of_kind(rendered, "ServiceMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    spec = monitor["spec"]
    assert spec.keys() == {"selector", "namespaceSelector", "endpoints"}
    (endpoint,) = spec["endpoints"]
    assert endpoint.keys() == {"port", "path", "interval", "scheme", "tlsConfig"}
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "serverName": "pool-npucall.lab.svc",
        "ca": {"secret": {"name": "npucall-tls", "key": "ca.crt"}},
    }
    (needed,) = spec["selector"]["matchExpressions"]
    chosen = [
        service["spec"]
        for service in of_kind(rendered, "Service")
        if spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        and needed["key"] in service["metadata"]["labels"]
    ]
    for service in chosen:
        assert endpoint["port"] in [port["name"] for port in service["ports"]]
    for pod in servers(rendered):
        assert [selects(service["selector"], pod) for service in chosen].count(True) == 1


def test_prometheus_reads_without_tls_and_by_its_own_certificate() -> None:
    on = "--set=metrics.enabled=true,metrics.serviceMonitor.enabled=true"
    (plain,) = of_kind(render(DEFAULT, on), "ServiceMonitor")
    assert plain["spec"]["endpoints"][0].keys() == {"port", "path", "interval"}
    own = "--set=metrics.serviceMonitor.certificateSecretName=prometheus"
    (mutual,) = of_kind(render("ci/mtls.yaml", on, own), "ServiceMonitor")
    (endpoint,) = mutual["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["cert"] == {"secret": {"name": "prometheus", "key": "tls.crt"}}
    assert endpoint["tlsConfig"]["keySecret"] == {"name": "prometheus", "key": "tls.key"}


def test_servers_and_directory_may_reach_the_issuer_of_tokens() -> None:
    policies = of_kind(render(LAB), "NetworkPolicy")
    assert len(policies) == 2
    for policy in policies:
        ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        assert {53, 443} <= set(ports)
    closed = of_kind(render(DEFAULT, "--set=directory.enabled=true"), "NetworkPolicy")
    assert [policy["spec"]["egress"] for policy in closed if "directory" in str(policy)][-1] == []


def test_what_a_server_remembers_is_in_a_volume_of_its_own_or_nowhere() -> None:
    for size, kept in ("2Gi", 2), ("", 0):
        resources = render(DEFAULT, f"--set=state.size={size}", "--set=state.storageClassName=fast")
        sets = of_kind(resources, "StatefulSet")
        claims = [each for one in sets for each in one["spec"].get("volumeClaimTemplates", ())]
        assert len(claims) == kept
        assert all(one["spec"]["storageClassName"] == "fast" for one in claims)
        for pod in servers(resources):
            (folder,) = [
                each["mountPath"]
                for each in pod["spec"]["containers"][0]["volumeMounts"]
                if each["name"] == "state"
            ]
            assert f"NPUCALL_STATE_FOLDER={folder}" in (ROOT / "Dockerfile").read_text()
            own = [each["name"] for each in pod["spec"]["volumes"]]
            assert ("state" in own) is (not kept)


def test_a_pod_is_placed_as_the_values_say() -> None:
    fields = {
        "schedulerName": "volcano",
        "priorityClassName": "high",
        "runtimeClassName": "ascend",
        "hostNetwork": "true",
        "annotations.huawei\\.com/recover": "yes",
    }
    options = ",".join(f"classes.cpu.{name}={value}" for name, value in fields.items())
    (pod,) = servers(render(DEFAULT, "--set=classes.npu=null", f"--set={options}"))
    assert pod["metadata"]["annotations"] == {"huawei.com/recover": "yes"}
    spec = pod["spec"]
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("volcano", "high")
    assert (spec["runtimeClassName"], spec["hostNetwork"]) == ("ascend", True)
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_callers_outside_reach_each_server_at_an_address_of_its_own() -> None:
    options = "classes.npu=null,classes.cpu.replicas=2,classes.cpu.external.type="
    for kind, ports in (("LoadBalancer", ["grpc", "frames"]), ("NodePort", ["grpc"])):
        rendered = render(DEFAULT, f"--set={options}{kind}")
        outside = [one["spec"] for one in of_kind(rendered, "Service") if "type" in one["spec"]]
        assert [one["type"] for one in outside] == [kind, kind]
        assert [[port["name"] for port in one["ports"]] for one in outside] == [ports, ports]
        chosen = [one["selector"].pop("statefulset.kubernetes.io/pod-name") for one in outside]
        assert chosen == ["pool-npucall-cpu-0", "pool-npucall-cpu-1"]
        (pod,) = servers(rendered)
        assert all(selects(one["selector"], pod) for one in outside)


@each(
    ("options", "allowed"),
    [
        ([], "true"),
        (["--set=tls.secretName=x"], "true"),
        (["--set=tls.secretName=x,tls.clientCertificates=true"], "false"),
        (["--set=tls.secretName=x,access.tenantsSecretName=y"], "false"),
    ],
)
def test_only_a_server_that_proves_or_knows_nothing_is_told_to_listen_anyway(
    options: list[str], allowed: str
) -> None:
    for pod in servers(render(DEFAULT, *options)):
        assert environment(pod)["NPUCALL_INSECURE_BIND"] == allowed


@each(
    ("option", "blamed"),
    [
        ("classes.cpu.replicas=two", "replicas"),
        ("clases.cpu.replicas=2", "clases"),
        ("classes.npu.resourceName=", "resourceName"),
        ("classes.gpu.kind=gpu", "kind"),
        ("classes.cpu.labels.kind=mine", "kind"),
        ("classes.cpu.env.PATH=/", "PATH"),
        ("access.tokensSecretName=x", "tenantsSecretName"),
        ("tls.clientCertificates=true", "secretName"),
        ("access.tenantsSecretName=x", "expected tls.secretName beside it"),
        (
            "access.tenantsSecretName=x,tls.secretName=y,directory.enabled=true",
            "directory.announceTokenSecretName: expected a Secret",
        ),
        ("classes.cpu.external.type=Ingress", "external"),
    ],
)
def test_values_that_cannot_be_are_refused(option: str, blamed: str) -> None:
    done = helm("template", "pool", str(CHART), f"--set={option}")
    assert done.returncode != 0
    assert blamed in done.stderr


def test_the_notes_say_what_to_connect_to(tmp_path: Path) -> None:
    """Without a cluster helm shows no notes: here they are a resource."""
    chart = shutil.copytree(CHART, tmp_path / "npucall")
    notes = (chart / "templates/NOTES.txt").read_text()
    resource = 'kind: Notes\ntext: {{ include "notes" . | toJson }}\n'
    text = '{{- define "notes" }}' + notes + "{{ end }}\n" + resource
    (chart / "templates/shown.yaml").write_text(text)
    done = helm("template", "pool", str(chart), "--namespace=lab", "--set=directory.enabled=true")
    assert done.returncode == 0, done.stderr
    (shown,) = (
        one["text"]
        for one in YAML(typ="safe").load_all(done.stdout)
        if one and one["kind"] == "Notes"
    )
    for target in (
        "pool:dns:pool-npucall.lab.svc:50051",
        "pool:dns:pool-npucall-npu.lab.svc:50051",
        "pool:directory:pool-npucall-directory.lab.svc:50050",
    ):
        assert target in shown
