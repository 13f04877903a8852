# SPDX-License-Identifier: Apache-2.0

"""Texts that are no dump: names what each is, the tool that wrote it, and the right command."""

import json
import re
from collections.abc import Iterator

from laas_service.adapters.fabric_import.refusal import ImportRefusal
from laas_service.domain.errors import InvalidFile
from laas_service.domain.wording import printable

_DUMP = re.compile(r"^[ \t]*(?:Switch|Ca|Hca|Rt)[ \t]+[0-9]", re.MULTILINE)
"""A node of a dump. The lists of nodes of ``ibswitches`` have a colon there."""

_LOOKED_AT = 1 << 16
"""Characters in which a tool is recognised; each prints its own form from the first line on."""

_RUN = "run: ibnetdiscover > fabric.txt"

_TOOLS = (
    (r"(?:CA|SW|RT|\?\?)\s+\d+\s+\d+\s+0x[0-9a-f]+\s+\S+ \S+", "ibnetdiscover -p (--ports)"),
    (r"(?:Ca|Switch|Rt)\s*: 0x[0-9a-f]+ ports \d+ devid", "ibnetdiscover -l, -H, -S or -R"),
    (r"Switch\s*: 0x[0-9a-f]+ ports \d", "ibswitches or ibnodes"),
    (r"Ca\s*: 0x[0-9a-f]+ ports \d", "ibhosts or ibnodes"),
    (r"Rt\s*: 0x[0-9a-f]+ ports \d", "ibrouters"),
    (r"(?:CA|Switch|RT): .*:$|.*==\(.*\)==>", "iblinkinfo"),
    (r"sminfo: sm lid", "sminfo"),
    (r"\w+Record dump:", "saquery"),
    (r"# (?:Node|Port|Switch|Port extended) info: |Node Description:\.", "smpquery"),
    (r"# Port (?:extended )?counters: ", "perfquery"),
    (r"Errors for .*\"|## Summary: \d+ nodes checked", "ibqueryerrors"),
    (r"(?:Unicast|Multicast) (?:lids|mlids) \[", "dump_lfts or ibroute"),
    (r"From (?:ca|switch) \{0x", "ibtracert"),
    (r"CA '[^']+'$", "ibstat"),
    (r"Infiniband device '", "ibstatus"),
    (r"hca_id:\s", "ibv_devinfo"),
    (r"GID [0-9a-f:]+ LID start", "ibaddr"),
    (r"\{ (?:CA|SW)\S* Ports:[0-9a-f]+ SystemGUID:", "OpenSM or ibdiagnet (a subnet list)"),
    (r"START_(?:NODES|NODES_INFO|DUPLICATED)|-[IWE]- .*|Loading IBDIAGNET", "ibdiagnet"),
    (r"\w{3} \d\d \d\d:\d\d:\d\d \d+ \[[0-9A-F]+\] 0x", "OpenSM (its log)"),
)  # fmt: skip
"""How a line begins that a tool other than plain ``ibnetdiscover`` prints, and that tool."""

_COMPILED = [(re.compile(start), tool) for start, tool in _TOOLS]
_SLURM = re.compile(
    r"^[ \t]*(SwitchName|BlockName|NodeName|ClusterName|PartitionName)[ \t]*=",
    re.IGNORECASE | re.MULTILINE,
)
_TABLE = re.compile(r'[^\[\]{}"=#]*,[^\[\]{}"=#]*')
_FAILED = re.compile(r"(?:ibnetdiscover: )?(?:iberror|ibwarn|ibpanic)\b.*")


def refuse_foreign(text: str, source: str) -> None:
    """Raise if a text is no dump, and say what it is; ``code`` is a ``ImportRefusal``.

    Raises:
        InvalidFile: no line describes a node as ``ibnetdiscover`` does.
    """
    if _DUMP.search(text):
        return
    lines = list(_first_lines(text))
    if not lines:
        why = "has no line but empty ones and comments; give the output of ibnetdiscover"
        raise InvalidFile(source, 0, why, ImportRefusal.EMPTY)
    for number, line in lines:
        for start, tool in _COMPILED:
            if start.match(line):
                why = f"this is what {tool} prints, not ibnetdiscover without options; {_RUN}"
                raise InvalidFile(source, number, why, ImportRefusal.ANOTHER_TOOL)
    raise InvalidFile(source, *_other(text, lines), ImportRefusal.NOT_A_DUMP)


def _first_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of lines that say something: of the first part, or else the first one."""
    start, found = 0, False
    for number, match in enumerate(re.finditer(r"[^\n]*\n?", text), 1):
        start = match.start()
        line = match[0].strip("\ufeff \t\r\n")
        if line and (not line.startswith("#") or re.match(r"#+ [A-Z][\w ]+: ", line[:80])):
            if line.startswith(("# Topology file:", "# Max of", "# Initiated")):
                continue
            found = True
            yield number, line[:400]
        if found and start > _LOOKED_AT:
            return


def _other(text: str, lines: list[tuple[int, str]]) -> tuple[int, str]:
    """The line that shows what a text is, and what it is."""
    give = "give the output of ibnetdiscover"
    first, line = lines[0]
    if slurm := _SLURM.search(text):
        at = text[: slurm.start()].count("\n") + 1
        file = "topology.conf" if slurm[1].lower() in ("switchname", "blockname") else "slurm.conf"
        return at, (f"a Slurm {file} names nodes and switches but neither cables nor GUIDs; {give}")
    if failed := next((each for each in lines if _FAILED.match(each[1])), None):
        return failed[0], (
            f"ibnetdiscover failed here ({printable(failed[1][:100])}); run it as root, on a port "
            "that is up"
        )
    if line.startswith("["):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return first, f"this is a JSON list, no snapshot and no description; {give}"
    if line.startswith("<"):
        return first, f"this is XML or HTML; {give}"
    sample = [text for _, text in lines[:3]]
    if len(sample) > 1 and all(_is_row(each) for each in sample):
        return first, (
            "a table (CSV) says at which switches hosts are, but neither cables nor GUIDs; " + give
        )
    shown = printable(line if len(line) <= 40 else f"{line[:40]}...")
    return first, f"no switch is described; {give}. The first line is {shown!r}"


def _is_row(line: str) -> bool:
    """Whether a line is a row of a table with commas, semicolons or tabs."""
    return bool(_TABLE.fullmatch(line)) or min(len(line.split(";")), 3) > 2 or "\t" in line
