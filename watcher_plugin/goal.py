# SPDX-License-Identifier: Apache-2.0

"""The goals "room for a tenant" and "empty shared hosts", and the figures that judge a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcher.decision_engine.goal import base
from watcher.decision_engine.goal.efficacy import base as efficacy
from watcher.decision_engine.goal.efficacy import indicators
from watcher.decision_engine.solution.efficacy import Indicator

GOAL = "laas_room"
EMPTY = "laas_empty_hosts"


class _Count(indicators.IndicatorSpecification):
    """A number, 0 or more."""

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "number", "minimum": 0}


class RoomEfficacy(efficacy.EfficacySpecification):
    """What the moves of a plan cost, and for how many hosts they make room."""

    def get_indicators_specifications(self) -> list[_Count]:
        """The figures that a strategy for the goal gives."""
        return [
            _Count("hosts_fitting", "Hosts of the request that fits after the plan."),
            _Count("tenants_moved", "Tenants that move."),
            _Count("hosts_moved", "Hosts that tenants newly get."),
            _Count("moves_cost", "Sum of move_cost for each new host."),
        ]

    def get_global_efficacy_indicator(self, indicators_map: Any = None) -> list[Indicator]:
        """Hosts moved for each host of the request; none if there is no request."""
        if not indicators_map or not indicators_map.hosts_fitting:
            return []
        share = indicators_map.hosts_moved / indicators_map.hosts_fitting
        what = "Hosts moved for each host of the request."
        return [Indicator("hosts_moved_per_host_placed", what, None, share)]


class Room(base.Goal):
    """A request for hosts and links of its own fits."""

    @classmethod
    def get_name(cls) -> str:
        return GOAL

    @classmethod
    def get_display_name(cls) -> str:
        return "Room for a tenant with links of its own"

    @classmethod
    def get_translatable_display_name(cls) -> str:
        return cls.get_display_name()

    @classmethod
    def get_efficacy_specification(cls) -> RoomEfficacy:
        return RoomEfficacy()


class EmptyHostsEfficacy(efficacy.EfficacySpecification):
    """What the moves of a plan cost, and how many shared hosts they empty."""

    def get_indicators_specifications(self) -> list[_Count]:
        """The figures that a strategy for the goal gives."""
        return [
            _Count("hosts_emptied", "Shared hosts that are empty after the plan."),
            _Count("leaves_emptied", "Leaves on which no virtual machine is left."),
            _Count("tenants_moved", "Tenants that move."),
            _Count("machines_moved", "Virtual machines that move."),
            _Count("moves_cost", "Sum of move_cost for each virtual machine."),
        ]

    def get_global_efficacy_indicator(self, indicators_map: Any = None) -> list[Indicator]:
        """Virtual machines moved for each host emptied; none if no host is."""
        if not indicators_map or not indicators_map.hosts_emptied:
            return []
        share = indicators_map.machines_moved / indicators_map.hosts_emptied
        what = "Virtual machines moved for each host emptied."
        return [Indicator("machines_moved_per_host_emptied", what, None, share)]


class EmptyHosts(base.Goal):
    """Shared hosts are empty, so that they can be switched off or serviced."""

    @classmethod
    def get_name(cls) -> str:
        return EMPTY

    @classmethod
    def get_display_name(cls) -> str:
        return "Empty hosts among those that tenants share"

    @classmethod
    def get_translatable_display_name(cls) -> str:
        return cls.get_display_name()

    @classmethod
    def get_efficacy_specification(cls) -> EmptyHostsEfficacy:
        return EmptyHostsEfficacy()
