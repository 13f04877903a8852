# SPDX-License-Identifier: Apache-2.0

"""Helpers of laas-manage commands that use the database: configuration, choice of a fabric."""

import argparse

from laas_service.app.records import FabricRecord
from laas_service.cmd.manage.configuration import configuration
from laas_service.domain.errors import InvalidInput
from laas_service.wiring.composition import Composition


def parts_of(args: argparse.Namespace) -> Composition:
    """The service's parts, from the configuration that the arguments name.

    Raises:
        InvalidInput: the configuration cannot be read.
    """
    return Composition(configuration(args))


def fabric_of(parts: Composition, id: str | None) -> FabricRecord:
    """The fabric of this id, of ``[api] default_fabric`` if none is given, or else the only one.

    Raises:
        NotFound: there is no such fabric.
        InvalidInput: no id is given or configured, and the service manages none or several.
    """
    if id := id or parts.default_fabric:
        return parts.store.fabrics.get(id)
    fabrics = parts.store.fabrics.all()
    if len(fabrics) != 1:
        ids = ", ".join(fabric.id for fabric in fabrics)
        raise InvalidInput("--fabric", "", f"name one of {ids or 'none'}")
    return fabrics[0]
