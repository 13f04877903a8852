# SPDX-License-Identifier: Apache-2.0

"""The placement policies, by name."""

from laas_service.domain.policies.base import PolicyFactory
from laas_service.domain.policies.baseline import Baseline
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.policies.laas import Laas
from laas_service.domain.policies.lc import Lc
from laas_service.domain.policies.lc_s import LcS
from laas_service.domain.policies.simple import Simple
from laas_service.domain.policies.ta import Ta

_OFFERED: tuple[PolicyFactory, ...] = (Baseline, Ta, Simple, Laas, Jigsaw, Lc)

POLICIES = {policy.name: policy for policy in _OFFERED}
"""The policies that the service may offer."""

PLANNING: dict[str, PolicyFactory] = {**POLICIES, LcS.name: LcS}
"""The policies that planner and simulator know; ``lc-s`` needs a ``SharedLedger``."""
