# SPDX-License-Identifier: Apache-2.0

"""Wakes the worker when the subnet manager tells of a change of ports."""

from collections.abc import Callable

from laas_service.app.worker.loop import Loop


class PortEvents(Loop):
    """Wakes another loop when the subnet manager tells of a change of ports.

    ``happened`` says whether it did since the last call, and is asked every ``interval`` seconds.
    """

    name = "laas-port-events"

    def __init__(
        self, happened: Callable[[], bool], wake: Callable[[], None], interval: float = 0.2
    ) -> None:
        super().__init__(interval)
        self._happened, self._wake = happened, wake

    def round(self) -> None:
        if self._happened():
            self._wake()
