# SPDX-License-Identifier: Apache-2.0

"""Forms of JSON-able documents: a value is written and read by what its type declares.

GUIDs are ``0x%016x``, masks are hexadecimal, and links have their REST names. A wrong document is
refused with its field.
"""

import re
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import DEAREST, DOMAIN, KIND, TRAIT
from laas_service.domain.topology import Link, link_name, parse_link

VERSION = 1


def hex_guid(guid: int) -> str:
    """A GUID as documents write it."""
    return f"{guid:#018x}"


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
Guid = Annotated[
    int, BeforeValidator(_from_hex), Field(ge=0, lt=1 << 64), PlainSerializer(hex_guid)
]
Mask = Annotated[int, BeforeValidator(_from_hex), Field(ge=0), PlainSerializer(hex)]
LinkName = Annotated[Any, BeforeValidator(_link), PlainSerializer(link_name)]
LinkNames = Annotated[
    frozenset[LinkName], PlainSerializer(lambda links: sorted(map(link_name, links)))
]
Names = Annotated[frozenset[str], PlainSerializer(sorted)]
"""A set, written in order."""
Amount = Annotated[StrictFloat, PlainSerializer(float)]
Lid = Annotated[StrictInt, Field(ge=1, le=0xBFFF)]
Triple = tuple[Natural, Natural, Natural]
Trait = Annotated[StrictStr, Field(pattern=TRAIT)]


def _kind(value: str) -> str:
    if re.fullmatch(KIND, value) is None:
        raise ValueError(
            "name a kind of domains with letters, digits and _.:-, such as nvlink; leaf and pod "
            "are none"
        )
    return value


KindName = Annotated[StrictStr, AfterValidator(_kind)]
DomainName = Annotated[StrictStr, Field(pattern=DOMAIN)]
Cost = Annotated[StrictInt, Field(ge=0, le=DEAREST)]


class Strict(BaseModel):
    """A document without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Document(Strict):
    """A strict document with a version."""

    version: Literal[1]


_VERSION = frozenset({"version"})

Value = TypeVar("Value")
Model = TypeVar("Model", bound=BaseModel)


class Form(Generic[Value]):
    """How values of a class are documents: by the types of its fields, or as ``fields`` says.

    ``fields`` is a model with the fields of the class whose documents differ from their types; a
    ``Document`` has a version besides. ``kind`` is what errors call the document. With
    ``sparse``, it lacks the fields that have the defaults of the model.
    """

    def __init__(
        self,
        values: Callable[..., Value],
        kind: str,
        fields: type[BaseModel] | None = None,
        *,
        sparse: bool = False,
    ) -> None:
        self._values, self._kind, self._fields, self._sparse = values, kind, fields, sparse

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(cast(Any, self._fields or self._values))

    def write(self, value: Value) -> Any:
        """The document of a value; ``read`` is the inverse."""
        if self._fields is None:
            return self._adapter.dump_python(value, mode="json")
        given = {name: getattr(value, name) for name in self._fields.model_fields.keys() - _VERSION}
        if issubclass(self._fields, Document):
            given["version"] = VERSION
        model = self._fields.model_construct(**given)
        return self._adapter.dump_python(model, mode="json", exclude_defaults=self._sparse)

    def read(self, document: object) -> Value:
        """The value of a document.

        Raises:
            InvalidInput: it is no such document; names the field.
        """
        read = checked(self._adapter.validate_python, self._kind, document)
        if self._fields is None:
            return read  # type: ignore[no-any-return]
        return self._values(**{name: part for name, part in read if name not in _VERSION})

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        """For a field of another document: ``Annotated[Value, FORM]``."""
        written = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(self.read, serialization=written)


def validated(model: type[Model], kind: str, document: object) -> Model:
    """The document as a model; ``kind`` is what errors call it.

    Raises:
        InvalidInput: it is none; names the field.
    """
    return checked(model.model_validate, kind, document)


def checked(validate: Callable[[object], Value], kind: str, document: object) -> Value:
    """The result of a validation of pydantic. Raises: InvalidInput, with the first wrong field."""
    try:
        return validate(document)
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
