"""The files in deploy/: exported metrics, valid settings, and enough time to stop.

`make deploy` validates the files by the schemas of Kubernetes and Compose, and by promtool.
"""

import ast
import json
import re
from collections import defaultdict
from functools import cache

import pytest
import yaml

from refold.gateway import Config, Upstream
from refold.gateway.app import Gateway
from refold.gateway.config import parse_config
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.settings import Limits
from refold.stores import MemoryStore
from tests.support.pages import ROOT
from tests.support.sources import syntax_trees

DEPLOY = ROOT / "deploy"
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes/refold.yaml").read_text()))
CALL = re.compile(r"(refold_\w+)(?:\{([^}]*)\})?")
COUNTED = set(json.loads((ROOT / "tests/contract.json").read_text())["metrics"])


def manifest(kind):
    return next(each for each in MANIFESTS if each["kind"] == kind)


@cache
def list_exported() -> dict[str, set[str]]:
    """Return the labels of every metric that /metrics can export, by its full name."""
    labels, of_variables = defaultdict(set), set()
    gateway = [tree for path, tree in syntax_trees().items() if "gateway" in path.parts]
    for tree in gateway:
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            if not ast.unparse(call.func).endswith(("add", "observe", "count")):
                continue
            name = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
            if name in COUNTED:
                labels[name].update(each.arg for each in call.keywords)
            elif name is None and "counters" in ast.unparse(
                call.func
            ):  # the metric's name is a variable
                of_variables.update(each.arg for each in call.keywords)
    timed = {name for name in COUNTED if name.endswith("_seconds")}
    parts = {f"refold_{name}_bucket": labels[name] | {"le"} for name in timed}
    parts |= {f"refold_{name}_total": labels.get(name, of_variables) for name in COUNTED - timed}
    config = Config(upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),))
    gauges = Gateway(config, Pipeline(config.settings, MemoryStore())).read_metrics()
    return {**parts, **{f"refold_{name}": set() for kind, name, _ in gauges if kind == "gauge"}}


def expressions():
    """Yield every query with its file."""
    dashboard = json.loads((DEPLOY / "grafana/refold.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"], ""
    adapter = yaml.safe_load((DEPLOY / "kubernetes/adapter.values.yml").read_text())
    for rule in adapter["rules"]["custom"]:
        yield rule["seriesQuery"], ""
    for metric in manifest("HorizontalPodAutoscaler")["spec"]["metrics"]:
        if metric["type"] == "Pods":
            yield metric["pods"]["metric"]["name"], ""


def test_metrics_used_by_alerts_are_exported_as_0_before_the_first_failure():
    """`rate` sees no increase in a series that begins with the failure."""
    config = Config(upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),))
    text = Gateway(config, Pipeline(config.settings, MemoryStore())).render_metrics().decode()
    for name in (
        'refold_failures_total{reason="store"}',
        'refold_failures_total{reason="deadline"}',
        'refold_http_refused_total{reason="busy"}',
        'refold_context_errors_total{api="anthropic",result="given_up",upstream="up"}',
        'refold_ledger_failures_total{doing="write"}',
        "refold_ledger_lost_total",
    ):
        assert f"\n{name} 0\n" in text


def test_the_store_alert_also_covers_a_database_that_hangs():
    (alert,) = [e for e, _ in expressions() if "> 0 or " in e and "failures_total{reason=" in e]
    assert 'reason="store"' in alert and 'reason="resting"' in alert


def test_nginx_passes_headers_with_underscores_and_bodies_of_any_size():
    """nginx drops headers with an underscore, and refuses uploads that the gateway takes."""
    text = (DEPLOY / "nginx.conf").read_text()
    assert "underscores_in_headers on;" in text and "client_max_body_size 0;" in text


def test_load_balancers_set_x_forwarded_for():
    """With HAProxy in front of a gateway without a token, `Host: localhost` opened the admin API to
    everybody."""
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in (DEPLOY / "nginx.conf").read_text()
    text = (DEPLOY / "haproxy.cfg").read_text()
    assert "\n    option forwardfor" in text
    assert "http-request deny if !own { path_beg -i /refold /metrics }" in text


def test_core_dumps_are_disabled():
    assert "\nLimitCORE=0\n" in (DEPLOY / "refold.service").read_text()
    for path in (ROOT / "compose.yaml", DEPLOY / "compose.yaml"):
        gateway = yaml.safe_load(path.read_text())["services"]["gateway"]
        assert gateway["ulimits"] == {"core": 0}


def test_every_metric_and_label_used_in_an_expression_is_exported():
    names, asked = list_exported(), list(expressions())
    of_prometheus = {"instance", "namespace", "pod"}
    for expression, legend in asked:
        used = CALL.findall(expression)
        assert used, expression
        # Adding an empty vector gives an empty one, so an alert that adds them never fires.
        assert not re.search(r"\)\s*\+\s*sum", expression), expression
        labels = {label for name, _ in used for label in names.get(name, ())} | of_prometheus
        for name, matchers in used:
            assert name in names, f"{name} in {expression}"
            assert set(re.findall(r"(\w+)!?[=~]", matchers)) <= names[name] | of_prometheus
        grouped = " ".join(re.findall(r"by \(([^)]*)\)", expression))
        assert set(re.findall(r"\w+", grouped)) <= labels, expression
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels, legend
    assert len(asked) > 20


def test_a_metric_that_does_not_exist_is_not_listed_as_exported():
    assert "refold_http_requests_total" in list_exported()
    assert "refold_requests_in_progress" not in list_exported()
    assert list_exported()["refold_prepare_seconds_bucket"] >= {"api", "le"}


def test_refold_toml_and_the_config_map_hold_the_same_valid_settings():
    mapped = manifest("ConfigMap")["data"]["refold.toml"]
    environment = {"REFOLD_ADMIN_TOKEN": "x" * 16}
    ours = parse_config((DEPLOY / "refold.toml").read_text(), environment=environment)
    assert ours == parse_config(mapped, environment=environment)
    assert ours.check_servable().retention == "90d"


def test_the_stop_grace_period_is_longer_than_that_of_streams():
    pod = manifest("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= Limits().grace_seconds + pause
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    grace = compose["services"]["gateway"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > Limits().grace_seconds


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probe_paths_exist_in_the_gateway(probe):
    (container,) = manifest("Deployment")["spec"]["template"]["spec"]["containers"]
    answered = (ROOT / "src/refold/gateway/app.py").read_text()
    assert f'"{container[probe]["httpGet"]["path"]}"' in answered


def test_the_files_that_compose_mounts_exist():
    for service in yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values():
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (DEPLOY / volume.split(":")[0]).is_file(), volume
