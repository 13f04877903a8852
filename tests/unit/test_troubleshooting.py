# SPDX-License-Identifier: Apache-2.0

"""Each code, state and alarm that an operator can see has an anchor on one page."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from werkzeug.exceptions import HTTPException

import laas_service.api
from laas_service.adapters.fabric_import.refusal import ImportRefusal
from laas_service.api.errors import of_http
from laas_service.app.lifecycle import State
from laas_service.app.records import Drift
from laas_service.client.rest import Refused
from laas_service.domain.allocation import Refusal
from laas_service.domain.compute_hosts import Cause
from laas_service.domain.errors import LaasError
from laas_service.messages import Condition

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "doc/source/admin/troubleshooting.rst"
CODE = re.compile(r"problem\(\s*[0-9]{3}, \"([a-z_]+)\"")
ALARM = re.compile(r"- alert: (\w+)")


def anchor(text: str) -> str:
    """The part of an address behind ``#`` that docutils gives to a target."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def anchors() -> set[str]:
    return {anchor(target) for target in re.findall(r"(?<!\w)_`([^`]+)`", PAGE.read_text())}


def exceptions(kind: type[Any]) -> set[type[Any]]:
    return {kind}.union(*map(exceptions, kind.__subclasses__()))


def modules(package):
    """All modules of a package; importing them declares their exceptions."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(one.name) for one in found]


def codes_of_problems() -> set[str]:
    """Of the service's exceptions, of the layer of HTTP, and those that the code spells out."""
    found = set()
    for module in modules(laas_service.api):
        found |= set(CODE.findall(Path(module.__file__).read_text()))
        found |= {
            of_http(one()).code
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, HTTPException) and one.code
        }
    known = exceptions(LaasError) | exceptions(Refused)
    return found | {one.code for one in known if one.__module__.startswith("laas_service")}


SEEN = {
    "codes of problems": codes_of_problems,
    "refusals of requests": lambda: {one.value for one in Refusal},
    "refusals of imports": lambda: {one.value for one in ImportRefusal},
    "states of allocations": lambda: {one.value for one in State},
    "conditions of agents": lambda: {one.value for one in Condition},
    "kinds of drift": lambda: {one.value for one in Drift},
    "reasons of withheld hosts": lambda: {one.value for one in Cause},
    "alarms": lambda: set(ALARM.findall((ROOT / "etc/prometheus/laas.rules.yml").read_text())),
}


@pytest.mark.parametrize("kind", SEEN)
def test_each_has_an_anchor(kind):
    seen = SEEN[kind]()
    assert seen
    assert not sorted(one for one in seen if anchor(one) not in anchors())
