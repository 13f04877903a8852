# SPDX-License-Identifier: Apache-2.0

"""The strategies: moves after which a request fits, and moves that empty shared hosts.

The service plans, and knows links, consent, quotas and costs. The strategies turn its plan into
actions: ``laas_hold``, ``laas_migrate`` and ``laas_switch`` for each tenant that moves to hosts of
its own, in order; ``laas_move_slots`` for each whose virtual machines move to other shared hosts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from watcher.common import exception
from watcher.decision_engine.strategy.strategies import base

from laas_service.client.rest import Refused, Rest
from watcher_plugin.goal import EMPTY, GOAL
from watcher_plugin.moves import moved, placement, slots_digest, units_of
from watcher_plugin.planner import PLANNER
from watcher_plugin.service import brief, connected

STRATEGY = "laas_make_room"

STEPS = ("laas_hold", "laas_migrate", "laas_switch")
"""The actions of a move, in order."""

WISHES = ("hosts", "policy", "constraints", "moves", "max_cost", "override")
"""Parameters of an audit that go to the service as they are."""

CONSOLIDATION = "laas_consolidate"

LIMITS = ("parent", "moves", "moves_per_host", "max_cost", "override")
"""Parameters of an audit about shared hosts that go to the service as they are."""


COMMON: Mapping[str, Any] = {
    "fabric": {
        "description": "The fabric; not needed if there is only one.",
        "type": "string",
    },
    "max_cost": {
        "description": "Tenants with a higher move_cost stay.",
        "type": "number",
        "minimum": 0,
    },
    "override": {
        "description": "Move tenants that do not consent, too.",
        "type": "boolean",
        "default": False,
    },
}
"""Parameters of both audits."""


class NoRoom(exception.WatcherException):
    """The service has no plan; the text says why."""


class _Strategy(base.BaseStrategy):
    """A strategy whose plans the service makes."""

    figures: ClassVar[tuple[str, ...]]
    """Names of the indicators of the goal."""

    def __init__(self, config: Any, osc: Any = None) -> None:
        super().__init__(config, osc)
        self.planner = PLANNER
        self._figures = dict.fromkeys(self.figures, 0)

    @classmethod
    def get_translatable_display_name(cls) -> str:
        return str(cls.get_display_name())

    @classmethod
    def get_config_opts(cls) -> list[Any]:
        return []

    def pre_execute(self) -> None:
        """Nothing: the service knows the cluster, so no data model of Watcher is needed."""

    def do_execute(self, audit: Any = None) -> None:
        """Ask the service for a plan, and add its moves to the solution.

        Raises:
            NoRoom: the service refused; the audit shows the text.
        """
        try:
            self._plan(connected(self.osc))
        except Refused as refusal:
            if audit is not None:
                audit.status_message = brief(str(refusal))
            raise NoRoom(str(refusal)) from refusal

    @abstractmethod
    def _plan(self, rest: Rest) -> None:
        """Ask for the plan, add its moves to the solution, and note its figures."""

    def post_execute(self) -> None:
        """Give the figures of the plan."""
        self.solution.set_efficacy_indicators(**self._figures)


class MakeRoom(_Strategy):
    """Moves tenants that consent, so that a request fits which is refused now."""

    figures = ("hosts_fitting", "tenants_moved", "hosts_moved", "moves_cost")

    @classmethod
    def get_name(cls) -> str:
        return STRATEGY

    @classmethod
    def get_display_name(cls) -> str:
        return "Make room by moving tenants with their links"

    @classmethod
    def get_goal_name(cls) -> str:
        return GOAL

    @classmethod
    def get_schema(cls) -> Mapping[str, Any]:
        """The parameters of an audit, as in ``POST /v1/fabrics/{id}/make-room``."""
        return {
            "properties": {
                "hosts": {
                    "description": "Number of hosts of the request that has to fit.",
                    "type": "integer",
                    "minimum": 1,
                },
                "policy": {"description": "The policy of the request.", "type": "string"},
                "constraints": {"description": "Constraints of the request.", "type": "object"},
                "moves": {
                    "description": "The most tenants that move.",
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 4,
                    "default": 1,
                },
                **COMMON,
            },
            "required": ["hosts"],
            "additionalProperties": False,
        }

    def _plan(self, rest: Rest) -> None:
        given = self.input_parameters
        request = {name: given[name] for name in WISHES if name in given}
        fabric = rest.fabric(given.get("fabric"))
        plan = rest.call("POST", f"{fabric}/make-room", body={**request, "dry_run": True})
        for number, move in enumerate(plan["moves"]):
            old = placement(rest.get(f"/v1/allocations/{move['allocation']}"))
            left = {**request, "moves": len(plan["moves"]) - number}
            self._add(move, old, fabric, left)
        self._figures = {
            "hosts_fitting": plan["hosts"],
            "tenants_moved": len(plan["moves"]),
            "hosts_moved": plan["moved_hosts"],
            "moves_cost": plan["cost"],
        }

    def _add(
        self, move: Mapping[str, Any], old: str, fabric: str, request: Mapping[str, Any]
    ) -> None:
        about = {
            "resource_name": move["name"],
            "joining": move["joining"],
            "leaving": move["leaving"],
            "old_placement": old,
            "fabric": fabric.rpartition("/")[2],
            "request": request,
        }
        for step in STEPS:
            self.solution.add_action(step, dict(about), resource_id=move["allocation"])


class Consolidate(_Strategy):
    """Moves virtual machines of tenants that consent, so that shared hosts are empty."""

    figures = ("hosts_emptied", "leaves_emptied", "tenants_moved", "machines_moved", "moves_cost")

    @classmethod
    def get_name(cls) -> str:
        return CONSOLIDATION

    @classmethod
    def get_display_name(cls) -> str:
        return "Empty shared hosts by few migrations"

    @classmethod
    def get_goal_name(cls) -> str:
        return EMPTY

    @classmethod
    def get_schema(cls) -> Mapping[str, Any]:
        """The parameters of an audit, as in ``POST /v1/fabrics/{id}/consolidate``."""
        return {
            "properties": {
                "parent": {
                    "description": "The allocation that shares its hosts; default: the only one.",
                    "type": "string",
                },
                "moves": {
                    "description": "The most virtual machines that move.",
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 64,
                    "default": 8,
                },
                "moves_per_host": {
                    "description": "A host that costs more moves is left alone.",
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": 64,
                    "default": 4,
                },
                **COMMON,
            },
            "additionalProperties": False,
        }

    def _plan(self, rest: Rest) -> None:
        given = self.input_parameters
        request = {name: given[name] for name in LIMITS if name in given}
        fabric = rest.fabric(given.get("fabric"))
        plan = rest.call("POST", f"{fabric}/consolidate", body={**request, "dry_run": True})
        moves = {move["allocation"]: move["unit_moves"] for move in plan["moves"]}
        for move in plan["moves"]:
            units = units_of(rest.get(f"/v1/allocations/{move['allocation']}"))
            about = {
                "resource_name": move["name"],
                "joining": move["joining"],
                "leaving": move["leaving"],
                "old_slots": slots_digest(units),
                "new_slots": slots_digest(moved(units, move["unit_moves"])),
                "moves": moves,
                "fabric": plan["fabric"],
                "request": request,
            }
            self.solution.add_action("laas_move_slots", about, resource_id=move["allocation"])
        self._figures = {
            "hosts_emptied": len(plan["hosts"]),
            "leaves_emptied": len(plan["leaves"]),
            "tenants_moved": len(plan["moves"]),
            "machines_moved": plan["moved_units"],
            "moves_cost": plan["cost"],
        }
