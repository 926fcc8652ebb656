"""Dashboard and alert rules ask for what the server shows, and Prometheus understands them."""

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server
from npucall_server.metrics.declared import METRICS, Metric

from . import wire

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
RULES = [
    rule
    for group in YAML(typ="safe").load(DEPLOY / "alerts.yml")["groups"]
    for rule in group["rules"]
]
BY_SERIES = {series: metric for metric in METRICS for series in metric.series}
OF_THE_PROCESS = {
    "process_cpu_seconds_total", "process_open_fds", "process_resident_memory_bytes",
    "process_start_time_seconds",
}  # fmt: skip
OF_AN_NPU = {
    "npucall_device_memory_bytes", "npucall_device_utilization_ratio", "npucall_device_healthy",
}  # fmt: skip
OF_A_DIRECTORY = {
    "npucall_directory_members", "npucall_directory_watchers", "npucall_directory_beats_total",
}  # fmt: skip
OF_PROMETHEUS = {"job", "instance", "le"}
PATIENCE = 60.0
VARIABLES = {"$__rate_interval": "10s", "$job": ".*", "$instance": ".*"}


def queries() -> dict[str, str]:
    """Every expression by where it stands."""
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    }
    return panels | {rule["alert"]: rule["expr"] for rule in RULES}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:npucall|process)_\w+", expression)) - {"npucall_"}


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """Each metric with a label that it is asked for by, of selectors in braces."""
    for name, selector in re.findall(r"\b((?:npucall|process)_\w+)\{(.*?)\}", expression):
        for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector):
            yield name, label


def command(name: str) -> str:
    """A program of Prometheus. Without it a test is skipped, in CI it fails."""
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not installed: apt-get install prometheus"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return str(found)


def test_every_metric_and_label_that_is_asked_for_is_declared() -> None:
    wrong = []
    for place, expression in queries().items():
        asked = metrics_in(expression)
        assert asked or "up{" in expression, place
        wrong += [(place, name) for name in asked - {*BY_SERIES, *OF_THE_PROCESS}]
        for name, label in labels_in(expression):
            if label not in {*OF_PROMETHEUS, *_labels(BY_SERIES.get(name))}:
                wrong.append((place, f"{name}{{{label}}}"))
        declared = {label for name in asked for label in _labels(BY_SERIES.get(name))}
        for grouped in re.findall(r"by \((.*?)\)", expression):
            labels = {label.strip() for label in grouped.split(",")}
            wrong += [(place, label) for label in labels - declared - OF_PROMETHEUS]
    assert wrong == []


def _labels(metric: Metric | None) -> tuple[str, ...]:
    return metric.labels if metric else ()


def test_every_declared_metric_is_on_the_dashboard() -> None:
    shown = {
        BY_SERIES[name] for each in queries().values() for name in metrics_in(each) & set(BY_SERIES)
    }
    assert shown == set(METRICS)


def test_reasons_that_are_asked_for_are_reasons_of_errors() -> None:
    def reasons(error: type[NpucallError]) -> set[str]:
        return {error.reason}.union(*map(reasons, error.__subclasses__()))

    texts = " ".join(queries().values())
    asked = {each for found in re.findall(r'reason=~?"(.*?)"', texts) for each in found.split("|")}
    assert asked
    assert asked <= {*reasons(NpucallError), "OK"}


@pytest.mark.more
def test_promtool_accepts_the_alert_rules_and_the_expressions_of_the_dashboard(
    tmp_path: Path,
) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": _filled(expression)}
        for number, expression in enumerate(queries().values())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    for path in DEPLOY / "alerts.yml", file:
        program = [command("promtool"), "check", "rules", str(path)]
        checked = subprocess.run(program, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        count = len(RULES) if path != file else len(rules)
        assert f"{count} rules found" in checked.stdout


@pytest.mark.more
def test_a_real_prometheus_answers_every_query_of_the_dashboard(tmp_path: Path) -> None:
    program, x = command("prometheus"), np.ones(1000, np.float32)
    with running_server("--metrics-listen", "127.0.0.1:0") as server:
        (line,) = [
            line for line in map(json.loads, server.log.read_text().splitlines())
            if line["event"] == "serving"
        ]  # fmt: skip
        with (
            _prometheus(program, line["metrics"], tmp_path) as address,
            npucall_client.connect(server.target) as client,
        ):
            missing = dict.fromkeys(
                place for place, each in queries().items()
                if not metrics_in(each) & (OF_AN_NPU | OF_A_DIRECTORY)
                and place not in {r["alert"] for r in RULES}
            )  # fmt: skip

            def answered() -> bool:
                """After some more calls, of which one is refused."""
                for _ in range(5):
                    client.run(l1_loss_backward, x, x, x)
                with pytest.raises(NpucallError):
                    client.run(l1_loss_backward, x, x, x[:7])
                for place in tuple(missing):
                    if _data(address, queries()[place]):
                        del missing[place]
                return not missing

            wire.until(answered, "Prometheus answers", PATIENCE)
            firing = json.load(_get(address, "/api/v1/rules"))["data"]["groups"][0]["rules"]
            assert {rule["health"] for rule in firing} <= {"ok", "unknown"}
            assert {rule["name"] for rule in firing} == {rule["alert"] for rule in RULES}


def _filled(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


@contextmanager
def _prometheus(program: str, target: str, folder: Path) -> Iterator[str]:
    """A Prometheus that scrapes a target each second; its address."""
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(DEPLOY / "alerts.yml")],
                "scrape_configs": [
                    {"job_name": "npucall", "static_configs": [{"targets": [target]}]}
                ],
            }
        )
    )
    address = wire.free_address()
    flags = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, *flags, f"--web.listen-address={address}"], stderr=log, stdout=log
        )
    try:
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _get(address: str, path: str) -> Any:
    return urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE)


def _data(address: str, expression: str) -> bool:
    """Whether Prometheus has an answer; not while it starts."""
    query = urllib.parse.urlencode({"query": _filled(expression)})
    try:
        answer = json.load(_get(address, f"/api/v1/query?{query}"))
    except OSError:
        return False
    assert answer["status"] == "success"
    return any(not str(each["value"][1]).startswith("NaN") for each in answer["data"]["result"])
