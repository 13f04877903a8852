# SPDX-License-Identifier: Apache-2.0

"""The states into which a retry and a release bring an allocation; pure."""

from laas_service.app.lifecycle import HOLDING, OVER, Situation, State, has_step_now
from laas_service.domain.errors import Conflict


def state_after_retry(allocation: Situation, *, waits: bool) -> State | None:
    """The state in which a retry resumes; None if no step failed or waits.

    ``waits``: something has kept the worker of its fabric for long.

    Raises:
        Conflict: it is queued or released, and a worker takes no step for it.
    """
    if allocation.state not in HOLDING:
        raise Conflict(
            f"allocation {allocation.id} is {allocation.state.value}; there is no step to retry"
        )
    if allocation.state is State.ERROR:
        return allocation.parked or (
            State.RELEASING if allocation.handed_back else State.ALLOCATING
        )
    held_up = waits and has_step_now(allocation)
    return allocation.state if held_up or allocation.next_try is not None else None


def state_after_release(allocation: Situation, *, force: bool) -> State | None:
    """The state into which a release brings it; None if the release is under way or over."""
    if allocation.state in OVER:
        return None
    if allocation.state is State.RELEASING and (allocation.force or not force):
        return None
    return State.RELEASED if allocation.state is State.QUEUED else State.RELEASING
