# SPDX-License-Identifier: Apache-2.0

"""Review of configuration files: unknown, gone, deprecated and invalid options."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from keystoneauth1 import exceptions, loading
from oslo_config import cfg

from laas_service import conf as options
from laas_service.conf.gone import GONE, files, sections

LIBRARIES = (
    "keystonemiddleware.auth_token",
    "oslo.db",
    "oslo.log",
    "oslo.messaging",
    "oslo.middleware.http_proxy_to_wsgi",
    "oslo.policy",
)
"""Libraries whose options the files may contain; as in ``config-generator.conf``."""

LOGINS = ("nova", "placement", "keystone_authtoken")
"""Groups that also have the options of their ``auth_type``."""


@dataclass(slots=True)
class _Known:
    """Option names of one group."""

    present: dict[str, Any] = field(default_factory=dict)
    """Options by their present name."""

    former: dict[str, str] = field(default_factory=dict)
    """Present ``[group] name`` by deprecated name."""


def remarks(conf: cfg.ConfigOpts, switches: Iterable[Any] = ()) -> list[str]:
    """A sentence for each option in the files of ``conf`` that is unknown, gone or deprecated.

    ``switches`` are options of commands, which [DEFAULT] may contain too.

    Raises:
        cfg.ConfigFileParseError, OSError: a file cannot be read.
    """
    known = _known(conf, switches)
    return [
        text
        for path in files(conf)
        for group, names in sections(path).items()
        for name in names
        if (text := _remark(known, path, group, name.replace("-", "_")))
    ]


def wrong_values(conf: cfg.ConfigOpts) -> list[str]:
    """A sentence for each option that has an invalid value."""
    errors = []
    for group, opts in options.list_opts():
        for opt in opts:
            where = conf if group == "DEFAULT" else conf[group]
            try:
                getattr(where, opt.dest, None)
            except (cfg.Error, ValueError) as error:
                reason = str(error).rpartition("is not valid: ")[2]
                if wrong := re.search(r"invalid literal for int\(\) .*?: (.*)", reason):
                    reason = f"{wrong[1]} is not valid; give a whole number"
                errors.append(f"[{group}] {opt.dest}: {reason}")
    return errors


def _remark(known: dict[str, _Known], path: Path, group: str, name: str) -> str | None:
    if successor := GONE.get((group, name)):
        return f"{path}: [{group}] {name} has gone: {successor}"
    names = known.get(group)
    if names is None:
        return f"{path}: [{group}] {name} has no effect: there is no such section"
    if opt := names.present.get(name):
        if not opt.deprecated_for_removal:
            return None
        reason = " ".join((opt.deprecated_reason or "").split())
        return f"{path}: [{group}] {name} is deprecated and will go; {reason or 'leave it out'}"
    if successor := names.former.get(name):
        return f"{path}: [{group}] {name} is deprecated, use {successor}"
    return f"{path}: [{group}] {name} has no effect: there is no such option"


def _known(conf: cfg.ConfigOpts, switches: Iterable[Any]) -> dict[str, _Known]:
    known: dict[str, _Known] = {}
    for group, opts in [("DEFAULT", switches), *_listed(), *_logins(conf)]:
        for opt in opts:
            known.setdefault(group, _Known()).present[opt.dest] = opt
            for old in opt.deprecated_opts:
                successors = known.setdefault(old.group or group, _Known())
                name = (old.name or opt.name).replace("-", "_")
                successors.former[name] = f"[{group}] {opt.dest}"
    return known


def _listed() -> Iterator[tuple[str, Iterable[Any]]]:
    yield from options.list_opts()
    for entry in entry_points(group="oslo.config.opts"):
        if entry.name in LIBRARIES:
            for group, opts in entry.load()():
                yield str(getattr(group, "name", group) or "DEFAULT"), opts


def _logins(conf: cfg.ConfigOpts) -> Iterator[tuple[str, Iterable[Any]]]:
    """The login options of each group's ``auth_type``; none if keystoneauth does not know it."""
    for path in files(conf):
        found = sections(path)
        for group in LOGINS:
            for kind in found.get(group, {}).get("auth_type", ()):
                try:
                    yield group, loading.get_auth_plugin_conf_options(kind)
                except exceptions.NoMatchingPlugin:
                    continue
