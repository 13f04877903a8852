# SPDX-License-Identifier: Apache-2.0

"""The hosts of a fabric as text: one character a host, leaves beside each other, a line a pod."""

from collections.abc import Iterator, Mapping

from laas_service.domain.ledger import LedgerView

FREE, FAILED, DRAINED, ABSENT, UNMARKED = ".!~ #"
"""Hosts without an owner, and owners beyond those that have a mark."""

MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
LEGEND = f"{FREE} free  {FAILED} failed  {DRAINED} drained"


def marks(ledger: LedgerView) -> dict[str, str]:
    """The mark of each allocation, in the order of their first hosts; equal fabrics have equal
    marks. A container comes before those inside, and hosts show their innermost owner."""
    first = {a.id: a.hosts(ledger.topology)[:1] for a in ledger.everybody()}
    ids = sorted(first, key=lambda id: first[id])
    return {id: MARKS[n] if n < len(MARKS) else UNMARKED for n, id in enumerate(ids)}


def picture(ledger: LedgerView, marked: Mapping[str, str], width: int) -> Iterator[str]:
    """Lines of at most ``width`` characters, unless a leaf is wider; ``marked`` as of ``marks``."""
    topology = ledger.topology
    owners = ledger.owners_of_hosts()

    def cell(host: int | None) -> str:
        if host is None or host in topology.absent_hosts:
            return ABSENT
        if host in ledger.failed_hosts:
            return FAILED
        if host in owners:
            return marked.get(owners[host], UNMARKED)
        return DRAINED if host in ledger.drained_hosts else FREE

    pods = topology.groups // topology.groups_per_pod
    head = f"pod {{:>{len(str(pods - 1))}}}  "
    indent = len(head.format(0))
    a_line = max(1, (width - indent + 1) // (topology.hosts_per_group + 1))
    for pod in range(pods):
        first = pod * topology.groups_per_pod
        leaves = [
            "".join(
                cell(topology.host_at(group, position))
                for position in range(topology.hosts_per_group)
            )
            for group in range(first, first + topology.groups_per_pod)
        ]
        for begin in range(0, len(leaves), a_line):
            name = " " * indent if begin else head.format(pod)
            yield (name + " ".join(leaves[begin : begin + a_line])).rstrip()
