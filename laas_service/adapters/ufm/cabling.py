# SPDX-License-Identifier: Apache-2.0

"""The cabling that UFM has discovered, in the form of ``ibnetdiscover``."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from laas_service.adapters.ufm.rest import UfmRest
from laas_service.domain.errors import Unavailable
from laas_service.domain.wording import printable

_KINDS = {"switch": ("Switch", "S"), "host": ("Ca", "H"), "router": ("Rt", "R")}


def dump(ufm: UfmRest) -> str:
    """What ``ibnetdiscover`` would print for the systems and ports of a UFM.

    A cable is there if UFM shows the peer of one of its ports. Raises: Unavailable.
    """
    systems, ports = ufm.systems(), ufm.ports()
    try:
        return "\n".join(_blocks(systems, ports)) + "\n"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"UFM shows its fabric in an unknown form: {error!r}") from error


def _blocks(
    systems: Iterable[Mapping[str, Any]], ports: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    known = {int(system["guid"], 16): system for system in systems}
    of_system: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for port in ports:
        of_system[int(port["systemID"], 16)].append(port)
    for guid, system in known.items():
        word, letter = _KINDS[system["type"]]
        own = sorted(of_system[guid], key=lambda port: int(port["number"]))
        count = max((int(port["number"]) for port in own), default=1)
        name = printable(str(system["description"]))
        yield ""
        yield f'{word}\t{count} "{letter}-{guid:016x}"\t\t# "{name}"'
        for port in own:
            if port.get("peer_node_guid"):
                yield _cable(port, system["type"], known)


def _cable(port: Mapping[str, Any], kind: str, known: Mapping[int, Mapping[str, Any]]) -> str:
    peer, far = int(port["peer_node_guid"], 16), int(port["peer"].rpartition("_")[2])
    other = known[peer]
    _, letter = _KINDS[other["type"]]
    near_guid = "" if kind == "switch" else f"({int(port['guid'], 16):x})"
    far_guid = "" if other["type"] == "switch" else f"({int(port['peer_guid'], 16):x})"
    speed = f"{port.get('active_width') or ''}{port.get('active_speed') or ''}"
    name = printable(str(other["description"]))
    end = f'"{letter}-{peer:016x}"[{far}]{far_guid}'
    return f'[{int(port["number"])}]{near_guid}\t{end}\t\t# "{name}" lid 0 {speed}'
