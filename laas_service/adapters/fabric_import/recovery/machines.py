# SPDX-License-Identifier: Apache-2.0

"""Machines, recovered from the node descriptions of their adapters, with GUIDs as a check.

A description usually holds a host name and a device name, in either order, apart or glued
together. Adapters with one host name belong to one machine, unless GUIDs contradict: one device
name on several cards (node GUIDs with different system images) is a sign of several machines.
Equal system images join nothing, because cards with several machines exist. Names that every
unconfigured machine has, and default descriptions of vendors, name no machine.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from laas_service.adapters.fabric_import.ibnetdiscover import DumpContent, DumpNode, Kind
from laas_service.adapters.fabric_import.recovery.report import Irregularity, Reason
from laas_service.domain.wording import listed

_DRIVERS = (
    r"mlx[45]_(?:bond_?)?\d+|hfi1_\d+|qib_?\d+|ipath_?\d+|mthca_?\d+|hca[-_]?\d{1,2}|ehca_?\d+|"
    r"irdma\d+|bnxt_re\d+|cxgb\d_\d+|ocrdma\d+|qedr\d+|efa_\d+|ib[ps]\d\w*s\d\w*|roce[ps]\d\w*"
)
_DEVICE = re.compile(_DRIVERS, re.I)
"""Names of devices; ``HCA-1`` is how older drivers count them."""

_INTERFACE = re.compile(r"ib\d", re.I)
"""A network interface; beside a device it is a host name."""

_GLUED = re.compile(rf"(.*?)[-_.:;,/@(]({_DRIVERS})\)?", re.I)
_GLUED_IN_FRONT = re.compile(rf"({_DRIVERS})[-_.:;,/@(]([a-z].*?)\)?", re.I)

_NOBODY = re.compile(
    r"local(?:host|domain)[46]?(?:\..*|-live.*)?|\(?none\)?|\(?null\)?|%[hd]|linux|unknown|"
    r"unnamed|unassigned.*|[-_.?]*",
    re.I,
)
"""Host names of machines that have not got theirs."""

_PRODUCT = re.compile(
    r"MT\d{3,}\S*|MCX\d\S*|Mellanox|Technolog(?:y|ies)|NVIDIA|QLogic|QLE\d\S*|Voltaire|Topspin|"
    r"SilverStorm|PathScale|Chelsio|Emulex|Cornelis|Infini(?:Band|Host|Path)\S*|OpenIB|"
    r"OpenFabrics|OFED|Connect-?(?:X|IB)\S*|BlueField\S*|True-?Scale|Omni-?Path|HCA\d*\w*(?:-\w)?|.*\((?:R|TM)\)",
    re.I,
)
"""Words of vendors' default descriptions that are no host names."""

_WORD = re.compile(
    r"Intel|Cisco|Sun|Oracle|IBM|HPE?|Dell|Lenovo|Supermicro|Fujitsu|Corporation|Inc\.?|Ltd\.?|"
    r"Host|Channel|Adapter|Card|Networks?|Systems|Fabric|Suite|Family|Dual|Single|Port|Dual-Port|"
    r"Single-Port|Dx|Lx|Ex|Pro|EN|VPI|I{1,3}|[SDQFEHNX]DR\d*|PCIe?\S*|Gen\d|rev\S*",
    re.I,
)
"""Words beside those; the first of a description only if no device follows."""

_PARTS = (
    (Reason.AGGREGATION, re.compile(r"Aggregation Node", re.I)),
    (Reason.GATEWAY, re.compile(r"^MF\d+;|\b(?:Skyway|BridgeX|MGA100|MSG8200)\b", re.I)),
    (
        Reason.SERVICE_PROCESSOR,
        re.compile(r"(?<![a-z\d])(?:e?BMC|ILOM|iDRAC|Service Processor)(?![a-z\d])", re.I),
    ),
)
"""Adapters of no machine for tenants. A managed chassis describes its parts with ``MF0;``."""

_GATEWAY = re.compile(r"\b(?:Gateway|GW)\b", re.I)


@dataclass(frozen=True, slots=True)
class Identity:
    """The machine of an adapter, as far as it can be told."""

    host: str
    """The host's name; "" if the description names no machine."""

    device: str = ""
    """The name of the device, or the rest of the description."""

    kept: Reason | None = None
    """Why the adapter is for no tenant, as far as identity goes; None for named machines."""


def described(name: str) -> Identity:
    """The host and device that a node description names.

    >>> described("node01 mlx5_0").host, described("mlx5_0 node01").host
    ('node01', 'node01')
    """
    words = name.split()
    if len(words) == 2 and words[0].isalnum() and _DEVICE.fullmatch(words[1]):
        host, device = words
        return Identity(host, device) if _may_be_a_host(host) else _no_host(device)
    for part, pattern in _PARTS:
        if pattern.search(name):
            return Identity("", name, part)
    devices = [word for word in words if _DEVICE.fullmatch(word)]
    if not devices and _GATEWAY.search(name):
        return Identity("", name, Reason.GATEWAY)
    host, device = _named(words, bool(devices))
    return Identity(host, device) if host and not _NOBODY.fullmatch(host) else _no_host(device)


def _no_host(device: str) -> Identity:
    return Identity("", device, Reason.NAMELESS)


def _may_be_a_host(word: str) -> bool:
    return not (_NOBODY.fullmatch(word) or _nameless(word))


def _named(words: list[str], devices: bool) -> tuple[str, str]:
    """Host and device; the host is "" if no word can be one."""
    if not words:
        return "", ""
    first, rest = words[0], " ".join(words[1:])
    if not _DEVICE.fullmatch(first):
        if glued := _GLUED.fullmatch(first):
            return glued[1], glued[2]
        if glued := _GLUED_IN_FRONT.fullmatch(first):
            return glued[2], glued[1]
    interface = bool(_INTERFACE.fullmatch(first))
    vendor = len(words) > 1 and bool(_WORD.fullmatch(first))
    if not _nameless(first) and (devices or not (interface or vendor)):
        return first, rest
    if _NOBODY.fullmatch(first) and devices:
        return "", rest
    left = [w for w in words if not (_nameless(w) or _WORD.fullmatch(w) or _INTERFACE.fullmatch(w))]
    named = [word for word in words if not _DEVICE.fullmatch(word)]
    found = left[0] if len(left) == 1 and left[0] == named[-1] else ""
    sure = interface or bool(_DEVICE.fullmatch(first))
    if found:
        before = words[words.index(found) - 1]
        like_a_host = found[0].islower() and found[-1].isdigit()  # models have capitals
        sure = sure or like_a_host or before.lower() == "technologies"
    if found and sure:
        return found, " ".join(word for word in words if word != found)
    return "", " ".join(words)


def _nameless(word: str) -> bool:
    return bool(_DEVICE.fullmatch(word) or _PRODUCT.fullmatch(word) or word.lower() == "linux")


@lru_cache(4096)
def _distinctive(device: str) -> str:
    """What tells adapters of one machine apart; "" if the description does not."""
    words = device.lower().split()
    devices = [word for word in words if _DEVICE.fullmatch(word)]
    return " ".join(devices[:1] or (word for word in words if not _is_product(word)))


def _is_product(word: str) -> bool:
    return bool(_PRODUCT.fullmatch(word) or _WORD.fullmatch(word))


@dataclass
class Machines:
    """Identities of the adapters of a fabric, by node GUID, and what was odd about them."""

    of: dict[int, Identity] = field(default_factory=dict)
    odd: list[Irregularity] = field(default_factory=list)

    @classmethod
    def among(cls, nodes: Iterable[DumpNode]) -> "Machines":
        """Join adapters to machines by name, and check each machine by GUIDs."""
        machines, groups = cls(), defaultdict[str, list[DumpNode]](list)
        for node in nodes:
            if node.kind is Kind.SWITCH:
                continue
            if node.kind is Kind.ROUTER:
                machines.of[node.guid] = Identity("", node.name, Reason.ROUTER)
                continue
            machines.of[node.guid] = identity = described(node.name)
            if identity.host:
                groups[identity.host.lower()].append(node)
        machines._join_domains(groups)
        usual = machines._usual_number(groups)
        for group in groups.values():
            if len(group) > 1:
                machines._check(group, usual)
        return machines

    def _join_domains(self, groups: dict[str, list[DumpNode]]) -> None:
        """Join a short name to the only full domain name that begins with it."""
        full = defaultdict[str, list[str]](list)
        for name in groups:
            short, dot, _ = name.partition(".")
            if dot and short in groups:
                full[short].append(name)
        for short, names in full.items():
            if len(names) == 1:
                groups[names[0]] += groups.pop(short)
            else:
                text = f"{short} may be any of {listed(sorted(names))}"
                self._keep_out(groups.pop(short), text)

    def _usual_number(self, groups: Mapping[str, list[DumpNode]]) -> int:
        """The number of cards without device names that most such machines have."""
        counts: Counter[int] = Counter()
        for group in groups.values():
            bare = [node for node in group if not _distinctive(self.of[node.guid].device)]
            if bare:
                counts[len(self._cards(bare)[""])] += 1
        usual, times = max(counts.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        return usual if times > 1 and 2 * times > counts.total() else 1

    def _cards(self, group: Iterable[DumpNode]) -> dict[str, list[DumpNode]]:
        """By device name the adapters of different cards."""
        cards: dict[str, dict[int, DumpNode]] = defaultdict(dict)
        for node in group:
            device = _distinctive(self.of[node.guid].device)
            cards[device].setdefault(node.system_image or node.guid, node)
        return {device: list(nodes.values()) for device, nodes in cards.items()}

    def _check(self, group: list[DumpNode], usual: int) -> None:
        """Give a machine one spelling of its name, or keep it out if it must be several."""
        found = self._cards(group)
        counted = {device for device in found if device.startswith("hca")}
        if counted and any(device.startswith("mlx") for device in found):
            text = listed([f"{device} ({cards[0].guid:#018x})" for device, cards in found.items()])
            name = self.of[group[0].guid].host
            self._keep_out(group, f"{name} has devices named in two ways, {text}")
            return
        for device, cards in found.items():
            if len(cards) > (1 if device else usual):
                guids = listed([f"{node.guid:#018x}" for node in cards], 4)
                what = f"device {device}" if device else "an adapter"
                name = self.of[group[0].guid].host
                self._keep_out(group, f"{name}: {what} has {len(cards)} node GUIDs, {guids}")
                return
        spelled = Counter(self.of[node.guid].host for node in group)
        if len(spelled) > 1:
            host = min(spelled, key=lambda name: (-spelled[name], len(name), name.swapcase()))
            for node in group:
                self.of[node.guid] = Identity(host, self.of[node.guid].device)

    def _keep_out(self, group: Iterable[DumpNode], text: str) -> None:
        for node in group:
            known = self.of[node.guid]
            self.of[node.guid] = Identity(known.host, known.device, Reason.AMBIGUOUS)
        detail = f"{text}; kept out: give each machine a name of its own"
        self.odd.append(Irregularity("one name for several machines", detail))


def other_ports(cabling: DumpContent) -> dict[int, int]:
    """GUIDs of ports that the adapters have and the dump lacks, with the GUID of their node.

    They may be in another fabric. Vendors derive the GUIDs of ports from that of the node: with n
    ports they are node + 1 to node + n, or node to node + n - 1, or 8 apart (mlx4, mlx5 and
    Connect-IB); the ports in the dump show which.
    """
    ports: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for wire in cabling.wires:
        for end in (wire.a, wire.b):
            if end.port_guid and cabling.nodes[end.guid].ports > 1:
                ports[end.guid][end.port] = end.port_guid
    found: dict[int, int] = {}
    for guid, seen in ports.items():
        for first, step in ((1, 1), (0, 1), (0, 8)):
            made = {
                number: guid + first + step * (number - 1)
                for number in range(1, cabling.nodes[guid].ports + 1)
            }
            if all(made[number] == port for number, port in seen.items()):
                found |= {port: guid for number, port in made.items() if number not in seen}
    return found
