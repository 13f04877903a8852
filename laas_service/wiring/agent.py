# SPDX-License-Identifier: Apache-2.0

"""The agent beside an OpenSM, without a database and without compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from oslo_config import cfg

from laas_service.adapters import messaging, service_rest
from laas_service.app.opensm_agent import OpenSmAgent
from laas_service.app.worker.loop import Loop
from laas_service.app.worker.port_events import PortEvents
from laas_service.conf.opensm import OpenSmOptions, check_reads_nothing, found_tools, opensm
from laas_service.conf.worker import WorkerOptions
from laas_service.domain.errors import InvalidInput
from laas_service.garbage import Collector
from opensm_writer.observer import LinkEvents
from opensm_writer.opensm import OpenSm
from opensm_writer.supervisor import Supervisor
from opensm_writer.tools import Tools


def opensm_of_agent(conf: cfg.ConfigOpts) -> OpenSm:
    """The OpenSM beside an agent. Raises: InvalidInput: nothing reads its tables back."""
    if OpenSmOptions.of(conf).reached_by == "ufm":
        check_reads_nothing(conf)
        return opensm(conf, Tools()) or OpenSm()
    found = found_tools(conf)
    beside = opensm(conf, found)
    if beside is None or not (beside.dump_command or beside.dump_file):
        why = found.problem or "it says that none is to be used"
        fix = f"an agent reads tables back: {why}; mend that, or set dump_command or dump_file"
        raise InvalidInput("[opensm] tools", conf.opensm.tools, fix)
    return beside


def agent(conf: cfg.ConfigOpts, beside: OpenSm | None = None) -> OpenSmAgent:
    """Looks after ``beside``, the OpenSM of this machine; reaches the service over REST alone.

    Raises:
        InvalidInput: also if no option says how tables are read back.
        Unavailable: the fabric is not named, and the service does not answer.
    """
    options = OpenSmOptions.of(conf)
    beside_ufm = options.reached_by == "ufm"
    beside = beside or opensm_of_agent(conf)
    service = service_rest.ServiceRest(
        service_rest.connect(conf),
        options.agent_name,
        options.agent_fabric,
        now=beside.now,
    )
    supervisor = Supervisor(
        options.directory,
        service.fabric,
        beside,
        keep=options.keep,
        timeout=WorkerOptions.of(conf).apply_timeout,
        enforcement=options.enforcement if beside_ufm else "file",
        reads_back=not beside_ufm,
    )
    interval, fetch = options.agent_poll_interval, partial(supervisor.fetch_set, service)
    return OpenSmAgent(
        service.report,
        fetch,
        supervisor,
        interval=interval,
        fence_after=options.agent_fence_after or math.inf,
    )


@contextmanager
def running(conf: cfg.ConfigOpts, collector: Collector) -> Iterator[OpenSmAgent]:
    """Runs the agent in a thread of this process until the end of the block. Raises: as ``agent``.

    ``collector`` makes the garbage collections of the process, between its rounds.
    """
    beside = opensm_of_agent(conf)
    looking_after, bus = agent(conf, beside), messaging.connect(conf)
    looking_after.busy = collector.busy
    listener = bus.listener(looking_after.wake) if bus else None
    events, loops = LinkEvents.of(beside), list[Loop]([looking_after])
    if events:
        loops.append(PortEvents(events.happened, looking_after.wake))
    for loop in loops:
        loop.start()
    if listener:
        listener.start()
    try:
        yield looking_after
    finally:
        if listener:
            listener.stop(timeout=1)
        for loop in loops[1:]:
            loop.stop(timeout=1)
        looking_after.stop()
