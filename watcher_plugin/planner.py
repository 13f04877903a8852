# SPDX-License-Identifier: Apache-2.0

"""A planner that keeps the order of a strategy: each action begins when the one before has ended.

Watcher's own planner sorts actions by weights from its configuration, and knows no weights of
types that it does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import networkx
from watcher import objects
from watcher.common import utils
from watcher.decision_engine.planner import weight

PLANNER = "laas_sequence"


class SequencePlanner(weight.WeightPlanner):
    """Links the actions of a solution to a chain."""

    @classmethod
    def get_config_opts(cls) -> list[Any]:
        return []

    def get_sorted_actions_by_weight(
        self, context: Any, action_plan: Any, solution: Any
    ) -> Sequence[Any]:
        """The actions in the order of the strategy."""
        return [
            objects.Action(
                context,
                uuid=utils.generate_uuid(),
                parents=[],
                action_plan_id=action_plan.id,
                **action,
            )
            for action in solution.actions
        ]

    def compute_action_graph(self, actions: Sequence[Any]) -> networkx.DiGraph[Any]:
        """A chain of the actions; each names its parent."""
        graph: networkx.DiGraph[Any] = networkx.DiGraph()
        graph.add_nodes_from(actions)
        for before, action in pairwise(actions):
            action.parents.append(before.uuid)
            graph.add_edge(before, action)
        return graph
