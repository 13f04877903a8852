# SPDX-License-Identifier: Apache-2.0

"""How Nova is called: what its client's errors mean, and the names of hosts on either side."""

from collections.abc import Callable
from typing import Any, ClassVar

from novaclient import exceptions as nova_errors

from laas_service.adapters.nova.names import HostNames
from laas_service.adapters.openstack_calls import Calls


class NovaCalls(Calls):
    """Calls to Nova; errors as in ``Calls``.

    Writes return what Nova has afterwards, or the text of Nova's refusal (400, 404, 409); the
    caller then re-reads the state. Hosts have the names of the fabrics: each call translates them.
    """

    service: ClassVar[str] = "Nova"
    grant: ClassVar[str] = "a role with"

    def __init__(self, nova: Any, names: HostNames, beat: Callable[[str], None]) -> None:
        super().__init__(beat)
        self._nova = nova
        self.names = names

    def _status(self, error: Exception) -> int | None:
        if isinstance(error, nova_errors.ClientException):
            return int(error.code)
        return super()._status(error)
