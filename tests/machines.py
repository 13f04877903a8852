# SPDX-License-Identifier: Apache-2.0

"""Machines with adapters of any description, plugged into a tree of two levels, and the dump.

The judge of recovered machines: it knows which adapter is in which machine, because it built them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Node:
    """A node beside the switches: its description, and the leaf that each port is plugged into."""

    guid: int
    system: int
    name: str
    at: Sequence[int]
    kind: str = "Ca"
    machine: int | None = None
    """Number of its machine; None for routers and parts of switches."""

    speed: str = "4xNDR"
    lmc: int = 0

    def port_guid(self, port: int) -> int:
        return self.guid + port - 1


@dataclass
class Plugged:
    """Leaves 0.. and then spines; ``nodes`` are plugged in one after the other."""

    leaves: int = 4
    spines: int = 2
    ports: int = 65
    nodes: list[Node] = field(default_factory=list)
    parallel: int = 1
    planes: int = 1
    """Leaves and spines are split into this many trees without a cable between them."""

    def add(self, name: str, *at: int, machine: int | None = None, system: int = 0) -> Node:
        """A node with one port on each switch of ``at``."""
        guid = 0x0C42A10300100000 + 0x100 * len(self.nodes)
        node = Node(guid, system or guid, name, at, machine=machine)
        self.nodes.append(node)
        return node

    def dump(self) -> str:
        """The output of ``ibnetdiscover``."""
        used = dict.fromkeys(range(self.leaves + self.spines), 0)
        lines: dict[int, list[str]] = {switch: [] for switch in used}
        blocks = []

        def plug(switch: int) -> int:
            used[switch] += 1
            return used[switch]

        for leaf in range(self.leaves):
            for spine in range(self.leaves, self.leaves + self.spines):
                if (leaf - (spine - self.leaves)) % self.planes:
                    continue
                for _ in range(self.parallel):
                    a, b = plug(leaf), plug(spine)
                    for near, far, m, n in ((leaf, spine, a, b), (spine, leaf, b, a)):
                        lines[near].append(
                            f'[{m}]\t"S-{switch_guid(far):016x}"[{n}]\t\t# "sw{far}" lid 1 4xNDR'
                        )
        letters = {"Ca": "H", "Rt": "R"}
        for node in self.nodes:
            letter = letters[node.kind]
            block = [
                f"vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{node.system:x}",
                f"{node.kind.lower()}guid=0x{node.guid:x}",
                f'{node.kind}\t{max(len(node.at), 1)} "{letter}-{node.guid:016x}"\t\t'
                f'# "{node.name}"',
            ]
            for port, switch in enumerate(node.at, 1):
                far, guid = plug(switch), node.port_guid(port)
                lines[switch].append(
                    f'[{far}]\t"{letter}-{node.guid:016x}"[{port}]({guid:x}) \t\t# "{node.name}" '
                    f"lid 9 {node.speed}"
                )
                block.append(
                    f'[{port}]({guid:x}) \t"S-{switch_guid(switch):016x}"[{far}]\t\t# lid 9 '
                    f'lmc {node.lmc} "sw{switch}" lid 1 {node.speed}'
                )
            blocks.append("\n".join(block))
        switches = [
            f"sysimgguid=0x{switch_guid(n):x}\nswitchguid=0x{switch_guid(n):x}\n"
            f'Switch\t{self.ports} "S-{switch_guid(n):016x}"\t\t# "sw{n}" enhanced port 0 '
            "lid 1 lmc 0\n" + "\n".join(lines[n])
            for n in used
        ]
        return "\n\n".join([*switches, *blocks]) + "\n"


def switch_guid(number: int) -> int:
    return 0xFC6A1C0300000000 + 0x40 * (number + 1)


DEFAULTS = (
    "", "mlx5_0", "localhost mlx5_0", "localhost.localdomain mlx5_0", "(none) mlx5_0",
    "LOCALHOST HCA-1",
    "MT4129 ConnectX7   Mellanox Technologies", "QLogic Infiniband HCA", "Voltaire HCA400Ex-D",
    "NVIDIA ConnectX-7", "Mellanox ConnectX-5 Ex", "Linux InfiniBand HCA", "localhost_mlx5_1",
    "%h mlx5_0", "HCA-1", "hfi1_0",
)  # fmt: skip
"""Descriptions that name no machine."""

STYLES = (
    "{host} mlx5_{n}", "mlx5_{n} {host}", "{host}_mlx5_{n}", "{host}-mlx5_{n}", "{host} HCA-{n}",
    "HCA-{n} {host}", "{host}.mlx5_{n}", "{host}:mlx5_{n}", "{host} mlx5_{n} rack 7",
    "mlx5_{n}_{host}",
    "MT4129 ConnectX7 Mellanox Technologies {host} HCA-{n}",
)  # fmt: skip
"""Descriptions with a host's and a device's name."""


@dataclass
class Machines(Plugged):
    """Machines at random, on two rails, and what must be found of them."""

    named: set[str] = field(default_factory=set)
    """Machines that are told apart by name, on both leaves of their group."""

    @classmethod
    def at_random(cls, seed: int) -> Machines:
        rng = random.Random(seed)
        made = cls(leaves=2 * rng.randint(1, 3), spines=rng.randint(1, 3), ports=129)
        for number in range(rng.randint(12, 40)):
            made._machine(rng, number, number < 12)
        for spine in range(made.leaves, made.leaves + made.spines):
            if rng.random() < 0.3:
                made.add("Mellanox Technologies Aggregation Node", spine)
            if rng.random() < 0.2:
                made.add(f"MF0;gw{spine}:MGA100/U1", spine)
            if rng.random() < 0.2:
                made.add(f"MF0;sw{spine}:Q3400_RA/U1/RT", spine).kind = "Rt"
        rng.shuffle(made.nodes)
        return made

    def _machine(self, rng: random.Random, number: int, sound: bool) -> None:
        group = rng.randrange(self.leaves // 2)
        at = (2 * group, 2 * group + 1)
        kind = "sound" if sound else rng.choice(["sound", "default", "clone", "spelled", "bare"])
        host = "clone" if kind == "clone" else f"node{number:03d}"
        if kind in ("sound", "spelled") and rng.random() < 0.2:
            host = host.upper()
        card = rng.random() < 0.5
        style, system = rng.choice(STYLES), 0
        for n, leaf in enumerate(at):
            name = style.format(host=host, n=n)
            if kind == "default":
                name = rng.choice(DEFAULTS)
            elif kind == "bare":
                name = host
            elif kind == "spelled" and n:
                other = rng.choice([host.swapcase(), f"{host}.hpc.example.org"])
                name = style.format(host=other, n=n)
            node = self.add(name, leaf, machine=number, system=system)
            system = node.system if card else 0
        if kind == "sound":
            self.named.add(host)
