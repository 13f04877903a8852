# SPDX-License-Identifier: Apache-2.0

"""Versions, health and metrics; no token needed."""

from importlib.metadata import PackageNotFoundError, version

from laas_service.api import schemas
from laas_service.api.resource import Answer, Call


def versions(call: Call) -> Answer:
    """List the versions of the interface."""
    current = schemas.Version(
        id="v1",
        status="CURRENT",
        links=[
            {"rel": "self", "href": f"{call.root}/v1"},
            {"rel": "describedby", "href": f"{call.root}/v1/openapi.json"},
        ],
    )
    return Answer(200, schemas.Versions(name="laas", release=_release(), versions=[current]))


def health(call: Call) -> Answer:
    """Tell whether the process lives (it answers) and is ready (its database answers, too)."""
    call.fabrics.ready()
    return Answer(200, schemas.Health(status="ready"))


def metrics(call: Call) -> Answer:
    """Show the metrics that Prometheus scrapes."""
    return Answer(200, schemas.Text(call.scrape()))


def _release() -> str:
    try:
        return version("laas-service")
    except PackageNotFoundError:
        return "uninstalled"
