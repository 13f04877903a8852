# SPDX-License-Identifier: Apache-2.0

"""A real Nova whose nova-compute drives a real Ironic, beside hypervisors.

``tests.nova.cloud`` with one more nova-compute, ``SERVICE``, that has Nova's Ironic driver. The
hardware is fake; Ironic's API and conductor, and Keystone, are processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from keystoneauth1 import loading
from nova import context
from nova.conf import CONF
from nova.scheduler import request_filter

from laas_service.adapters.ironic_nodes import IronicCalls as IronicCloud
from laas_service.adapters.ironic_nodes import Nodes
from laas_service.adapters.nova import NovaCompute
from laas_service.adapters.nova.cloud import Cloud
from tests.nova import cloud, many
from tests.servers.ironic import Ironic
from tests.servers.keystone import Keystone
from tests.story import site
from tests.waiting import eventually

SERVICE = "bm"
"""The nova-compute of all nodes."""

NODE = "baremetal"
"""The id of the flavor of nodes."""

USER = "nova"


class Nova(cloud.Nova):
    """Nova with hypervisors, and with the nodes of ``ironic``."""

    ironic: Ironic
    keystone: Keystone

    def start_nodes(self) -> None:
        """Start the nova-compute of the nodes; Ironic has at least one."""
        CONF.register_opts(loading.get_auth_plugin_conf_options("password"), group="ironic")
        self.flags(group="ironic", api_retry_interval=1, **self.keystone.options(USER, "service"))
        self.flags(compute_driver="ironic.IronicDriver")
        self._start_compute(SERVICE, "cell1")
        flavor = self.admin.flavors.create("node", 1, 1, 1, flavorid=NODE)
        amounts = {"CUSTOM_BAREMETAL": 1, "VCPU": 0, "MEMORY_MB": 0, "DISK_GB": 0}
        flavor.set_keys({f"resources:{name}": f"{amount}" for name, amount in amounts.items()})

    def refresh(self, names: Collection[str] = ()) -> None:
        """Let nova-compute read Ironic's nodes, as it does every minute; with names only these."""
        manager = self.computes[SERVICE].manager
        cell = self.host_mappings[SERVICE].cell_mapping
        with context.target_cell(context.get_admin_context(), cell) as inside:
            if not names:
                manager.update_available_resource(inside)
                return
            for name in names:
                node = self.ironic.node(name)["uuid"]
                manager.driver.node_cache.pop(node, None)
                manager._update_available_resource_for_node(inside, node)

    def boot(self, project: str, *, admin: bool = False, **options: Any) -> str | None:
        """Start a server on a node; the name of the node, or None if none was found."""
        client = self.client(project, admin=admin)
        made = client.servers.create("server", cloud.IMAGE, flavor=NODE, nics="none", **options)
        if site.landed(self.admin, made.id) is None:
            return None
        return self.node_of(made.id)

    def node_of(self, server: str) -> str:
        """The name of the node with this server in Ironic."""
        path = f"/v1/nodes?instance_uuid={server}&fields=name"
        (node,) = self.ironic.admin.get(path).json()["nodes"]
        return str(node["name"])

    def copy_nodes(self, like: str, names: Collection[str]) -> None:
        """Add copies of an available node to Ironic, Nova and placement."""
        self.ironic.copy(like, names)
        nodes = self.ironic.uuids()
        many.write_nodes([nodes[name] for name in names], nodes[like])
        self.refresh()

    def cleaned(self, names: Collection[str]) -> None:
        """Wait until nodes are available, and let nova-compute know."""
        for name in names:
            self.ironic.wait(name, "available")
        self.refresh()

    def node_compute(
        self,
        guids: Callable[[], Mapping[str, Collection[int]]] = dict,
        *,
        beat: Callable[[str], None] = lambda action: None,
        page: int = 1000,
        delete_servers: bool = False,
        clear_lessees: bool = False,
        **more: Any,
    ) -> NovaCompute:
        """A new adapter of the service, whose hosts may be nodes; ``more`` are of ``Nodes``."""
        return NovaCompute(
            Cloud(self.admin, self.placement, beat),
            pool=cloud.POOL,
            sentinel=cloud.NOBODY,
            delete_servers=delete_servers,
            clear_lessees=clear_lessees,
            nodes=Nodes(IronicCloud(self.ironic.admin, beat, page=page), guids, **more),
        )

    def memberships(self, *names: str) -> list[set[str]]:
        """Names of Nova's aggregates that placement has each of these nodes in."""
        known = {aggregate.uuid: aggregate.name for aggregate in self.admin.aggregates.list()}
        found = []
        for name in names:
            path = f"/resource_providers/{self.ironic.node(name)['uuid']}/aggregates"
            answer = self.placement.get(path, microversion="1.28").json()
            found.append({known[uuid] for uuid in answer["aggregates"] if uuid in known})
        return found

    def set_memberships(self, name: str, aggregates: Sequence[str]) -> None:
        """Replace the aggregates of a node in placement, as an operator may by hand."""
        path = f"/resource_providers/{self.ironic.node(name)['uuid']}/aggregates"
        document = self.placement.get(path, microversion="1.28").json()
        document["aggregates"] = list(aggregates)
        self.placement.put(path, json=document, microversion="1.28")

    @contextmanager
    def request_filters_without(self, name: str) -> Iterator[None]:
        """Meanwhile one of Nova's request filters does nothing."""
        filters = request_filter.ALL_REQUEST_FILTERS
        (found,) = [one for one in filters if one.__name__ == name]
        filters.remove(found)
        try:
            yield
        finally:
            filters.append(found)

    def aggregate(self, name: str) -> Any:
        """The aggregate of this name."""
        (found,) = [a for a in self.admin.aggregates.list() if a.name == name]
        return found

    def forget_nodes(self) -> None:
        """Undo what a test did: servers, aggregates, and nodes that are not available."""
        self.clear()
        path = "/v1/nodes?fields=name,lessee,instance_uuid,provision_state"
        for node in self.ironic.admin.get(path).json()["nodes"]:
            if node["lessee"] or node["instance_uuid"]:
                self.ironic.patch(node["name"], lessee=None, instance_uuid=None)
            elif node["provision_state"] == "available":
                continue
            eventually(partial(self._is_clean, node["name"]), f"{node['name']} is clean")
        self.refresh()

    def _is_clean(self, name: str) -> bool:
        return self.ironic.node(name)["provision_state"] in ("available", "clean failed")


@contextmanager
def started(
    hypervisors: Sequence[str], ironic: Ironic, keystone: Keystone, cells: int = 1
) -> Iterator[Nova]:
    """Nova with these hypervisors and Ironic's nodes."""
    nova = Nova()
    nova.hosts = hypervisors
    nova.NUMBER_OF_CELLS = cells
    nova.ironic, nova.keystone = ironic, keystone
    try:
        nova.setUp()
        nova.start_nodes()
        yield nova
    finally:
        nova.stop()
