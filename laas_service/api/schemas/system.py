# SPDX-License-Identifier: Apache-2.0

"""Schemas of answers about the service itself, of quotas, and of problems."""

from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, Field, RootModel

from laas_service.api.schemas.agents import Octets
from laas_service.api.schemas.allocations import DegradedAnswer
from laas_service.api.schemas.base import Body, Name, Schema
from laas_service.api.schemas.fabrics import CUT_OFF, ByMovingAnswer, FitsWhenEmpty, MakesRoom
from laas_service.app.records import ProjectUsage
from laas_service.domain.allocation import Refusal


class FieldError(Schema):
    field: str
    detail: str
    value: Any = None


class Problem(Schema):
    """RFC 9457, with a stable ``code``; a refusal has ``reason`` and ``largest_fit`` too."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    errors: list[FieldError] | None = None
    """Each bad field."""
    reason: Refusal | None = None
    """The limit that was hit; the code."""
    largest_fit: int | None = None
    """The largest size that would fit now."""
    fits_when_empty: FitsWhenEmpty = None
    cut_off: Annotated[bool | None, Field(description=CUT_OFF)] = None
    room: MakesRoom = None
    by_moving: ByMovingAnswer | None = None
    """How the new size of an allocation would fit; null: no way was found."""
    degraded: DegradedAnswer | None = None
    """What a repair cannot replace."""
    allocation: str | None = None
    """The allocation that has the name."""
    min_version: str | None = None
    """The oldest microversion known."""
    max_version: str | None = None
    """The newest microversion known."""


class Version(Schema):
    id: str
    status: Literal["CURRENT"]
    min_version: str
    """The oldest microversion; the default."""
    max_version: str
    """The newest microversion."""
    links: list[dict[str, str]]


class OneVersion(Schema):
    version: Version


class Versions(Schema):
    name: str
    release: str
    versions: list[Version]


class Health(Schema):
    status: Literal["ready"]


class Share(Schema):
    limit: int | None
    """How many there may be; null: any number."""
    used: int
    """How many there are; queued requests count."""


class QuotaAnswer(Schema):
    """Of one project. What is inside a container counts as an allocation, its hosts there."""

    project_id: str
    hosts: Share
    allocations: Share
    moves: Share
    """Of its allocations to other hosts, for others, within 24 hours."""
    slots: Share
    """Of shared hosts."""

    @classmethod
    def of(cls, usage: ProjectUsage) -> Self:
        return cls(
            project_id=usage.project_id,
            hosts=Share(limit=usage.limits.hosts, used=usage.hosts),
            allocations=Share(limit=usage.limits.allocations, used=usage.allocations),
            moves=Share(limit=usage.limits.moves, used=usage.moves),
            slots=Share(limit=usage.limits.slots, used=usage.slots),
        )


Secret = Annotated[str, Field(min_length=1, max_length=8192)]


class NewSession(Body):
    """A password, an application credential, or a token."""

    username: Name | None = None
    password: Secret | None = None
    user_domain: Name | None = None
    """A name; Default without one."""
    project: Name | None = None
    """A name."""
    project_domain: Name | None = None
    """A name; that of the user without one."""
    application_credential_id: Name | None = None
    application_credential_secret: Secret | None = None
    token: Secret | None = None


class SessionAnswer(Schema):
    secret: str
    """For the header X-LaaS-Session of each request; without it the cookie is not read."""
    user: str
    project: str
    roles: list[str]
    expires_at: AwareDatetime


class SessionEnded(Schema):
    ended: Literal[True]


class Unchanged(RootModel[None]):
    """No body: what the caller has is still true."""


class Document(RootModel[dict[str, Any]]):
    """An OpenAPI document."""


class Text(RootModel[str]):
    """Prometheus' text format."""


class Script(Text):
    """A module of the page's script."""


class Html(Text):
    """A page for browsers."""


def media(schema: type[BaseModel]) -> str:
    """The content type of an answer."""
    kinds: dict[type[BaseModel], str] = {
        Problem: "application/problem+json",
        Text: "text/plain; version=0.0.4",
        Script: "text/javascript; charset=utf-8",
        Html: "text/html; charset=utf-8",
        Octets: "application/octet-stream",
    }
    return kinds.get(schema, "application/json")
