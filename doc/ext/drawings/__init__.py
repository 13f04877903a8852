# SPDX-License-Identifier: Apache-2.0

"""``.. drawing:: NAME``: a picture that code of this package draws, with its caption as content.

A picture of a fabric, a table or a life asks the service's own code for what it shows, so it cannot
differ from it. It is drawn at every build and not stored, in the colours of the page around it.
``python -m drawings NAME`` (with ``doc/ext`` in PYTHONPATH) prints one as a file for other places.
Builders other than HTML show its description.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from drawings import flows, trees
from drawings.canvas import Canvas


class Picture(NamedTuple):
    """A drawing, and the description that is read aloud in its place."""

    draw: Callable[[], Canvas]
    description: str


PICTURES = {
    "owners": Picture(
        trees.owners,
        "A fat-tree of 24 hosts in which three tenants own hosts and cables of their own colour; "
        "no cable has two colours, and the grey ones are free.",
    ),
    "tables": Picture(
        trees.tables,
        "The forwarding table of one leaf: entries towards the tenant's hosts lead over the "
        "tenant's cables, all others are default entries over cables without an owner.",
    ),
    "remainder": Picture(
        trees.remainder,
        "A tenant on two full leaves and one leaf with two hosts; the table shows that the up "
        "ports of the last leaf wrap around after two.",
    ),
    "chain": Picture(
        trees.chain,
        "Three steps of a routing chain: the first routes the whole fabric, each further one the "
        "topology of one tenant.",
    ),
    "rail": Picture(
        trees.rail,
        "Hosts with two ports on two leaves; the tenant owns one tree of cables on each rail.",
    ),
    "move": Picture(
        trees.move,
        "A tenant with its old place, its new place, and a bridge of free cables that joins them.",
    ),
    "container": Picture(
        trees.container,
        "A container of a project, with two allocations inside it and hosts left over.",
    ),
    "fault": Picture(
        trees.fault,
        "A failed cable of a tenant, the cable that takes its place, and the five steps of the "
        "repair.",
    ),
    "cables": Picture(
        trees.cables,
        "A tenant's packet goes over the tenant's cables; a packet between idle hosts goes over "
        "cables that nobody owns.",
    ),
    "life": Picture(
        flows.life,
        "The states queued, allocating, active, releasing, released and error, with an arrow for "
        "each transition.",
    ),
    "request": Picture(
        flows.request,
        "A request in seven stages: REST, use case, policy, ledger, worker, routes, hosts.",
    ),
    "generation": Picture(
        flows.generation,
        "Generation 42 replaces 41 in the database, the files, OpenSM and the switches; when it "
        "is read back, it is confirmed, and only then Nova opens the hosts.",
    ),
    "change": Picture(
        flows.change,
        "The steps of a change of placement: stop, prepare, switch, enter, leave, withdraw.",
    ),
    "shared-host": Picture(
        flows.shared_host,
        "A host with four slots of three tenants, and the bandwidth that its link promises each.",
    ),
    "queue": Picture(
        flows.queue,
        "Hosts over time: running jobs, the reservation of the queue's head, and two jobs that "
        "overtake it because they end before.",
    ),
    "keys": Picture(
        flows.keys,
        "Members of partition keys: hosts of a tenant are full members of its key, and limited "
        "members of the default key.",
    ),
    "all-in-one": Picture(
        flows.all_in_one, "One machine runs API, worker, SQLite and OpenSM; clients use REST."
    ),
    "controllers": Picture(
        flows.controllers,
        "Each controller runs an API and a worker on one database; they drive Nova and the "
        "subnet manager.",
    ),
    "agents": Picture(
        flows.agents,
        "Controllers run API and worker; each subnet manager has an agent that calls them.",
    ),
    "aggregates": Picture(
        flows.aggregates,
        "All managed hosts are in the pool, which accepts nobody; the hosts of an allocation are "
        "also in an aggregate that accepts its project alone.",
    ),
    "ufm": Picture(
        flows.ufm,
        "A worker asks UFM for partitions over REST; an agent on UFM's machine puts the files of "
        "routes where UFM's subnet manager reads them.",
    ),
    "slurm": Picture(
        flows.slurm,
        "laas-slurm beside slurmctld asks the service for the links of each job; the prolog on "
        "each node checks them.",
    ),
    "house": Picture(flows.house, "The packages of laas_service as storeys; imports go down only."),
}


def svg(name: str, *, alone: bool = False) -> str:
    """A picture as SVG. Raises: KeyError."""
    picture = PICTURES[name]
    return picture.draw().svg(picture.description, alone=alone)


class Drawing(SphinxDirective):
    """The directive."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, object]] = {}  # type: ignore[misc]

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in PICTURES:
            raise self.error(f"drawing: {name!r} is not among {', '.join(PICTURES)}")
        figure = nodes.container(classes=["drawing"])
        if self.env.app.builder.format == "html":
            figure += nodes.raw("", svg(name), format="html")
        else:
            figure += nodes.paragraph("", PICTURES[name].description)
        if self.content:
            caption = nodes.container(classes=["drawing-caption"])
            self.state.nested_parse(self.content, self.content_offset, caption)
            figure += caption
        return [figure]


def setup(app: Sphinx) -> dict[str, object]:
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
