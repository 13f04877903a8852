# SPDX-License-Identifier: Apache-2.0

"""Which of Nova's compute hosts a host of a fabric is, where the two write its name differently.

A name counts if it is equal, or if the operator's file pairs it. Else a looser comparison counts
if it leaves one host on both sides: without case, then by the first label where only one side has
a domain. A host that matches nothing is unknown in Nova.
"""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from laas_service.domain.errors import InvalidInput

OPTION = "[compute] host_names"

ALIKE = 0.6
"""How much alike two names are (0 to 1, of ``difflib``) of which one may be meant for the other."""


def match(
    ours: Collection[str],
    theirs: Collection[str],
    configured: Mapping[str, str],
    recorded: Mapping[str, str],
) -> dict[str, str]:
    """Nova's names of those hosts of the fabrics whose name differs there, by our name.

    ``configured`` are the pairs of the operator. A pair that was ``recorded`` stays while Nova has
    its host, so that a new host in Nova changes nothing for an owner.
    """
    left, free = set(ours) - set(theirs), set(theirs) - set(ours)
    found: dict[str, str] = {}
    for pairs in (configured, recorded):
        for host, name in pairs.items():
            if host in left and name in free:
                found[host] = name
                left.discard(host)
                free.discard(name)
    for looser in (_same_but_case, _same_first_label):
        more = looser(left, free)
        found |= more
        left -= more.keys()
        free -= set(more.values())
    return found


def nearest(ours: Iterable[str], theirs: Collection[str]) -> dict[str, str]:
    """For hosts that Nova does not know, by name, the name there that is most like it, if any."""
    by_case = {name.casefold(): name for name in sorted(theirs, reverse=True)}
    by_label = {_label(name): name for name in sorted(theirs, reverse=True)}
    found = {}
    for host in ours:
        name = by_case.get(host.casefold()) or by_label.get(_label(host))
        if name is None and (close := get_close_matches(host.casefold(), by_case, 1, ALIKE)):
            name = by_case[close[0]]
        if name is not None:
            found[host] = name
    return found


def _label(name: str) -> str:
    """The first label of a name, without case."""
    return name.partition(".")[0].casefold()


def _same_but_case(ours: Collection[str], theirs: Collection[str]) -> dict[str, str]:
    return _unique(ours, theirs, str.casefold, lambda host, name: True)


def _same_first_label(ours: Collection[str], theirs: Collection[str]) -> dict[str, str]:
    """Two names with different domains are two hosts."""
    return _unique(ours, theirs, _label, lambda host, name: "." not in host or "." not in name)


def _unique(
    ours: Collection[str],
    theirs: Collection[str],
    key: Callable[[str], str],
    agree: Callable[[str, str], bool],
) -> dict[str, str]:
    """The pairs with one key that is unique on both sides."""
    sides: list[dict[str, list[str]]] = []
    for names in (ours, theirs):
        by_key: dict[str, list[str]] = {}
        for name in names:
            by_key.setdefault(key(name), []).append(name)
        sides.append(by_key)
    found = {}
    for shared in sides[0].keys() & sides[1].keys():
        left, right = sides[0][shared], sides[1][shared]
        if len(left) == 1 == len(right) and agree(left[0], right[0]):
            found[left[0]] = right[0]
    return found


def read_pairs(path: str) -> dict[str, str]:
    """The operator's pairs in a file, Nova's name by ours.

    A line has a host's name in the fabric and its name in Nova; one with blanks is in quotes.
    ``#`` begins a comment.

    Raises:
        InvalidInput: the file cannot be read, a line has another form, or a name is there twice.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(OPTION, path, f"the file cannot be read: {error}") from error
    pairs: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = [line]
        if not words:
            continue
        if len(words) != 2:
            fix = "write a host's name in the fabric and its name in Nova"
            raise InvalidInput(OPTION, line.strip(), f"{path}, line {number}: {fix}")
        host, name = words
        if host in pairs or name in pairs.values():
            fix = "name each host once on each side"
            raise InvalidInput(OPTION, line.strip(), f"{path}, line {number}: {fix}")
        pairs[host] = name
    return pairs


class HostNames:
    """Translates the names of hosts between the fabrics and Nova.

    ``recorded`` gives every host of every fabric with its last name in Nova, which is empty if
    Nova never had the host. ``configured`` are the operator's pairs. Until Nova's names are learned
    the recorded ones count. Several threads may use it.
    """

    def __init__(
        self,
        recorded: Callable[[], Mapping[str, str]] = dict,
        configured: Mapping[str, str] | None = None,
    ) -> None:
        self._recorded = recorded
        self._configured = configured or {}
        self._learned: tuple[frozenset[str], frozenset[str]] | None = None
        self._to_nova: Mapping[str, str] = {}
        self._to_ours: Mapping[str, str] = {}
        self.changes = 0
        """How often what was learned changed a translation."""

    @property
    def unsure(self) -> bool:
        """Whether Nova's names have to be learned before names are translated."""
        return self._learned is None and not all(self._recorded().values())

    def learn(self, theirs: Collection[str]) -> None:
        """Match all names that Nova has now. Raises: LaasError."""
        recorded = self._recorded()
        sides = frozenset(recorded), frozenset(theirs)
        if sides == self._learned:
            return
        found = match(*sides, self._configured, {**_different(recorded), **self._to_nova})
        self.changes += found != self._pairs()
        self._learned, self._to_nova = sides, found
        self._to_ours = {name: host for host, name in found.items()}

    def nova(self, host: str) -> str:
        """Nova's name of a host."""
        return self._pairs().get(host, host)

    def ours(self, name: str) -> str:
        """The fabric's name of a host of Nova; Nova's own where no fabric has it."""
        if self._learned is not None:
            return self._to_ours.get(name, name)
        return next((host for host, other in self._pairs().items() if other == name), name)

    def nearest(self, hosts: Iterable[str]) -> dict[str, str]:
        """See ``nearest``: of the hosts of Nova those that are hosts of no fabric."""
        ours, theirs = self._learned or (frozenset[str](), frozenset[str]())
        return nearest(hosts, theirs - ours - self._to_ours.keys())

    def _pairs(self) -> Mapping[str, str]:
        return self._to_nova if self._learned is not None else _different(self._recorded())


def _different(recorded: Mapping[str, str]) -> dict[str, str]:
    return {host: name for host, name in recorded.items() if name not in ("", host)}
