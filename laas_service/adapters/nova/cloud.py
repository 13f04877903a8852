# SPDX-License-Identifier: Apache-2.0

"""The cloud as the service's user reaches it: the calls to Nova and placement, and their login."""

from collections.abc import Callable, Mapping
from typing import Any

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from novaclient import client as nova_client
from oslo_config import cfg

from laas_service.adapters.nova.aggregates import AggregateCalls
from laas_service.adapters.nova.hypervisors import HypervisorCalls
from laas_service.adapters.nova.names import HostNames, read_pairs
from laas_service.adapters.nova.placement import PlacementCalls
from laas_service.adapters.nova.servers import ServerCalls
from laas_service.domain.errors import InvalidInput
from laas_service.version import user_agent

NOVA_VERSION = "2.87"
"""Last version before 2.88, which makes the list of hypervisors query every compute host."""


class Cloud:
    """The calls to Nova and placement, by what they are about; each part has the same ``beat``.

    The names of hosts are those of the fabrics on one side, and Nova's own on the other: the parts
    translate every name that goes to Nova or comes from it, and nobody else does (``names``).
    """

    def __init__(
        self,
        nova: Any,
        placement: Adapter,
        beat: Callable[[str], None] = lambda action: None,
        names: HostNames | None = None,
    ) -> None:
        self.names = names or HostNames()
        self.hypervisors = HypervisorCalls(nova, self.names, beat)
        self.aggregates = AggregateCalls(nova, self.names, self.hypervisors, beat)
        self.servers = ServerCalls(nova, self.names, beat)
        self.placement = PlacementCalls(placement, beat)
        self.placement_adapter, self.beat = placement, beat


def connect(
    conf: cfg.ConfigOpts,
    beat: Callable[[str], None],
    names: Callable[[], Mapping[str, str]],
) -> Cloud:
    """Nova and placement as [compute], [nova] and [placement] configure them, not called yet.

    Raises:
        InvalidInput: the options give no login, or the file of names is wrong.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, "nova")
        own = loading.load_auth_from_conf_options(conf, "placement")
        nova, placement = (
            loading.load_adapter_from_conf_options(
                conf,
                group,
                session=loading.load_session_from_conf_options(
                    conf, group, user_agent=user_agent()
                ),
                auth=login,
            )
            for group, login in (("nova", auth), ("placement", own or auth))
        )
    except keystone_errors.ClientException as error:
        raise InvalidInput("[nova], [placement]", "login", str(error)) from error
    if auth is None:
        raise InvalidInput("[nova] auth_type", None, "set it, for example to password")
    configured = read_pairs(conf.compute.host_names) if conf.compute.host_names else {}
    client = nova_client.Client(
        NOVA_VERSION,
        session=nova.session,
        auth=auth,
        endpoint_type=nova.interface,
        **{name: getattr(nova, name) for name in _ADAPTER_OPTIONS},
    )
    client.client.user_agent = user_agent()
    return Cloud(client, placement, beat, HostNames(names, configured))


_ADAPTER_OPTIONS = (
    "connect_retries",
    "connect_retry_delay",
    "endpoint_override",
    "region_name",
    "service_name",
    "service_type",
    "status_code_retries",
    "status_code_retry_delay",
)
