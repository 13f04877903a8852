# SPDX-License-Identifier: Apache-2.0

"""[compute]: how hosts are restricted to the servers of one project."""

from dataclasses import replace
from pathlib import Path

from oslo_config import cfg

from laas_service.conf.group import Group, setting
from laas_service.domain.compute_hosts import MISSING, HostRules

GROUP = "compute"

UNSHARED = {
    "ironic": "[compute] kind = ironic: a bare-metal node has one owner",
}
"""By kind of compute, why hosts cannot be shared."""


_DEFAULTS = (cfg.Locations.opt_default, cfg.Locations.set_default)


def is_configured(conf: cfg.ConfigOpts) -> bool:
    """Whether the configuration says how hosts are handed over."""
    places = (conf.get_location(name, GROUP) for name in ("kind", "directory"))
    return any(place is not None and place.location not in _DEFAULTS for place in places)


class ComputeOptions(Group, name=GROUP):
    """The options of [compute]."""

    kind: str = setting(
        cfg.StrOpt,
        "directory",
        choices=[
            ("directory", "write the openstack commands for a person to read and run"),
            (
                "nova",
                "drive Nova's host aggregates and check them against placement, for "
                "hypervisors and, with a login in [ironic], Ironic's nodes",
            ),
            ("ironic", "lease Ironic's nodes, where no Nova deploys them"),
        ],
    )
    """How hosts are handed over to tenants.

    Choose nova in a cloud, and fill in [nova]; fill in [ironic] as well if hosts are nodes of
    Ironic. Choose ironic where projects deploy these nodes themselves, without Nova, and fill in
    [ironic]. With directory, a step counts as done as soon as its commands are written; the service
    does not check that somebody ran them."""

    directory: Path = setting(cfg.StrOpt, "$state_dir/compute", read=Path)
    """Directory of the commands and the state that kind = directory writes. Change it if the person
    who runs the commands cannot read the state directory."""

    pool: str = setting(cfg.StrOpt, "laas-pool")
    """Name of the permanent aggregate that holds every managed host.

    A host outside all tenants' aggregates accepts no project, because it is in the pool.
    Change the name only before the first start. After a later change the service creates a
    second pool, and the hosts stay in both."""

    sentinel: str = setting(cfg.StrOpt, "laas-nobody", regex="^[^,]{1,255}$")
    """Value of filter_tenant_id, or lessee of a free node, that stands for no project. It must not
    be the id of a project. Change it if a project has this id; with kind = ironic only before the
    first start."""

    host_names: str | None = setting(cfg.StrOpt)
    """File with pairs of names: a host's name in the fabric and its name in Nova, one pair on a
    line.

    The service also matches names that differ in case, and names with and without a domain, if only
    one host on each side fits. Set this where names differ more, as node-007 and r1n7."""

    state_interval: float = setting(cfg.FloatOpt, 60.0, min=1.0, mutable=True)
    """Seconds between two looks at the compute hosts and their servers.

    A look finds servers of other projects on hosts of an allocation, however they came there. It
    takes one list of Nova's hypervisors with their servers (about 10 ms of Nova's time for each
    host), or of Ironic's nodes, and never more than half of the worker's time. Lower it if
    strangers on hosts must be found sooner, raise it where Nova is busy."""

    hold_down: float = setting(cfg.FloatOpt, 120.0, min=0.0, mutable=True)
    """Seconds that a host is disabled, down or unknown in Nova, or not free or unknown in Ironic,
    before no new owner gets it.

    It is given back as soon as it is enabled and up, or available in Ironic, again. Raise this
    if computes restart often."""

    reap_interval: float = setting(cfg.FloatOpt, 0.0, min=0.0, mutable=True)
    """Seconds after which a returned nova-compute has removed servers that were deleted while it
    was down; 0 trusts no interval.

    A host from which a server vanished while nova-compute was not up is in quarantine. With this
    option it leaves the quarantine when nova-compute has been up for two of these intervals.
    Nothing is checked then: set it only if running_deleted_instance_action = reap on every compute,
    to running_deleted_instance_poll_interval (1800 by default) plus
    running_deleted_instance_timeout."""

    stop_strangers: bool = setting(cfg.BoolOpt, False, mutable=True)
    """Whether to stop servers of other projects on hosts of an allocation.

    In any case such servers are reported, and their hosts accept no new servers until they are
    gone. Set this only if stopping a server wrongly does less harm than letting it run: whoever
    can place a server on a host can then have it stopped, for example a server that an
    administrator moved there on purpose. Nova allows it to administrators only, so the user in
    [nova] needs the role admin."""

    power_off: bool = setting(cfg.BoolOpt, False)
    """Whether to power off nodes of Ironic that leave an allocation, before they are free.

    Set it if tenants may power on nodes that they never deployed, as lessees may. With kind = nova
    the service's user then needs the right to set the power of nodes; else it only reads Ironic."""

    clean_steps: str | None = setting(cfg.StrOpt)
    """JSON file with cleaning steps that nodes of Ironic run when they leave an allocation, before
    they are free; unset: none.

    A list as Ironic's API takes it, such as [{"interface": "deploy", "step": "erase_devices"}].
    Ironic runs them by manual cleaning, after its automated cleaning. Set this where the latter
    does less than a change of owners needs. The service's user needs the right to change the state
    of nodes."""

    clear_lessees: bool = setting(cfg.BoolOpt, False)
    """Whether to take nodes of Nova (kind = nova, nodes of Ironic) from lessees that are not their
    owners.

    Such a project could deploy the node past Nova. In any case the node is withheld and the project
    named. Leave this False if somebody leases nodes on purpose. Nodes with an instance keep their
    lessee. The service's user needs the right to change nodes."""

    delete_servers: bool = setting(cfg.BoolOpt, False)
    """Whether a release by force deletes the servers of the allocation's project on its hosts, with
    kind = nova, on hypervisors and nodes.

    Without it the release cuts the network and waits until somebody has deleted them. Nova allows
    it to administrators only, so the user in [nova] needs the role admin. With kind = ironic a
    release by force always undeploys the nodes. Set it if a release by force must not wait for
    anybody."""

    firmware: list[str] = setting(cfg.ListOpt, [])
    """Firmware versions that nodes of Ironic may have, besides those with which Ironic first saw
    them: a list of COMPONENT=VERSION, such as bios=2.1.

    A node with another version is not handed over, because an earlier owner may have changed it.
    Add the versions of an update to this list."""

    live_ports: bool = setting(cfg.BoolOpt, False, mutable=True)
    """Whether the ports of servers can migrate live.

    The service then moves servers that run by live migration, and also moves tenants that consent
    with movable = live. Ports on InfiniBand virtual functions cannot: leave it False there, so that
    servers stop for a move, and tenants whose servers may not stop keep their hosts."""

    shared_disks: bool = setting(cfg.BoolOpt, False)
    """Whether all compute hosts share the storage of the local disks of servers (Ceph RBD, NFS).

    An evacuation from a dead host then keeps them. Elsewhere Nova would make them anew from the
    image: leave it False there, and the service evacuates only servers that have no local disk."""

    one_allocation_per_project: bool = setting(cfg.BoolOpt, True)
    """Whether a project may hold only one live allocation.

    Nova distinguishes the allocations of one project only if LaasTenantFilter is in
    [filter_scheduler] enabled_filters, and only for servers with the scheduler hint
    laas:allocation. Set this to False once that filter runs in every scheduler. Without the
    filter, the servers of two allocations mix, and use links that belong to neither."""

    @property
    def one_per_project(self) -> bool:
        """Whether a project may have one live allocation only."""
        return self.kind == "nova" and self.one_allocation_per_project

    @property
    def withholding(self) -> HostRules:
        """Which hosts no new owner gets."""
        rules = HostRules(self.hold_down, reap_interval=self.reap_interval)
        if self.kind == "ironic":
            return replace(rules, unknown=MISSING, away="Ironic did not know its node")
        return rules
