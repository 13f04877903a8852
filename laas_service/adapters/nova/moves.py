# SPDX-License-Identifier: Apache-2.0

"""How all servers of a host move to another host in Nova."""

from laas_service.adapters.nova import server_moves
from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.servers import ServerCalls
from laas_service.app.ports.compute import MoveProgress, ServerMoves
from laas_service.domain.errors import Forbidden


class NextMoves:
    """Asks Nova for the next step of servers that have to move.

    With ``shared_disks`` the local disks of servers outlive their host.
    """

    def __init__(
        self,
        servers: ServerCalls,
        hosts: Hosts,
        *,
        shared_disks: bool,
    ) -> None:
        self._servers = servers
        self._hosts = hosts
        self._shared_disks = shared_disks

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        """See ``Compute.move_servers`` and ``server_moves``; ``Forbidden`` if one is a node."""
        self._refuse_nodes(moves)
        return server_moves.advance(self._servers, moves, shared_disks=self._shared_disks)

    def running(self, moves: ServerMoves) -> MoveProgress:
        """See ``Compute.running``; ``Forbidden`` if one of the hosts is a node."""
        self._refuse_nodes(moves)
        return server_moves.running(self._servers, moves)

    def _refuse_nodes(self, moves: ServerMoves) -> None:
        if {*moves.targets, *moves.targets.values()} & self._hosts.node_of.keys():
            raise Forbidden(
                "servers on bare metal do not move: create them anew on the new nodes, and delete "
                "the old ones"
            )
