"""contrib/deploy: each file passes the tool that reads it, and uses what the server really has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pyworkers.config.fields import ServerConfig
from tests.helpers.endpoint import Endpoint
from tests.helpers.records import job
from tests.helpers.server_process import serving
from tests.helpers.support import ROOT, wait_for

DEPLOY = ROOT / "contrib/deploy"
UNIT = DEPLOY / "systemd/pyworkers.service"
DOCKERFILE = (DEPLOY / "container/Dockerfile").read_text()
COMPOSE = DEPLOY / "container/compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"
SHUTDOWN_S = ServerConfig().shutdown_timeout
PROGRAMS = Path(sys.executable).parent


def run(*command: object) -> str:
    """The output of a program that succeeds."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def documents(path: Path) -> list[dict[str, Any]]:
    """The YAML documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))


# --- systemd ------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a program that is here."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/srv/shop/.venv/bin/pyworkers", str(PROGRAMS / "pyworkers")))
    return path


def test_systemd_reads_the_unit(unit: Path) -> None:
    assert run("systemd-analyze", "verify", unit) == ""


def test_the_unit_is_hardened(unit: Path) -> None:
    found = re.search(
        r"exposure level .*: ([0-9.]+)", run("systemd-analyze", "security", "--offline=true", unit)
    )
    assert found
    assert float(found[1]) < 2.5


def test_the_unit_waits_for_the_jobs() -> None:
    text = UNIT.read_text()
    for line in ("Type=notify", "KillMode=mixed", "WatchdogSec=30", "ExecReload=/bin/kill -USR2 $MAINPID"):
        assert f"\n{line}\n" in text
    stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert stop
    assert float(stop[1]) == SHUTDOWN_S + 15


# --- containers ---------------------------------------------------------------------------------------------


def test_the_image_is_not_of_root_and_gets_its_signals() -> None:
    stage = DOCKERFILE.rpartition("FROM ")[2]
    [user] = re.findall(r"^USER (\d+):\d+$", stage, re.MULTILINE)
    assert int(user) > 999
    forms = dict(re.findall(r"^(ENTRYPOINT|CMD) (.*)$", stage, re.MULTILINE))
    assert json.loads(forms["ENTRYPOINT"]) == ["pyworkers"]
    assert json.loads(forms["CMD"])[0] == "run"
    assert "pip install" not in stage
    assert ":latest" not in DOCKERFILE


def test_the_health_check_of_the_image(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    [health] = re.findall(r"^\s+CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    endpoint = Endpoint()
    code = json.loads(health)[2].replace("127.0.0.1:7433", endpoint.bind)

    def status() -> int:
        return subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL).returncode

    with serving(tmp_path, one_redis_url, namespace, APP, **endpoint.environment) as server:
        assert status() == 0
        assert server.stop() == 0
        assert status() == 1


def test_the_compose_file_has_the_schema() -> None:
    run(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    [services] = [document["services"] for document in documents(COMPOSE)]
    assert services["jobs"]["stop_grace_period"] == f"{SHUTDOWN_S + 15:g}s"
    assert services["jobs"]["environment"]["PYWORKERS_SERVER__SHUTDOWN_TIMEOUT"] == f"{SHUTDOWN_S:g}"
    assert "noeviction" in services["redis"]["command"]


def test_the_workflows_have_the_schema() -> None:
    paths = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert paths
    run(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *paths)


# --- Kubernetes ---------------------------------------------------------------------------------------------


def test_the_manifests_have_the_schemas() -> None:
    names = ("deployment.yaml", "hpa.yaml", "networkpolicy.yaml")
    output = run(PROGRAMS / "kubernetes-validate", "--strict", *(KUBERNETES / name for name in names))
    assert output.count(" passed ") == 5


def test_the_deployment_waits_for_the_jobs(tmp_path: Path) -> None:
    config, deployment, _ = documents(KUBERNETES / "deployment.yaml")
    path = tmp_path / "workers.toml"
    path.write_text(config["data"]["workers.toml"])
    shown = tomllib.loads(run(PROGRAMS / "pyworkers", "config", "show", "--config", path))
    timeout_s = shown["server"]["shutdown_timeout"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == timeout_s + 15
    [container] = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    port = shown["http"]["bind"].rpartition(":")[2]
    assert [str(one["containerPort"]) for one in container["ports"]] == [port]
    assert deployment["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == port


def test_what_scales_is_the_deployment() -> None:
    names = {documents(KUBERNETES / "deployment.yaml")[1]["metadata"]["name"]}
    for name in ("hpa.yaml", "keda.yaml"):
        [found] = documents(KUBERNETES / name)
        names.add(found["spec"]["scaleTargetRef"]["name"])
    assert names == {"shop-jobs"}


# --- queries ------------------------------------------------------------------------------------------------

APP = """
@worker.job(queue="mail", retry=False)
def send(fails):
    if fails:
        raise LookupError
"""
# What Prometheus adds to each series of a target.
OF_THE_TARGET = {"instance", "job"}


def queries() -> dict[str, str]:
    """Every query of rules, dashboard and scaling, by its place."""
    [rules] = documents(DEPLOY / "prometheus/rules.yaml")
    found = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    board = json.loads((DEPLOY / "grafana/pyworkers.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    found |= {one["name"]: one["query"] for one in board["templating"]["list"] if one["type"] == "query"}
    [keda] = documents(KUBERNETES / "keda.yaml")
    found["keda"] = keda["spec"]["triggers"][0]["metadata"]["query"]
    [adapter] = documents(KUBERNETES / "adapter-values.yaml")
    rule = adapter["rules"]["external"][0]
    found["adapter"] = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'queue="mail"')
    [hpa] = documents(KUBERNETES / "hpa.yaml")
    metric = hpa["spec"]["metrics"][0]["external"]["metric"]
    assert metric["name"] == rule["name"]["as"]
    found["hpa"] = f'{metric["name"]}{{{",".join(metric["selector"]["matchLabels"])}="x"}}'
    return found


def used(query: str) -> tuple[set[str], set[str]]:
    """The metrics and the labels that a query names."""
    labels = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"", query)) - {"__name__"}
    for names in re.findall(r"\bby \(([^)]*)\)", query):
        labels |= {name.strip() for name in names.split(",")}
    labels |= set(re.findall(r"label_values\([a-z_]+, ([a-z_]+)\)", query))
    return set(re.findall(r"\bpyworkers_[a-z_]+", query)), labels


def test_a_query_is_read() -> None:
    assert used('sum by (a, le) (rate(pyworkers_x_total{b=~"$b",c="d"}[5m]))') == (
        {"pyworkers_x_total"},
        {"a", "le", "b", "c"},
    )


def test_every_query_names_metrics_and_labels_of_a_real_server(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    endpoint = Endpoint()
    with serving(tmp_path, one_redis_url, namespace, APP, **endpoint.environment) as server:
        server.push("mail", job("a", "send", 0), job("b", "send", 1), job("c", "send", 0, expiry=1))
        wait_for(lambda: endpoint.number('pyworkers_jobs_expired_total{job_class="send"}') == 1)
        wait_for(lambda: endpoint.number('pyworkers_jobs_processed_total{job_class="send"}') == 2)
        # Read from Redis with the heartbeat, which need not have come yet.
        wait_for(lambda: "pyworkers_queue_latency_seconds{" in endpoint.get("/metrics")[1])
        text = endpoint.get("/metrics")[1]
    known: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            known.setdefault(sample.name, set()).update(sample.labels)
    for place, query in queries().items():
        metrics, labels = used(query)
        assert metrics, place
        assert metrics <= known.keys(), place
        for metric in metrics:
            assert labels <= known[metric] | OF_THE_TARGET, (place, metric)


def test_the_commands_of_the_alarms_exist() -> None:
    text = (DEPLOY / "prometheus/rules.yaml").read_text()
    found = [words.split() for words in re.findall(r"`pyworkers ([^`]*)`", text)]
    assert found
    for words in found:
        run(PROGRAMS / "pyworkers", *words[: 2 if words[0] == "dead" else 1], "--help")


# --- the page -----------------------------------------------------------------------------------------------

PAGE = (ROOT / "contrib/docs/deployment.md").read_text()


def test_the_configuration_of_the_page_is_valid(tmp_path: Path) -> None:
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "workers.toml"
    path.write_text(text)
    shown = tomllib.loads(run(PROGRAMS / "pyworkers", "config", "show", "--config", path))
    assert shown["server"]["max_memory_mb"] == 500


def test_the_page_names_every_alarm_and_every_file() -> None:
    [rules] = documents(DEPLOY / "prometheus/rules.yaml")
    alarms = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert set(re.findall(r"^\| (Pyworkers\w+) \|", PAGE, re.MULTILINE)) == alarms
    names = {path.name for path in DEPLOY.rglob("*") if path.is_file()} - {"dockerignore"}
    assert {name for name in names if name not in PAGE} == set()
