# SPDX-License-Identifier: Apache-2.0

"""The policies, by name."""

from laas_service.domain.policies.base import Policy
from laas_service.domain.policies.baseline import Baseline
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.policies.laas import Laas
from laas_service.domain.policies.lc import Lc
from laas_service.domain.policies.lc_s import LcS
from laas_service.domain.policies.simple import Simple
from laas_service.domain.policies.ta import Ta

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Baseline, Ta, Simple, Laas, Jigsaw, Lc)
}
"""What the service may offer."""

PLANNING: dict[str, type[Policy]] = {**POLICIES, LcS.name: LcS}
"""What planner and simulator know; ``lc-s`` needs a ``SharedFabric``."""
