# SPDX-License-Identifier: Apache-2.0

"""Option groups as classes: a field is an option, and the text below it is its help."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self, dataclass_transform

from oslo_config import cfg

_LINE_ENDS = re.compile(r"(?<!\n)\n *(?=[^\n* ])")
"""Those inside paragraphs; the sample file and the pages break lines elsewhere."""


def setting(
    kind: type[cfg.Opt],
    default: Any = None,
    *,
    read: Callable[[Any], Any] = lambda value: value,
    **rules: Any,
) -> Any:
    """A field that is an option of this kind; the rules are arguments of its class.

    ``read`` makes the value of the field from that of the option.
    """
    return field(metadata={"kind": kind, "read": read, "rules": {"default": default, **rules}})


def optional_path(text: str | None) -> Path | None:
    """For ``setting``: the path that an option names; None if it names none."""
    return Path(text) if text else None


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class Group:
    """The options of a group as a value; ``of`` reads it from a configuration."""

    NAME: ClassVar[str | None]

    def __init_subclass__(cls, name: str | None) -> None:
        cls.NAME = name
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def options(cls) -> list[Any]:
        """The options for oslo.config, in their order."""
        helps = _texts(cls)
        return [
            part.metadata["kind"](part.name, help=helps[part.name], **part.metadata["rules"])
            for part in fields(cls)  # type: ignore[arg-type]
        ]

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Self:
        """The values in a configuration. Raises: InvalidInput."""
        values = conf if cls.NAME is None else conf[cls.NAME]
        parts = fields(cls)  # type: ignore[arg-type]
        return cls(**{part.name: part.metadata["read"](values[part.name]) for part in parts})


def _texts(group: type) -> dict[str, str]:
    """The text below each field of a class; its source is there in every installation."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(group))).body
    return {
        ast.unparse(at.target): f"\n{_LINE_ENDS.sub(' ', inspect.cleandoc(text))}\n"
        for at, below in pairwise(getattr(definition, "body", ()))
        if isinstance(at, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(text := below.value.value, str)
    }
