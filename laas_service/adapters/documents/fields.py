# SPDX-License-Identifier: Apache-2.0

"""Fields of documents, and their validation: a wrong document is refused with its field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
)

from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import DEAREST, TRAIT
from laas_service.domain.topology import Link, parse_link

VERSION = 1


def _from_hex(value: object) -> int:
    if isinstance(value, str) and value.startswith("0x"):
        try:
            return int(value, 16)
        except ValueError:
            pass
    raise ValueError("give a hexadecimal number such as 0x1f")


def _link(value: object) -> Link:
    try:
        return parse_link(value if isinstance(value, str) else "")
    except InvalidInput as error:
        raise ValueError(error.fix) from error


Natural = Annotated[StrictInt, Field(ge=0)]
Rails = Annotated[StrictInt, Field(ge=1)]
Guid = Annotated[int, BeforeValidator(_from_hex), Field(ge=0, lt=1 << 64)]
Mask = Annotated[int, BeforeValidator(_from_hex), Field(ge=0)]
LinkName = Annotated[Any, BeforeValidator(_link)]
Lid = Annotated[StrictInt, Field(ge=1, le=0xBFFF)]
Triple = tuple[Natural, Natural, Natural]
Trait = Annotated[StrictStr, Field(pattern=TRAIT)]
Cost = Annotated[StrictInt, Field(ge=0, le=DEAREST)]


class Strict(BaseModel):
    """A document without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Document(Strict):
    """A strict document with a version."""

    version: Literal[1]


Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], kind: str, document: object) -> Model:
    """The document as a model; ``kind`` is what errors call it.

    Raises:
        InvalidInput: it is none; names the field.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in first["loc"])
        value = first["input"] if first["type"] != "missing" else None
        raise InvalidInput(kind + place, _short(value), _fix(first["msg"])) from error


def _fix(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text[0].lower() + text[1:]


def _short(value: object) -> object:
    text = repr(value)
    return value if len(text) <= 80 else text[:77] + "..."
