# SPDX-License-Identifier: Apache-2.0

"""What is added to a refusal of the domain."""

from laas_service.domain.compute_hosts import HostMemory
from laas_service.domain.wording import listed


def with_withheld(detail: str, memory: HostMemory, *, named: bool) -> str:
    """The sentence with the withheld hosts: names and reasons, or without ``named`` numbers."""
    if named:
        withheld = sorted(memory.withheld().items())
        shown = listed(f"{name} ({why})" for name, (_, why) in withheld)
    else:
        causes = memory.withheld_by_cause().items()
        shown = ", ".join(f"{len(names)} {cause.value}" for cause, names in causes if names)
    return f"{detail}; withheld hosts: {shown}"
