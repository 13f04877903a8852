# SPDX-License-Identifier: Apache-2.0

"""Documents of states in a fabric: features of hosts, faults of allocations, the shared plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laas_service.adapters.documents.fields import Cost, Natural, Strict, Trait, validated
from laas_service.app.records import Faults
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import PLAIN_HOSTS, Features, HostFeatures
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import Topology, link_name, parse_link

DIGITS = 9
"""Digits of a host's number; Python refuses to read a number of thousands of digits."""


class HostDocument(Strict):
    """Traits and cost of a host, in files and snapshots."""

    traits: list[Trait] = []
    cost: Cost = 0


class PlaneDocument(Strict):
    """The numbers of the L2 switches and spines of a plane."""

    l2: tuple[Natural, ...] = ()
    spines: tuple[Natural, ...] = ()


def host_document(features: HostFeatures) -> dict[str, Any]:
    """The features of a host as a document; ``host_features`` is the inverse."""
    return {"traits": sorted(features.traits), "cost": features.cost}


def host_features(read: HostDocument) -> HostFeatures:
    return HostFeatures(frozenset(read.traits), read.cost)


def faults_document(faults: Faults) -> dict[str, Any]:
    """The document in the record of an allocation; ``faults_from`` is its inverse."""
    return {"links": [link_name(link) for link in faults.links], "hosts": list(faults.hosts)}


def faults_from(document: Any) -> Faults:
    """The faults of a document."""
    return Faults(tuple(map(parse_link, document["links"])), tuple(document["hosts"]))


def plane_document(plane: SharedPlane) -> dict[str, Any] | None:
    """The shared plane as a document, None if there is none; ``plane_from`` is the inverse."""
    return {"l2": list(plane.l2), "spines": list(plane.spines)} if plane else None


def plane_from(document: object) -> SharedPlane:
    """The shared plane of a document.

    Raises:
        InvalidInput: it is no such document; names the field.
    """
    if document is None:
        return NO_PLANE
    read = validated(PlaneDocument, "shared_plane", document)
    return SharedPlane(read.l2, read.spines)


def features_from(read: Mapping[str, HostDocument], topology: Topology, field: str) -> Features:
    """The features of hosts, from documents by number; errors name ``field``.

    Raises:
        InvalidInput: the topology has no such host.
    """
    features = {}
    for name, host in read.items():
        if not name.isdecimal() or len(name) > DIGITS or int(name) >= topology.hosts:
            raise InvalidInput(field, name, f"use the numbers of hosts, 0..{topology.hosts - 1}")
        if int(name) not in topology.absent_hosts:
            features[int(name)] = host_features(host)
    return PLAIN_HOSTS.having(features)
