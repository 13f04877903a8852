# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port on a stand-in, with a record in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from laas_service.adapters.ufm.manager import UfmRules, UfmSubnetManager
from laas_service.adapters.ufm.rest import UfmRest, UfmSettings
from laas_service.messages import FabricState

OURS = range(0x100, 0x2000)
"""The keys of the service in tests; those of ``states.state`` are among them."""


class Record:
    """The newest recorded routes of one fabric."""

    def __init__(self, state: FabricState) -> None:
        self.state = state

    def fabric(self, id: str) -> Any:
        return SimpleNamespace(
            id=id, routes_generation=self.state.generation, routes_stamp=self.state.stamp
        )

    def routed(self, fabric_id: str) -> FabricState:
        return self.state


def settings(standin, directory, **options) -> UfmSettings:
    """Settings with a token in a file."""
    token = directory / "ufm-token"
    if not token.exists():
        token.write_text(standin.token() + "\n")
        token.chmod(0o600)
    return UfmSettings(standin.url, token_file=token, **options)


def manager(standin, directory, record, files=None, *, timeout=10.0, sleep=None, **rules):
    rest = UfmRest(
        settings(standin, directory, timeout=timeout),
        sleep=sleep or (lambda seconds: None),
    )
    fabric = record.state.fabric
    return UfmSubnetManager(rest, UfmRules(fabric, **{"pkeys": OURS, **rules}), record, files)
