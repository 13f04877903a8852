# SPDX-License-Identifier: Apache-2.0

"""Slurm output: the fabric as ``topology.conf``, and host list expressions.

Slurm's topology/tree plugin describes plain trees: every switch has one switch above it. A
fat-tree is therefore written with one switch for all L2 switches of a pod and one for all
spines, as sites do by hand. Hosts with several rails are below one switch for each leaf group.
"""

import re
from collections.abc import Iterable, Iterator

from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Topology

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
"""Safe names of Slurm nodes. Slurm accepts more, but mishandles some of them."""

MOST_NAMES = 100_000
"""The most names of a list of hosts."""

_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")


def usable(name: str) -> bool:
    """Whether a Slurm node can have this name."""
    return _NAME.fullmatch(name) is not None


def host_list(names: Iterable[str]) -> str:
    """The names as a host list expression of Slurm, such as ``node[000-003,7],sm0``.

    ``scontrol show hostnames`` expands it to the same names, in order of their prefixes
    and numbers, each once.
    """
    runs: dict[str, list[list[str]]] = {}
    for prefix, number in sorted(map(_split, set(names)), key=_order):
        ranges = runs.setdefault(prefix, [])
        if ranges and _follows(ranges[-1][-1], number, ranges[-1][0]):
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join(_expression(prefix, ranges) for prefix, ranges in runs.items())


def topology_conf(topology: Topology, inventory: Inventory) -> str:
    """The fabric's tenant hosts as ``topology.conf``; equal fabrics give equal text.

    Hosts whose names Slurm cannot use are left out and named in a comment.
    """
    pods: dict[str, list[str]] = {}
    lines = []
    for group in range(topology.groups):
        pod, leaf = divmod(group, topology.groups_per_pod)
        hosts = [name for name in _hosts(topology, inventory, group) if usable(name)]
        if hosts:
            switch = f"leaf-{pod}-{leaf}"
            lines += [f"# {_one_line(name)}" for name in _leaves(topology, inventory, group)]
            lines += [f"SwitchName={switch} Nodes={host_list(hosts)}"]
            pods.setdefault(f"pod-{pod}", []).append(switch)
    lines += [f"SwitchName={pod} Switches={host_list(leaves)}" for pod, leaves in pods.items()]
    if len(pods) > 1 and topology.tree.w[2]:
        lines.append(f"SwitchName=spines Switches={host_list(pods)}")
    unusable = [name for name in inventory.host_names if name and not usable(name)]
    head = ["# For Slurm with TopologyPlugin=topology/tree; each comment names the switches below."]
    head += [f"# No name for a Slurm node, left out: {_one_line(name)}" for name in unusable]
    return "\n".join([*head, *lines, ""])


def _hosts(topology: Topology, inventory: Inventory, group: int) -> Iterator[str]:
    for position in range(topology.hosts_per_group):
        host = topology.host_at(group, position)
        if host is not None and host not in topology.absent_hosts:
            yield inventory.host_names[host]


def _leaves(topology: Topology, inventory: Inventory, group: int) -> Iterator[str]:
    for leaf in topology.leaves_of_group(group):
        switch = inventory.switch_of_guid.get(inventory.leaf_guids[leaf])
        if switch:
            yield f"{switch.name} ({switch.guid:#018x})"


def _one_line(text: str) -> str:
    """The text on one line, without control characters or a backslash at its end."""
    return text.encode("unicode_escape").decode("ascii").replace("\\", "/")


def _split(name: str) -> tuple[str, str]:
    """A name without the number at its end, and that number; "" if it has none."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[2]) if match else (name, "")


def _order(parts: tuple[str, str]) -> tuple[str, int, int]:
    prefix, number = parts
    return prefix, int(number or -1), len(number)


def _follows(last: str, number: str, first: str) -> bool:
    """Whether a number is next in a range; Slurm pads numbers to the width of the first."""
    return bool(last) and f"{int(last) + 1:0{len(first)}d}" == number


def _expression(prefix: str, ranges: list[list[str]]) -> str:
    if ranges == [[""]]:
        return prefix
    texts = ["-".join(ends) for ends in ranges if ends != [""]]
    alone = [prefix] if [""] in ranges else []
    bare = len(texts) == 1 and "-" not in texts[0]
    return ",".join([*alone, f"{prefix}{texts[0]}" if bare else f"{prefix}[{','.join(texts)}]"])


def expanded(expression: str) -> tuple[str, ...]:
    """The names of a host list expression such as ``node[00-03,7],sm0``; ``host_list`` inverts it.

    Raises:
        ValueError: brackets or ranges are wrong, or there are more than ``MOST_NAMES`` names.
    """
    names: list[str] = []
    for item in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", expression):
        parts = re.split(r"\[([^\[\]]*)\]", item)
        made = [parts[0]]
        for ranges, tail in zip(parts[1::2], parts[2::2], strict=True):
            made = [f"{name}{n}{tail}" for name in made for n in _numbers(ranges)]
            if len(made) + len(names) > MOST_NAMES:
                raise ValueError(f"a list has at most {MOST_NAMES} names")
        names += made
    if not names or expression.count("[") != expression.count("]") or not all(map(usable, names)):
        raise ValueError(f"{expression[:80]!r} is no list of hosts")
    return tuple(names)


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and len(last) < 10):
            raise ValueError(f"[{ranges[:80]}] is no list of numbers")
        if not 0 <= int(last) - int(first) < MOST_NAMES:
            raise ValueError(f"{part} is no range of numbers")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}}"
