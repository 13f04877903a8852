# SPDX-License-Identifier: Apache-2.0

"""The tree of one tenant as an SVG drawing: its hosts, leaves, L2 switches, spines and links.

All links of a level and a state are one path, so a drawing of thousands of links stays small.
Colours come from the attributes, so the file prints alone; a page may override the classes.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from laas_service.domain.allocation import Allocation
from laas_service.domain.topology import LeafLink, Link, Topology

COLUMN, LEVEL, MARGIN = 14, 90, 24
"""User units: width of one host, height of one level, margin around the tree."""

NAMED = 64
"""Hosts and switches get names in the drawing while the tree has at most so many hosts."""


class _Switch(NamedTuple):
    """A switch of the drawing: its level (1 to 3) and its index there."""

    level: int
    at: tuple[int, int]


def tree_drawing(
    title: str,
    allocation: Allocation,
    topology: Topology,
    host_names: Sequence[str],
    failed: Callable[[Link], bool],
) -> str:
    """An SVG document of the hosts and links that an allocation holds.

    ``title`` is its accessible name. ``failed`` tells the links that are drawn as failed.
    """
    cables = topology.tree.cables
    hosts = allocation.hosts(topology)
    leaf_of = {}
    for host in hosts:
        for rail, port in enumerate(topology.ports_of(host)):
            leaf_of[host, rail] = (port.pod, port.leaf)
    links: dict[tuple[bool, int], list[tuple[_Switch, _Switch]]] = {}
    for link in allocation.links(topology):
        pod, low, up = link
        if isinstance(link, LeafLink):
            ends = _Switch(1, (pod, low)), _Switch(2, (pod, up // cables[0]))
        else:
            ends = _Switch(2, (pod, low)), _Switch(3, (low, up // cables[1]))
        links.setdefault((failed(link), ends[0].level), []).append(ends)
    switches = {_Switch(1, at) for at in leaf_of.values()}
    switches |= {end for pairs in links.values() for pair in pairs for end in pair}
    levels = {
        level: sorted(switch for switch in switches if switch.level == level) for level in (1, 2, 3)
    }
    top = max((level for level, members in levels.items() if members), default=1)
    on_leaf: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (host, rail), leaf in sorted(leaf_of.items()):
        on_leaf.setdefault(leaf, []).append((host, rail))
    columns = sum(len(on_leaf.get(member.at, ())) or 1 for member in levels[1]) + len(levels[1])
    widest = max(columns, *(2 * len(members) for members in levels.values()))
    width, height = widest * COLUMN + 2 * MARGIN, top * LEVEL + 2 * MARGIN + 60
    base = height - MARGIN - 50
    place: dict[_Switch, tuple[float, float]] = {}
    host_places: list[tuple[int, float]] = []
    host_lines: list[tuple[float, float, float, float]] = []
    x = MARGIN + (widest - columns) * COLUMN / 2
    for switch in levels[1]:
        members = on_leaf.get(switch.at, ())
        span = max(len(members), 1) * COLUMN
        place[switch] = (x + span / 2, base - LEVEL * 0.6)
        for number, (host, _) in enumerate(members):
            at = x + (number + 0.5) * COLUMN
            host_places.append((host, at))
            host_lines.append((at, base, *place[switch]))
        x += span + COLUMN
    for level in (2, 3):
        for number, switch in enumerate(levels[level]):
            across = MARGIN + (number + 0.5) * widest * COLUMN / len(levels[level])
            place[switch] = (across, base - LEVEL * (level - 0.4))
    named = len(hosts) <= NAMED
    summary = (
        f"{len(hosts)} hosts, {len(levels[1])} leaves, {len(levels[2])} L2 switches, "
        f"{len(levels[3])} spines"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" font-family="sans-serif" '
        f'font-size="9">',
        f"<title>{escape(title)}: {summary}</title>",
        _path("tree-link", "#7a7a7a", host_lines),
    ]
    for (broken, _), pairs in sorted(links.items()):
        lines = [(*place[low], *place[high]) for low, high in pairs]
        colour, kind = ("#b00020", "tree-failed") if broken else ("#2f6f9f", "tree-link")
        parts.append(_path(kind, colour, lines, broken))
    for switch, (across, down) in place.items():
        parts.append(
            f'<rect class="tree-switch" x="{across - 5:g}" y="{down - 4:g}" width="10" height="8" '
            f'fill="#2f6f9f"><title>{_switch_name(switch)}</title></rect>'
        )
    for host, across in host_places:
        name = escape(host_names[host] if host < len(host_names) else str(host))
        parts.append(
            f'<circle class="tree-host" cx="{across:g}" cy="{base:g}" r="4" fill="#2f6f9f">'
            f"<title>{name}</title></circle>"
        )
        if named:
            parts.append(
                f'<text class="tree-text" x="{across + 3:g}" y="{base + 8:g}" fill="#333333" '
                f'transform="rotate(90 {across - 3:g} {base + 8:g})">{name}</text>'
            )
    if named:
        for switch, (across, down) in place.items():
            parts.append(
                f'<text class="tree-text" x="{across + 7:g}" y="{down - 6:g}" fill="#333333">'
                f"{switch.at[0]}/{switch.at[1]}</text>"
            )
    return "".join(part for part in parts if part) + "</svg>"


def _switch_name(switch: _Switch) -> str:
    first, second = switch.at
    if switch.level == 3:
        return f"spine {second} of group {first}"
    return f"{'leaf' if switch.level == 1 else 'L2 switch'} {second} of pod {first}"


def _path(
    kind: str,
    colour: str,
    lines: Iterable[tuple[float, float, float, float]],
    broken: bool = False,
) -> str:
    """One path of straight lines from (x, y) to (x, y); empty without lines."""
    steps = "".join(f"M{a:g} {b:g}L{c:g} {d:g}" for a, b, c, d in lines)
    if not steps:
        return ""
    dashes = ' stroke-dasharray="4 3" stroke-width="2"' if broken else ' stroke-width="0.7"'
    return f'<path class="{kind}" d="{steps}" fill="none" stroke="{colour}"{dashes}/>'
