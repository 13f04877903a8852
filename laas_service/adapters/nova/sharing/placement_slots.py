# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts in placement: a custom resource class for each allocation.

Below the resource provider of a host there is one of the service. Its inventory has, for each
allocation with slots on the host, the class of that allocation, with as many units as slots.
``nova_filters.laas`` adds one unit of the class to each request of the allocation's servers, so
placement claims the slot in the same transaction as the server's memory: it refuses the server
beyond the last slot, however many are started at once. Nova's drivers write the inventory of their
own provider, and leave those below it alone.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.adapter import Adapter

from laas_service.adapters.openstack_calls import Calls
from laas_service.domain.errors import Conflict, Unavailable

VERSION = "1.28"
"""Of placement: nested providers, generations of consumers, and inventories without a free unit."""

TRIES = 8
"""How often an inventory is written; workers of other fabrics or operators may write meanwhile."""

RULES = (
    "placement:resource_classes:update and :delete, placement:resource_providers:create, :delete "
    "and placement:resource_providers:inventories:list and :update"
)


def below(provider: str) -> str:
    """The UUID of the service's provider below that of a host."""
    return str(uuid.uuid5(uuid.UUID(provider), "laas:slots"))


@dataclass(frozen=True, slots=True)
class SlotInventory:
    """What the service's provider has: the document of each class, and the generation."""

    generation: int
    classes: Mapping[str, Mapping[str, Any]]

    def slots(self, name: str) -> int:
        """How many slots of a class may be in use; 0 without it, and where it is closed."""
        document = self.classes.get(name)
        if document is None:
            return 0
        return int(document["total"]) - int(document["reserved"])


class PlacementSlots(Calls):
    """Calls to placement about slots; ``provider`` is that of the host. Errors as in ``Calls``."""

    service: ClassVar[str] = "placement"
    grant: ClassVar[str] = "a role with"

    def __init__(
        self, placement: Adapter, beat: Callable[[str], None] = lambda action: None
    ) -> None:
        super().__init__(beat)
        self._placement = placement

    def ensure_class(self, name: str) -> None:
        """Have a class. Raises: Conflict."""
        path = f"/resource_classes/{name}"
        refusal = self._change(path, lambda: self._placement.put(path, microversion=VERSION))
        if refusal:
            raise Conflict(f"resource class {name} cannot be created: {refusal}")

    def drop_class(self, name: str) -> None:
        """Have no such class. Raises: Conflict, if a provider still has it."""
        path = f"/resource_classes/{name}"
        refusal = self._change(path, lambda: self._placement.delete(path, microversion=VERSION))
        if refusal and self._answer(path) is not None:
            raise Conflict(f"resource class {name} cannot be deleted: {refusal}")

    def inventory(self, provider: str) -> SlotInventory | None:
        """The slots of a host; None if the service has no provider there."""
        answer = self._answer(f"/resource_providers/{below(provider)}/inventories")
        if answer is None:
            return None
        return SlotInventory(
            int(answer["resource_provider_generation"]), dict(answer["inventories"])
        )

    def set_slots(self, provider: str, name: str, slots: int) -> None:
        """Have so many slots of a class on a host, also if more are in use.

        With 0 the class goes away; while slots are in use it is closed instead.

        Raises:
            Conflict: placement refuses, or others change the inventory all the time.
        """
        refusal: str | None = None
        for _ in range(TRIES):
            present = self.inventory(provider)
            if present is None:
                if not slots:
                    return
                refusal = self._create(provider)
                continue
            wanted = {**present.classes}
            wanted.pop(name, None)
            if slots or self.holders(provider, [name]):
                wanted[name] = _document(slots)
            if wanted.keys() == present.classes.keys() and (
                name not in wanted or _same(wanted[name], present.classes[name])
            ):
                if not wanted:
                    self._delete(provider)
                return
            refusal = self._write_all(provider, present.generation, wanted)
        if refusal is not None:
            raise Conflict(f"slots of provider {provider} cannot be set: {refusal}")

    def holders(self, provider: str, classes: Iterable[str] | None = None) -> set[str]:
        """The consumers (servers and migrations) with a slot on a host; of all classes by default.

        A migration holds the slot of a server on its old host until it is confirmed.
        """
        answer = self._answer(f"/resource_providers/{below(provider)}/allocations")
        if answer is None:
            return set()
        names = None if classes is None else set(classes)
        return {
            str(consumer)
            for consumer, held in answer["allocations"].items()
            if names is None or not names.isdisjoint(held["resources"])
        }

    def _create(self, provider: str) -> str | None:
        document = {
            "name": f"laas-slots-{provider}",
            "uuid": below(provider),
            "parent_provider_uuid": provider,
        }
        post = self._placement.post
        return self._change(
            "/resource_providers",
            lambda: post("/resource_providers", json=document, microversion=VERSION),
        )

    def _delete(self, provider: str) -> None:
        """Delete the service's provider, unless it has got slots meanwhile."""
        path = f"/resource_providers/{below(provider)}"
        self._change(path, lambda: self._placement.delete(path, microversion=VERSION))

    def _write_all(
        self, provider: str, generation: int, classes: Mapping[str, Mapping[str, Any]]
    ) -> str | None:
        path = f"/resource_providers/{below(provider)}/inventories"
        document = {"resource_provider_generation": generation, "inventories": classes}
        put = self._placement.put
        return self._change(path, lambda: put(path, json=document, microversion=VERSION))

    def _change(self, path: str, call: Callable[[], Any]) -> str | None:
        return self._write(f"write {path} of placement", RULES, call, lambda _: None)

    def _answer(self, path: str) -> dict[str, Any] | None:
        """The document at a path; None if there is none."""

        def read() -> dict[str, Any] | None:
            try:
                answer = self._placement.get(path, microversion=VERSION)
                return dict(answer.json())
            except keystone_errors.NotFound:
                return None

        return self._read(f"read {path} of placement", RULES, read)

    def check(self, provider: str, name: str, slots: int) -> None:
        """Raises: Unavailable, if a host has not so many slots of a class."""
        present = self.inventory(provider)
        found = present.slots(name) if present is not None else 0
        if found != slots:
            raise Unavailable(
                f"placement has {found} instead of {slots} slots of {name} on provider {provider}: "
                "somebody changes them"
            )


def _document(slots: int) -> dict[str, Any]:
    """The inventory of so many slots; without any one unit that is reserved."""
    return {
        "total": max(slots, 1),
        "reserved": 0 if slots else 1,
        "min_unit": 1,
        "max_unit": 1,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }


def _same(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    return all(present.get(key) == value for key, value in wanted.items())
