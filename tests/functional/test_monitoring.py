# SPDX-License-Identifier: Apache-2.0

"""The rules and the dashboard in ``etc``: tested by promtool, every query in a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest

from tests.browser.site import Site, served
from tests.functional.api.conftest import TOPOLOGY
from tests.servers.process import Port, Process
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
RULES = ROOT / "etc" / "prometheus" / "laas.rules.yml"
DASHBOARD = ROOT / "etc" / "grafana" / "laas.json"
VARIABLES = {"$__rate_interval": "1m", "$fabric": ".*"}
"""What Grafana would put in."""

SILENT_HERE = (
    "laas_agent_silent_seconds",
    "laas_allocations_held",
    "laas_ports_with_errors",
    "laas_allocation_data_bytes_total",
    "laas_fabric_compared_seconds",
    "laas_shared_links_promised",
    "laas_shared_links_measured",
)
"""Metrics without a series in a service without agent, counters, worker and shared hosts."""


def queries():
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


def filled_in(query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def promtool(*words):
    return subprocess.run(
        ["promtool", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_the_rules_are_valid():
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_fault_fires_its_alert_and_no_other():
    checked = promtool("test", "rules", ROOT / "tests" / "functional" / "monitoring" / "rules.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_is_tested():
    named = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    tested = (ROOT / "tests" / "functional" / "monitoring" / "rules.yml").read_text()
    assert named == set(re.findall(r"alertname: (\w+)", tested))
    assert named == set(re.findall(r'alertname="(\w+)"', tested))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """A Prometheus that scrapes a service with tenants; its address."""
    assert shutil.which("prometheus"), "install prometheus (bindep.txt)"
    directory = tmp_path_factory.mktemp("prometheus")
    site = Site(directory, TOPOLOGY)
    site.allocate("blue", 9)
    site.allocate("too-large", 40)
    with served(site) as url:
        port = Port()
        config = directory / "prometheus.yml"
        target = url.removeprefix("http://")
        config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{RULES}]\n"
            "scrape_configs:\n"
            f"  - {{job_name: laas, static_configs: [{{targets: ['{target}']}}]}}\n"
        )
        words = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port.number}",
        ]
        process = Process(words, directory / "prometheus.log", os.environ)
        try:
            process.wait_until(
                lambda: asked(port.url, "count_over_time(laas_store_up[1m]) > 3"),
                "Prometheus has not scraped the service",
            )
            yield port.url
        finally:
            process.stop()
            port.close()


def asked(address, query):
    """The result of a query; () while Prometheus is starting."""
    encoded = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{encoded}", timeout=60) as answer:
            document = json.load(answer)
    except URLError:
        return ()
    assert document["status"] == "success"
    return document["data"]["result"]


@pytest.mark.parametrize("query", queries())
def test_every_query_of_the_dashboard_has_an_answer(prometheus, query):
    answer = asked(prometheus, filled_in(query))
    if any(name in query for name in SILENT_HERE):
        assert answer == []
    else:
        assert answer != (), f"Prometheus refused {query}"
        assert answer or "$__rate_interval" in query, query  # no growth between two scrapes


def test_every_metric_is_one_that_the_service_exports(tmp_path):
    """A renamed metric would leave an empty panel or an alert that cannot fire."""
    texts = RULES.read_text() + DASHBOARD.read_text()
    named = set(re.findall(r"\b(laas_[a-z_]+)\b", texts))
    exported = Site(tmp_path, TOPOLOGY).client.get("/metrics").text
    known = set(re.findall(r"^# TYPE (laas_\w+) ", exported, re.MULTILINE))
    known |= {f"{name}_bucket" for name in known}
    assert named <= known


def test_the_recorded_rules_give_values(prometheus):
    eventually(
        lambda: asked(prometheus, "laas:hosts_utilization:ratio"), "the first rule is evaluated"
    )
    (sample,) = asked(prometheus, "laas:hosts_utilization:ratio")
    assert sample["metric"]["fabric"] == "main"
    assert float(sample["value"][1]) == 9 / 32
