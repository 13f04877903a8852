# SPDX-License-Identifier: Apache-2.0

"""The actions of a move: hold the new place, migrate the servers, switch over to it.

Virtual machines on shared hosts move in one action for each allocation.

The service takes the steps, and each action waits for its own. Watcher up to 17 goes on with the
next action when one has failed, and does not call ``revert``. So an action that fails turns the
move back itself, and the following actions of the move are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import quote

from oslo_log import log
from watcher import objects
from watcher.applier.actions import base
from watcher.common import context, exception

from laas_service.client.rest import Refused, Rest
from watcher_plugin.moves import Move, SlotMove, Stage
from watcher_plugin.service import brief, connected, options

LOG = log.getLogger(__name__)

UNDER_WAY = (Stage.HOLDING, Stage.EMPTYING, Stage.WITHDRAWING, Stage.DONE)
"""Stages of a move that goes forward or is complete."""

WAY_BACK = 600.0
"""Seconds that an action waits for the end of the way back of its move."""

TURNED = {
    Stage.NOT_BEGUN: "keeps its old place",
    Stage.OTHER: "has another place or is released",
    Stage.WITHDRAWING: "has left its old place, and moves on",
    Stage.DONE: "has moved, and stays there",
}
"""What became of a move in stages in which nothing can be turned back."""

PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
"""Refusals of a request that may succeed later, beside those of a broken service."""

NEWEST = 8
"""Events of an allocation among which the reason of a way back is looked for."""


class MoveFailed(exception.WatcherException):
    """A step of a move failed; the text says what became of the move, and why."""

    def __init__(self, text: str) -> None:
        super().__init__(brief(text))


DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


class MoveAction(base.BaseAction):
    """One step of the move of an allocation.

    The parameters are the same for all steps: the allocation (``resource_id``,
    ``resource_name``), the hosts that it gets and leaves, a digest of its old placement, the
    fabric, and the request for which room is made.
    """

    kind: ClassVar[str]
    """The name of the entry point."""
    reached: ClassVar[tuple[Stage, ...]]
    """Stages of the move in which the step is complete."""
    awaits: ClassVar[tuple[Stage, ...]]
    """Stages of the move in which the step is not complete, and may become so."""
    own: ClassVar[Mapping[str, Any]] = {
        "old_placement": DIGEST,
        "request": {"type": "object", "required": ["hosts", "moves"]},
    }
    """JSON schema of the parameters that other kinds of moves do not have."""
    planned_by: ClassVar[str] = "make-room"
    """The end of the path that plans are asked of."""

    def __init__(self, config: Any, osc: Any = None) -> None:
        super().__init__(config, osc)
        self._complete = False

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the parameters."""
        hosts = {"type": "array", "items": {"type": "string"}}
        properties = {
            "resource_id": {"type": "string", "minLength": 1},
            "resource_name": {"type": "string"},
            "joining": hosts,
            "leaving": hosts,
            "fabric": {"type": "string", "minLength": 1},
            **self.own,
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def pre_condition(self) -> None:
        """Check that the move is under way.

        Raises:
            ActionSkipped: it was not begun, or has turned back.
        """
        stage, shown = self._look()
        if stage not in UNDER_WAY:
            text = f"the move of {self._name} is {stage.value}{_newest(shown)}"
            raise exception.ActionSkipped(brief(text))

    def execute(self) -> bool:
        """Wait until the step is complete; turn the move back if it does not become so.

        Raises:
            MoveFailed: the step failed, the time is over, or the action plan was cancelled.
        """
        self._await()
        self._complete = True
        return True

    def post_condition(self) -> None:
        """Check that the step is still complete. Raises: MoveFailed."""
        if self._complete:
            stage, shown = self._look()
            if stage not in self.reached:
                raise MoveFailed(f"the move of {self._name} is {stage.value}{_newest(shown)}")

    def revert(self) -> None:
        """Turn the move back, so that the allocation ends with its old placement.

        A move whose old place is given up stays: the way back would stop the servers again.

        Raises:
            MoveFailed: the service refused, or the time is over.
        """
        LOG.info("%s", self._turned_back())

    def abort(self) -> bool:
        """As ``revert``; the action is cancelled."""
        self.revert()
        return True

    @property
    def _rest(self) -> Rest:
        return connected(self.osc)

    @property
    def _move(self) -> Move | SlotMove:
        given = self.input_parameters
        joining, leaving = tuple(given["joining"]), tuple(given["leaving"])
        return Move(self.resource_id, given["old_placement"], joining, leaving)

    @property
    def _name(self) -> str:
        return str(self.input_parameters["resource_name"])

    @property
    def _path(self) -> str:
        return f"/v1/allocations/{quote(self.resource_id, safe='')}"

    def _ask(self, *, dry_run: bool = False) -> Mapping[str, Any]:
        """The plan of the service; unless dry, it announces moves of it. Raises: MoveFailed."""
        path = f"/v1/fabrics/{quote(self.input_parameters['fabric'], safe='')}/{self.planned_by}"
        body = {**self.input_parameters["request"], "dry_run": dry_run}
        try:
            plan: Mapping[str, Any] = self._rest.call("POST", path, body=body)
        except Refused as refusal:
            raise MoveFailed(f"the plan is out of date: {refusal}") from refusal
        return plan

    def _look(self) -> tuple[Stage, Mapping[str, Any]]:
        """The stage of the move, and the allocation. Raises: MoveFailed."""
        try:
            shown = self._rest.get(self._path)
        except Refused as refusal:
            raise MoveFailed(f"{self._name}: {refusal}") from refusal
        return self._move.stage(shown), shown

    def _await(self, notice: float = 0.0) -> None:
        """Wait until a stage of ``reached``, for ``step_timeout`` and ``notice`` seconds.

        Raises:
            MoveFailed: it is not reached; the move has turned back, if it still could.
        """
        begun, why = time.monotonic(), "the service could not be reached"
        while (waited := time.monotonic() - begun) < options().step_timeout + notice:
            if self._is_cancelled():
                raise MoveFailed(f"{self._turned_back()}: the action plan is cancelled")
            try:
                shown = self._rest.get(self._path)
            except Refused as refusal:
                if _is_final(refusal):
                    raise MoveFailed(f"{self._name}: {refusal}") from refusal
                why = str(refusal)
            else:
                stage = self._move.stage(shown)
                if stage in self.reached:
                    return
                why = f"the move is {stage.value}{_newest(shown)}"
                if stage not in self.awaits:
                    raise MoveFailed(f"{self._turned_back()}: {why}")
            time.sleep(options().poll_interval)
        raise MoveFailed(f"{self._turned_back()}: not complete after {waited:.0f} s: {why}")

    def _turned_back(self) -> str:
        """Turn the move back and wait for the end of that; return what became of it.

        Raises:
            MoveFailed: the service refused, or the time is over.
        """
        deadline, why = time.monotonic() + WAY_BACK, "the service could not be reached"
        while time.monotonic() < deadline:
            try:
                shown = self._rest.get(self._path)
                stage = self._move.stage(shown)
                if stage in TURNED:
                    return f"{self._name} {TURNED[stage]}"
                if stage is not Stage.TURNING_BACK:
                    self._rest.call("POST", f"{self._path}/replace-hosts", body={"turn_back": True})
                why = f"the move is {stage.value}{_newest(shown)}"
            except Refused as refusal:
                why = str(refusal)
                if _is_final(refusal):
                    break
            time.sleep(options().poll_interval)
        raise MoveFailed(f"{self._name} has not turned back: {why}")

    def _is_cancelled(self) -> bool:
        """Whether somebody cancels the action plan of this action.

        Watcher tells only the next action, so the plan is looked for by what this one does.
        """
        caller = context.make_context(is_admin=True)
        ongoing = objects.Action.list(caller, filters={"state": objects.action.State.ONGOING})
        return any(
            objects.ActionPlan.get_by_id(caller, action.action_plan_id).state
            in objects.action_plan.State.CANCEL_STATES
            for action in ongoing
            if action.action_type == self.kind
            and action.input_parameters.get(self.RESOURCE_ID) == self.resource_id
        )


class Hold(MoveAction):
    """Announces the move, and waits until the allocation holds its new place beside the old one."""

    kind = "laas_hold"
    reached = (Stage.EMPTYING, Stage.WITHDRAWING, Stage.DONE)
    awaits = (Stage.ANNOUNCED, Stage.HOLDING)

    def pre_condition(self) -> None:
        """Check that the service would announce this very move now.

        Raises:
            ActionSkipped: the request fits without it.
            MoveFailed: the service would move another tenant or to another place, or nobody.
        """
        stage, _ = self._look()
        if stage is Stage.ANNOUNCED:
            return
        if stage is not Stage.NOT_BEGUN:
            raise MoveFailed(f"the plan is out of date: {self._name} is {stage.value}")
        plan = self._ask(dry_run=True)
        if plan["fits"]:
            raise exception.ActionSkipped(f"{plan['hosts']} hosts fit now without a move")
        self._check(plan)

    def execute(self) -> bool:
        """Announce the move, and wait for its notice and for the new place.

        Raises:
            MoveFailed: as for the other steps; the tenant objected; the plan is out of date.
        """
        stage, shown = self._look()
        if stage is Stage.ANNOUNCED:
            begins = shown["announced"]["begins"]
        else:
            plan = self._ask()
            if plan["fits"]:
                return True
            begins = plan["moves"][0]["begins"]
            self._check(plan)
        notice = (datetime.fromisoformat(begins) - datetime.now(UTC)).total_seconds()
        self._await(max(notice, 0.0))
        self._complete = True
        return True

    def get_description(self) -> str:
        """What the action does, for tables."""
        return "Take the new hosts and links of an allocation beside the old ones"

    def _check(self, plan: Mapping[str, Any]) -> None:
        """Check that a plan begins with this move; call off another one. Raises: MoveFailed."""
        first = plan["moves"][0]
        if self._move.matches(first):
            return
        if first["announced"]:
            path = f"/v1/allocations/{quote(first['allocation'], safe='')}/replace-hosts"
            try:
                self._rest.call("POST", path, body={"turn_back": True})
            except Refused as refusal:
                raise MoveFailed(f"{first['name']} moves instead: {refusal}") from refusal
        raise MoveFailed(
            f"the plan is out of date: {first['name']} would move from "
            f"{', '.join(first['leaving']) or 'some links'} to "
            f"{', '.join(first['joining']) or 'others'}; run the audit again"
        )


class Migrate(MoveAction):
    """Waits until the service has moved the servers from the old hosts to the new ones."""

    kind = "laas_migrate"
    reached = (Stage.WITHDRAWING, Stage.DONE)
    awaits = (Stage.HOLDING, Stage.EMPTYING)

    def get_description(self) -> str:
        """What the action does, for tables."""
        return "Move the servers of an allocation from its old hosts to its new ones"


class Switch(MoveAction):
    """Waits until the old hosts and links are free."""

    kind = "laas_switch"
    reached = (Stage.DONE,)
    awaits = (Stage.HOLDING, Stage.EMPTYING, Stage.WITHDRAWING)

    def get_description(self) -> str:
        """What the action does, for tables."""
        return "Leave the old hosts and links of an allocation, which are free afterwards"


class MoveSlots(MoveAction):
    """Has the plan announced, and waits until the virtual machines of one allocation have moved.

    The service announces all moves of a plan at once, as they do not depend on each other. So the
    first action of a plan checks that this is still the plan that was approved (``moves``: those
    of each allocation), and has it announced; the others find their move announced.
    ``old_slots`` and ``new_slots`` are digests of the hosts of this allocation.
    """

    kind = "laas_move_slots"
    reached = (Stage.DONE,)
    awaits = (Stage.ANNOUNCED, Stage.EMPTYING)
    planned_by = "consolidate"

    own = {
        "old_slots": DIGEST,
        "new_slots": DIGEST,
        "moves": {"type": "object"},
        "request": {"type": "object"},
    }

    @property
    def _move(self) -> SlotMove:
        given = self.input_parameters
        joining, leaving = tuple(given["joining"]), tuple(given["leaving"])
        return SlotMove(given["old_slots"], given["new_slots"], joining, leaving)

    def pre_condition(self) -> None:
        """Check that the move is announced, or that the service would announce this very plan.

        Raises:
            MoveFailed: the service would move others or to other hosts; the tenant objected.
        """
        stage, shown = self._look()
        if stage in (Stage.ANNOUNCED, Stage.EMPTYING, Stage.DONE):
            return
        if stage is not Stage.NOT_BEGUN:
            raise MoveFailed(f"the plan is out of date: {self._name} is {stage.value}")
        if not self._is_approved(self._ask(dry_run=True)):
            raise MoveFailed(
                f"the plan is out of date: the service plans other moves; run the audit "
                f"again{_newest(shown)}"
            )

    def execute(self) -> bool:
        """Announce the plan if nobody has, and wait for the notice and for the move.

        Raises:
            MoveFailed: as for the other actions; the tenant objected; the plan is out of date.
        """
        stage, shown = self._look()
        if stage is Stage.NOT_BEGUN:
            plan = self._ask()
            if not self._is_approved(plan):
                self._call_off(plan)
            stage, shown = self._look()
        notice = 0.0
        if stage is Stage.ANNOUNCED:
            begins = datetime.fromisoformat(shown["announced"]["begins"])
            notice = max((begins - datetime.now(UTC)).total_seconds(), 0.0)
        self._await(notice)
        self._complete = True
        return True

    def get_description(self) -> str:
        """What the action does, for tables."""
        return "Move virtual machines of an allocation to other shared hosts"

    def _is_approved(self, plan: Mapping[str, Any]) -> bool:
        moves = {move["allocation"]: move["unit_moves"] for move in plan["moves"]}
        return bool(moves == self.input_parameters["moves"])

    def _turned_back(self) -> str:
        """As for the other actions; of a cancelled plan, all moves that have not begun."""
        if self._is_cancelled():
            for id in self.input_parameters["moves"]:
                path = f"/v1/allocations/{quote(id, safe='')}"
                try:
                    if id != self.resource_id and self._rest.get(path).get("announced") is not None:
                        self._rest.call("POST", f"{path}/replace-hosts", body={"turn_back": True})
                except Refused as refusal:
                    LOG.warning("a move of allocation %s is not called off: %s", id, refusal)
        return super()._turned_back()

    def _call_off(self, plan: Mapping[str, Any]) -> None:
        """Call off the moves of a plan that nobody approved. Raises: MoveFailed."""
        for move in plan["moves"]:
            path = f"/v1/allocations/{quote(move['allocation'], safe='')}/replace-hosts"
            try:
                self._rest.call("POST", path, body={"turn_back": True})
            except Refused as refusal:
                raise MoveFailed(f"{move['name']} moves instead: {refusal}") from refusal
        raise MoveFailed("the plan is out of date: the service plans other moves")


def _is_final(refusal: Refused) -> bool:
    """Whether a repeated request would be refused too."""
    status = refusal.status
    if status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return False
    return status not in PASSING


def _newest(shown: Mapping[str, Any]) -> str:
    """Why an allocation does not move: its error, or the line of its newest history that tells."""
    reasons = [event["reason"] for event in shown["history"][-NEWEST:]]
    endings = [line for line in reasons if "turns back" in line or "called off" in line]
    reason = shown.get("error") or next(reversed(endings or reasons), None)
    return f": {reason}" if reason else ""
