# SPDX-License-Identifier: Apache-2.0

"""Types and base classes of all schemas: names, numbers and strictness."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from laas_service.app.records import PROJECT
from laas_service.domain.wording import CONTROLS

AT_ONCE = 1000
"""The most items a page of a list has."""

LONGEST_HEADER = 65_536
"""Characters of a header that is a list."""

MOST_HOSTS = 1_000_000
"""More hosts than any fabric has: a subnet has 49,151 addresses (LIDs)."""

MOST_SWITCHES = 65_535
"""No index of a pod, leaf, L2 switch or spine is above it, and no number of pods."""

Name = Annotated[
    str, Field(min_length=1, max_length=255, pattern=rf"^[^{CONTROLS}]+$", examples=["blue"])
]
Project = Annotated[str, Field(max_length=64, pattern=PROJECT)]
Reference = Annotated[str, Field(max_length=255, pattern=rf"^[^{CONTROLS}]*$")]
"""The name of something that must exist already."""
HostName = Annotated[str, Field(min_length=1, max_length=255, pattern=rf"^[^{CONTROLS}]+$")]
Reason = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        pattern=rf"^[^{CONTROLS}]+$",
        description="Why, in the operator's words; with a `state` other than `up`.",
    ),
]
Named = Annotated[str, Field(max_length=255)]
"""Something that a list is limited to, or begins behind; it need not exist."""
Hosts = Annotated[int, Field(ge=1, le=MOST_HOSTS, description="How many hosts.")]
Index = Annotated[int, Field(ge=0, le=MOST_SWITCHES)]
"""Of a pod, an L2 switch of a pod, or a spine of a group."""
Triple = Annotated[
    tuple[int, int, int],
    Field(description="[pod, leaf, l2] of a leaf link, [pod, l2, spine] of a spine link."),
]


def guid(value: int) -> str:
    return f"{value:#018x}"


def _guid(value: object) -> object:
    return guid(value) if isinstance(value, int) else value


Guid = Annotated[str, Field(max_length=18, pattern=r"^0x[0-9a-f]{16}$"), BeforeValidator(_guid)]


class Schema(BaseModel):
    """The base of all schemas: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Shown(Schema):
    """An answer that shows the attributes of a value under their own names."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    @classmethod
    def showing(cls, *values: object, **fields: Any) -> Self:
        """``fields``, and the attributes of ``values`` that have the names of the others.

        The first value with the attribute counts. Raises: ValidationError: none has it.
        """
        for name in cls.model_fields:
            if name not in fields:
                for value in values:
                    if hasattr(value, name):
                        fields[name] = getattr(value, name)
                        break
        return cls(**fields)


class Body(Schema):
    """A JSON request body: types are exactly those of JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
