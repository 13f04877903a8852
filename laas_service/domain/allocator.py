# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""The admission step everyone shares: propose, then claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.errors import InvalidInput
from laas_service.domain.fabric import Fabric, FabricView
from laas_service.domain.policies.base import Policy


def admit(
    policy: Policy,
    fabric: Fabric,
    request: Request,
    accept: Callable[[Allocation], bool] | None = None,
) -> Allocation | NoFit:
    """Propose and, if something fits and ``accept`` does not object, claim it.

    Raises:
        InvalidInput: the request asks for fewer than one host.
    """
    if request.hosts < 1:
        raise InvalidInput("hosts", request.hosts, "ask for at least 1 host")
    answer = policy.propose(fabric, request)
    if isinstance(answer, NoFit):
        return answer
    if accept is not None and not accept(answer):
        return NoFit(Refusal.CONSTRAINT, "the placement found would be in the way of another")
    fabric.claim(answer)
    return answer


def largest_fit(policy: Policy, fabric: FabricView, below: int) -> int:
    """The largest size under ``below`` that would fit now, 0 if none.

    For a monotone policy (if N fits, so does N - 1) bisection finds it;
    ``tests/unit/policies/test_contract.py`` holds policies to what they say. The
    others are asked size by size, except those that their refusals rule out.
    """
    if not policy.monotone:
        return _largest_by_size(policy, fabric, below)
    fits, misfits = 0, min(below, fabric.free_host_count + 1)
    while misfits - fits > 1:
        middle = (fits + misfits) // 2
        answer = policy.propose(fabric, Request("", middle))
        fits, misfits = (middle, misfits) if isinstance(answer, Allocation) else (fits, middle)
    return fits


def _largest_by_size(policy: Policy, fabric: FabricView, below: int) -> int:
    size = min(below - 1, fabric.free_host_count)
    while size > 0:
        answer = policy.propose(fabric, Request("", size))
        if isinstance(answer, Allocation):
            break
        size = size - 1 if answer.largest_fit is None else answer.largest_fit
    return size


def explain(policy: Policy, fabric: FabricView, request: Request, refusal: NoFit) -> NoFit:
    """The refusal with the largest size that would fit now filled in."""
    return replace(refusal, largest_fit=largest_fit(policy, fabric, request.hosts))
