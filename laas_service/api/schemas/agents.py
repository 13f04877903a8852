# SPDX-License-Identifier: Apache-2.0

"""Schemas of agents: reports, orders and file sets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field, RootModel, WithJsonSchema

from laas_service import messages
from laas_service.api.schemas.base import Body, Schema
from laas_service.app.ports import agents as ports
from laas_service.messages import Condition
from laas_service.messages import FileSet as Fetched

LONGEST = 4000
"""Characters of a detail."""

Generation = Annotated[int, Field(ge=1, le=2**31 - 1)]
Detail = Annotated[
    str, Field(max_length=LONGEST, pattern=r"^[^\x00]*$", description="In a sentence.")
]
Role = Literal["active", "standby"]


class AgentReport(Body):
    condition: Annotated[Condition, Field(strict=False, description="The state it reports.")]
    detail: Detail | None = None
    generation: Annotated[
        Generation | None,
        Field(description="In the switches; with `applied` and `other_generation`, and only so."),
    ] = None
    published: Annotated[
        Generation | None, Field(description="Of the set that is current on its disk.")
    ] = None

    def seen(self) -> messages.AgentReport:
        return messages.AgentReport(self.condition, self.detail, self.generation, self.published)


class AgentOrders(Schema):
    role: Role
    active: Annotated[str, Field(description="The agent whose reports count.")]
    wanted: Annotated[int, Field(description="The generation wanted in the switches.")]
    lease_seconds: Annotated[
        float, Field(description="How long it is active without a further report.")
    ]

    @classmethod
    def of(cls, orders: messages.Orders) -> Self:
        return cls(
            role="active" if orders.leads else "standby",
            active=orders.active,
            wanted=orders.wanted,
            lease_seconds=orders.lease_seconds,
        )


class Agent(Schema):
    name: str
    role: Role
    condition: Condition
    detail: str | None
    generation: Annotated[int | None, Field(description="Confirmed in the switches.")]
    published: int | None
    seen_at: AwareDatetime

    @classmethod
    def of(cls, agent: ports.Agent) -> Self:
        return cls(
            name=agent.name,
            role="active" if agent.active else "standby",
            condition=agent.seen.condition,
            detail=agent.seen.detail,
            generation=agent.seen.generation,
            published=agent.seen.published,
            seen_at=agent.seen_at,
        )


class AgentList(Schema):
    agents: list[Agent]
    next: Annotated[str | None, Field(description="The next page.")]

    @classmethod
    def of(cls, shown: Iterable[ports.Agent], following: str | None) -> Self:
        return cls(agents=[Agent.of(agent) for agent in shown], next=following)


class FileSet(Schema):
    manifest: Annotated[dict[str, Any], Field(description="The document of `manifest.json`.")]
    sizes: Annotated[dict[str, int], Field(description="Bytes by file.")]
    parts: Annotated[
        dict[str, list[Annotated[list[int | str], Field(min_length=2, max_length=2)]]],
        Field(description="Size and sha256 of each piece, in order, of files made of pieces."),
    ]

    @classmethod
    def of(cls, files: Fetched) -> Self:
        return cls(
            manifest=dict(files.manifest),
            sizes=dict(files.sizes),
            parts={name: [[*piece] for piece in pieces] for name, pieces in files.parts.items()},
        )


class RangeHeader(Schema):
    range: Annotated[
        str | None,
        Field(alias="Range", description="One range of bytes, such as `bytes=0-1023`."),
    ] = None


class Octets(RootModel[Annotated[Path, WithJsonSchema({"type": "string", "format": "binary"})]]):
    """A file, or the range of its bytes that was asked for."""
