# SPDX-License-Identifier: Apache-2.0

"""Versions, health and metrics; no token needed."""

from hashlib import sha256
from urllib.parse import quote

from laas_service import page
from laas_service.api import schemas
from laas_service.api.microversions import NEWEST, OLDEST
from laas_service.api.resource import Answer, Call
from laas_service.domain.errors import InvalidInput, NotFound
from laas_service.version import VERSION

MODULES = "view/"
"""Where the page finds its modules, from its own address."""


def versions(call: Call) -> Answer:
    """List the versions of the interface."""
    current = _current(call)
    return Answer(200, schemas.Versions(name="laas", release=VERSION, versions=[current]))


def version_1(call: Call) -> Answer:
    """Show version 1 of the interface, with its microversions."""
    return Answer(200, schemas.OneVersion(version=_current(call)))


def _current(call: Call) -> schemas.Version:
    return schemas.Version(
        id="v1",
        status="CURRENT",
        min_version=str(OLDEST),
        max_version=str(NEWEST),
        links=[
            {"rel": "self", "href": f"{call.root}/v1"},
            {"rel": "describedby", "href": f"{call.root}/v1/openapi.json"},
        ],
    )


def health(call: Call) -> Answer:
    """Tell whether the process lives (it answers) and is ready (its database takes writes)."""
    call.fabrics.healthy()
    return Answer(200, schemas.Health(status="ready"))


def metrics(call: Call) -> Answer:
    """Show the metrics that Prometheus scrapes."""
    return Answer(200, schemas.Text(call.scrape()))


def view(call: Call, query: schemas.ViewQuery) -> Answer:
    """Show the page of a fabric; where there are logins, without data: the browser signs in."""
    if not call.local:
        return _page(page.live_page("", "", MODULES))
    named = query.fabric or call.fabrics.default()
    if named is None:
        known = ", ".join(fabric.id for fabric in call.fabrics.fabrics()) or "none"
        fix = f"name one in the address, as {call.root}/view?fabric=ID: {known}"
        raise InvalidInput("fabric", None, fix)
    id = call.fabrics.fabric(named).id
    return _page(page.live_page(id, f"/v1/fabrics/{quote(id, safe='')}/map", MODULES))


def module(call: Call, name: str, headers: schemas.IfNoneMatch) -> Answer:
    """Show one module of the page's script."""
    text = page.modules().get(name)
    if text is None:
        raise NotFound("module of the page", name)
    etag = f'"{sha256(text.encode()).hexdigest()}"'
    tags = {"ETag": etag, "Cache-Control": "no-cache"}
    if etag in (headers.if_none_match or ""):
        return Answer(304, schemas.Unchanged(None), tags)
    return Answer(200, schemas.Script(text), tags)


def _page(html: str) -> Answer:
    headers = {
        "Content-Security-Policy": page.policy(frames=True, loaded=True),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }
    return Answer(200, schemas.Html(html), headers)
