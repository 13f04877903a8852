# SPDX-License-Identifier: Apache-2.0

"""[worker]: intervals, leases, retries and repair of the worker."""

from oslo_config import cfg

from laas_service.conf.group import Group, setting

GROUP = "worker"


class WorkerOptions(Group, name=GROUP):
    """The options of [worker]; all times are seconds."""

    poll_interval: float = setting(cfg.FloatOpt, 2.0, mutable=True, min=0.05)
    """Seconds between two queries of the database for allocations with a pending step.

    The API wakes a worker of the same process at once, and other workers over the bus ([DEFAULT]
    transport_url). Without a bus, or while the broker is unreachable, the worker finds new work
    after at most this long. Each poll costs one short query. Lower it without a bus if requests
    must begin sooner; raise it if the database is far."""

    reconcile_interval: float = setting(cfg.FloatOpt, 300.0, mutable=True, min=1.0)
    """Seconds between two full reconciliations of the recorded with the observed state.

    Within this time the worker finds servers on hosts that should be empty, and repairs the effects
    of messages lost between Nova's services. Each round queries Nova for every allocation, and
    placement for every host: about 100 ms a host. Lower it on small sites, raise it where Nova is
    busy. Changes of aggregates and switches are found sooner, see drift_interval."""

    drift_interval: float = setting(cfg.FloatOpt, 10.0, mutable=True, min=0.05)
    """Seconds between two checks for drift: aggregates edited by hand, hosts missing from Nova,
    switches that do not run the recorded routes.

    A check lists Nova's aggregates once and reads OpenSM's tables once for each fabric. Drift of
    routes counts after two checks in a row see it. A worker spends at most a tenth of its time on
    checks: if reading the tables of a fabric takes a minute, a check starts every ten minutes.
    Raise it above the longest sweep of OpenSM, and where listing aggregates is slow."""

    lease_seconds: float = setting(cfg.FloatOpt, 15.0, min=0.05)
    """Duration of a worker's lease on a fabric, in seconds. The worker renews it every third of
    that.

    Any number of workers share the fabrics of a database; one worker at a time holds a fabric. A
    worker that stops gives its fabrics back at once. If it is killed, a worker on the same machine
    takes over at once; a worker on another machine takes over after this long. Raise it where the
    database is sometimes unreachable for longer, because a worker that cannot renew its lease loses
    the fabric."""

    step_timeout: float = setting(cfg.FloatOpt, 600.0, min=0.1)
    """Seconds without progress after which a running worker gives up its fabrics, so that another
    one takes them over. A step that hangs in Nova, a database or OpenSM then does not block all
    tenants.

    Each call to Nova counts as progress. Publishing files and reading them back from OpenSM is one
    step; keep this above its longest duration on your largest fabric. If the step ends later, the
    worker does not continue the work that it belonged to."""

    repair: bool = setting(cfg.BoolOpt, True, mutable=True)
    """Whether the worker repairs drift: it creates aggregates and publishes routes again.

    With False, the worker only reports drift: in the log, as the allocation's error, in the metrics
    and over the bus. Choose that while somebody works on Nova's aggregates or on OpenSM on purpose.
    Routes that change for another reason are still published, and a worker that takes over a fabric
    completes its pool."""

    repair_links: bool = setting(cfg.BoolOpt, True, mutable=True)
    """Whether the worker replaces failed links of a live allocation without a request.

    The hosts stay and traffic continues: the allocation gets new links beside the old ones, which
    are freed when no route uses them any more. With False the allocation is shown as degraded until
    somebody requests the repair (laas allocation repair) or the links are usable again. Choose that
    if every change of routes needs approval."""

    retry_first: float = setting(cfg.FloatOpt, 1.0, mutable=True, min=0.01)
    """Seconds until a step that failed, or has to wait, is tried again. The pause doubles each time
    up to retry_last, and is shortened at random by up to half to spread retries. Raise it if Nova
    or OpenSM are slow to recover."""

    retry_last: float = setting(cfg.FloatOpt, 60.0, mutable=True, min=0.01)
    """Longest pause in seconds between two attempts of a step. It bounds how late a release notices
    that the last server is gone, or an allocation that Nova is reachable again. Lower it if
    releases must notice sooner that the last server is gone."""

    move_window: float = setting(cfg.FloatOpt, 3600.0, mutable=True, min=0.0)
    """Seconds that a tenant has to empty the hosts that its allocation leaves.

    They count from the beginning of an announced move; for other changes the notice of the tenant
    comes first. Servers that are left then keep their hosts, and the change turns back. If servers
    are on new hosts too, a change that was not announced waits, holds old and new hosts, and
    counts in laas_allocations_overdue. Raise it if tenants move large servers by hand; lower it if
    hosts must not be held twice for long."""

    free_unconfirmed: bool = setting(cfg.BoolOpt, False, mutable=True)
    """Whether hosts and links of a tenant are free although nobody has confirmed that it is gone.

    With False, they are held while nobody reads the switches (confirmed_by = files or nobody) until
    an operator says that these run the new set: write its generation into DIRECTORY/FABRIC/loaded
    below [opensm] directory. With [compute] kind = directory they are held until the script that
    takes the hosts back has made its file in answers/.

    Set it to True only if you watch both yourself. The next tenant then gets them as soon
    as the files are written. If OpenSM has not read these, packets of both meet, and each may reach
    ports of the other; if the scripts were not run, servers of the old tenant run on hosts of the
    new one. Without authentication on loopback,
    whatever is not configured ([opensm], [compute]) holds nothing."""

    apply_timeout: float = setting(cfg.FloatOpt, 120.0, mutable=True, min=0.01)
    """Seconds that OpenSM may take to apply published files. After that the worker publishes the
    same files again and reloads OpenSM.

    Raise it above the longest sweep of a large fabric, because each reload starts a new sweep."""
