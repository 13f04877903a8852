# SPDX-License-Identifier: Apache-2.0

"""Tenants that send packets through switches with small buffers, beside the max-min fair rates.

``python -m research_tests.packets`` plays the case of Figure 11 of LaaS (ANCS'16) both ways.
Time goes in slots, in which a link carries one packet. Behind every link to a switch is a buffer,
served in order: a packet that cannot go on stops those behind it, and a full buffer stops its link.
Switches serve the buffers in turn, hosts their flows.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from laas_research.interference.engine import (
    BANDWIDTH,
    LATENCY,
    Application,
    Meetings,
    Played,
    play,
)
from laas_research.interference.rates import NO_LINK
from laas_research.interference.routes import Routes
from laas_research.interference.study import Study, run
from laas_service.adapters.fabric_import.fabric_file import parse_fabric

PACKET = 2048
"""Bytes of a packet: the usual MTU of InfiniBand."""

SLOT = PACKET / BANDWIDTH
"""Seconds in which a link carries a packet."""


class Packet(NamedTuple):
    """A packet behind a link of its path."""

    tenant: int
    path: list[int]
    place: int


class _Phase(NamedTuple):
    paths: list[list[int]]
    """Of each flow: from the link of the sending host to that of the receiving one."""
    packets: int
    """Of each flow."""


class _Tenant:
    """One application while it is played."""

    def __init__(self, application: Application, routes: Routes, rails: int, start: float) -> None:
        hosts = np.array(application.hosts)
        self.phases = []
        for phase in application.phases:
            pairs = hosts[np.array(phase.flows, dtype=np.int64).reshape(-1, 2)]
            rows = [routes.paths(rail, pairs[:, 0], pairs[:, 1]) for rail in range(rails)]
            paths = [
                [up, *(link for link in between if link != NO_LINK), down]
                for up, down, *between in np.concatenate(rows).tolist()
            ]
            size = application.message * phase.share * phase.rounds / rails
            self.phases.append(_Phase(paths, max(1, round(size / PACKET))))
        self.begin = self.wakes = round(start / SLOT)
        self.pause = round(application.compute / SLOT)
        self.phase = 0
        self.missing = 0
        """Packets of this phase that have still to arrive."""
        self.done = 0
        """Iterations."""

    def next_phase(self) -> bool:
        """Whether an iteration has ended with this phase."""
        self.phase = (self.phase + 1) % len(self.phases)
        self.done += not self.phase
        return not self.phase


class _Network:
    """The buffers, and which of them have a packet for each link."""

    def __init__(self, links: int, buffer: int) -> None:
        self.buffer = buffer
        self.behind: list[deque[Packet]] = [deque() for _ in range(links)]
        self.turns: list[deque[int]] = [deque() for _ in range(links)]
        self.busy: dict[int, None] = {}
        self.flows: dict[int, deque[tuple[Packet, int]]] = {}
        """By link of a sending host: the next packet of each flow, and how many there are."""

    def send(self, tenant: int, phase: _Phase) -> None:
        for path in phase.paths:
            flows = self.flows.setdefault(path[0], deque())
            flows.append((Packet(tenant, path, 0), phase.packets))

    def slot(self) -> list[Packet]:
        """Let every link carry a packet, if one can go on; return those that arrive."""
        behind, buffer = self.behind, self.buffer
        sending = [link for link in self.flows if len(behind[link]) < buffer]
        # the last link of a path ends at a host: nothing is ever behind it
        moving = [link for link in self.busy if len(behind[link]) < buffer]
        arrived: list[Packet] = []
        entering: list[Packet] = []
        for link in moving:
            turns = self.turns[link]
            before = turns.popleft()
            tenant, path, place = behind[before].popleft()
            packet = Packet(tenant, path, place + 1)
            (arrived if link == path[-1] else entering).append(packet)
            if behind[before]:
                self._wait(before)
            if not turns:
                del self.busy[link]
        for link in sending:
            flows = self.flows[link]
            packet, left = flows.popleft()
            entering.append(packet)
            if left > 1:
                flows.append((packet, left - 1))
            elif not flows:
                del self.flows[link]
        for packet in entering:
            link = packet.path[packet.place]
            behind[link].append(packet)
            if len(behind[link]) == 1:
                self._wait(link)
        return arrived

    def _wait(self, link: int) -> None:
        """The first packet behind a link waits for its turn on the next one."""
        packet = self.behind[link][0]
        following = packet.path[packet.place + 1]
        self.turns[following].append(link)
        self.busy[following] = None


def play_packets(
    applications: Sequence[Application],
    routes: Routes,
    *,
    rails: int = 1,
    iterations: int = 4,
    starts: Sequence[float] | None = None,
    resolution: float = 0.0,
    buffer: int = 16,
) -> Played:
    """As ``engine.play``, packet by packet, with ``buffer`` packets behind a link, 2 or more.

    Meetings are not counted, and ``resolution`` is not used. A message needs ``LATENCY`` and a slot
    for each link.
    """
    begins = list(starts or [0.0] * len(applications))
    tenants = [
        _Tenant(application, routes, rails, start)
        for application, start in zip(applications, begins, strict=True)
    ]
    network = _Network(len(routes.capacity), buffer)
    ends: dict[int, int] = {}
    asleep = set(range(len(tenants)))
    latency = round(LATENCY / SLOT)
    now = 0
    while True:
        for number in [number for number in asleep if tenants[number].wakes <= now]:
            tenant = tenants[number]
            if tenant.done >= iterations:
                ends.setdefault(number, now - tenant.pause)
            asleep.discard(number)
            phase = tenant.phases[tenant.phase]
            tenant.missing = len(phase.paths) * phase.packets
            network.send(number, phase)
        if len(ends) == len(tenants):
            break
        for packet in network.slot():
            tenant = tenants[packet.tenant]
            tenant.missing -= 1
            if not tenant.missing:
                pause = tenant.pause if tenant.next_phase() else 0
                tenant.wakes = now + 1 + latency + pause
                asleep.add(packet.tenant)
        now += 1
    seconds = [(ends[i] - tenant.begin) * SLOT / iterations for i, tenant in enumerate(tenants)]
    return Played(seconds, Meetings())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research_tests.packets", description=__doc__)
    parser.add_argument("--xgft", default="3;12,12,12;1,12,12", help="the tree")
    parser.add_argument("--tenants", type=int, default=32)
    parser.add_argument("--messages", type=int, nargs="+", default=[32768], help="bytes")
    parser.add_argument("--buffers", type=int, nargs="+", default=[8, 16, 64], help="packets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    options = parser.parse_args(arguments)
    file = parse_fabric(options.xgft, "xgft")
    players = {"max-min": play} | {
        f"{buffer} packets": partial(play_packets, buffer=buffer) for buffer in options.buffers
    }
    for seed in options.seeds:
        study = Study(
            tenants=options.tenants,
            messages=options.messages,
            policies=("random", "laas"),
            routings=("own", "d-mod-k"),
            seed=seed,
        )
        for name, player in players.items():
            for r in run(study, file.topology, file.inventory, player=player):
                alone, among = 100 / r["to_private_alone"], 100 / r["slowdown"]
                print(
                    f"seed {seed}  {name:12}{r['message']:9}  {r['policy']:8}"
                    f"{alone:7.1f} of private alone, {among:6.1f} of that among the others",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
