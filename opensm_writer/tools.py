# SPDX-License-Identifier: Apache-2.0

"""Finds the tools of ``infiniband-diags`` and the OpenSM of this machine, so that no option has to.

A tool counts only if it can ask: this machine may lack a port, or this user the right to use it.
"""

import logging
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LOG = logging.getLogger(__name__)

AUTO, NONE = "auto", "none"
"""Values of ``[opensm] tools``; any other one is a directory that has the tools."""

PLACES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")
"""Where tools are looked for after ``PATH``; the path of a service often lacks the first."""

ASK = ("nodeinfo", "-D", "0")
"""Arguments of ``smpquery`` that ask the port of this machine for its own node: no packet leaves
it."""

ASK_LIMIT = 10.0
"""Seconds that this may take; milliseconds are usual."""

TRIES = 3
"""One question in many fails on a busy machine."""

TIMEOUT = ("-t", "200")
"""Milliseconds that ``iblinkinfo`` and ``perfquery`` wait for an answer: with their own default
of a second and more, a dead switch holds up a round for each of its ports."""

OUTSTANDING = ("-o", "16")
"""Questions of ``iblinkinfo`` at one time. With its default of two, each port towards a switch
that does not answer costs up to two seconds."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Commands that read the switches; an empty one was not found, or cannot ask."""

    dump: tuple[str, ...] = ()  # the tables of all switches
    blocks: tuple[str, ...] = ()  # blocks of tables
    links: tuple[str, ...] = ()  # the ports of all nodes
    counters: tuple[str, ...] = ()  # the counters of ports
    keys: tuple[str, ...] = ()  # the partition keys of ports
    problem: str = ""  # why none was found, or none can ask


def find(where: str = AUTO, given: Sequence[str] = ()) -> Tools:
    """The tools of this machine that can ask. ``where`` is ``AUTO``, ``NONE`` or a directory.

    ``given`` are arguments for each tool, such as the file with the M_Key. Takes ``ASK_LIMIT``
    seconds at most, and some milliseconds where there is no port.
    """
    if where == NONE:
        return Tools()
    path = os.pathsep.join(_places(where))
    names = ("smpquery", "dump_lfts", "iblinkinfo", "perfquery")
    found = {name: shutil.which(name, path=path) for name in names}
    if missing := [name for name in names if found[name] is None]:
        fix = "install infiniband-diags"
        if len(missing) == len(names) or "smpquery" in missing:
            return Tools(problem=f"{' and '.join(missing)} not found: {fix}")
        LOG.warning("%s not found: %s", " and ".join(missing), fix)
    if problem := _cannot_ask((str(found["smpquery"]), *given, *ASK)):
        return Tools(problem=problem)

    def command(name: str, *arguments: str) -> tuple[str, ...]:
        place = found.get(name) or shutil.which(name, path=path)
        return () if place is None else (place, *arguments)

    return Tools(
        dump=command("dump_lfts", "-n"),
        blocks=command("laas-opensm-tables"),
        links=command("iblinkinfo", "-l", *OUTSTANDING, *TIMEOUT),
        counters=command("perfquery", *TIMEOUT),
        keys=command("laas-opensm-keys"),
    )


def _places(where: str) -> list[str]:
    """Directories with tools. Those of the service itself lie beside its Python."""
    ours = str(Path(sys.executable).parent)
    if where != AUTO:
        return [where, ours]
    return [*os.environ.get("PATH", "").split(os.pathsep), ours, *PLACES]


def _cannot_ask(command: tuple[str, ...]) -> str:
    """Why a question to the own port of this machine is not answered; empty if it is."""
    said = ""
    for _ in range(TRIES):
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ASK_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{command[0]} has no answer after {ASK_LIMIT:g} seconds"
        except OSError as error:
            return f"{command[0]}: {error}"
        if not done.returncode:
            return ""
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        said = lines[0] if lines else f"status {done.returncode}"
    return (
        f"{command[0]} cannot ask: {said}; run where there is a port, as a "
        "user who may open /dev/infiniband/umad*"
    )


OWN_CONFIGURATION = "/etc/opensm/opensm.conf"
OWN_LOG = "/var/log/opensm.log"
OWN_CACHE = "/var/cache/opensm"
"""What OpenSM uses if nothing names another one."""

AGAIN = 5.0
"""Seconds after which the processes of this machine are looked through again."""

_SETTING = re.compile(r"^(?:log_file)[ \t]+(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """A running OpenSM, and its files as far as this user may use them."""

    pid: int
    log: Path | None = None
    cache: Path | None = None  # where it reads ``guid2lid`` when it starts
    takes_signals: bool = False  # from this user


@dataclass(slots=True)
class OpenSmFinder:
    """Finds the OpenSM of this machine that reads the sets of files in ``directory``.

    It does if its command line or its configuration names the directory. If several do, as for
    several fabrics, none is found. Processes are looked through at most every ``AGAIN`` seconds.
    """

    directory: Path
    processes: Path = Path("/proc")
    clock: Callable[[], float] = time.monotonic
    _found: Whereabouts | None = field(default=None, init=False)
    _again_at: float = field(default=-math.inf, init=False)
    _told: str = field(default="", init=False)

    def found(self) -> Whereabouts | None:
        """Where OpenSM and its files are, or were when it ran last; None until it is found."""
        if self._found is not None and self._is_opensm(self._found.pid):
            return self._found
        if (now := self.clock()) >= self._again_at:
            self._found, self._again_at = self._search() or self._found, now + AGAIN
        return self._found

    def _search(self) -> Whereabouts | None:
        pids = [int(entry.name) for entry in self.processes.iterdir() if entry.name.isdigit()]
        ours = [pid for pid in sorted(pids) if self._is_opensm(pid) and self._reads_ours(pid)]
        if len(ours) > 1:
            self._tell(f"several OpenSMs read {self.directory}: name one in [opensm] pid_file")
        if len(ours) != 1:
            return None
        found = self._whereabouts(ours[0])
        if not found.takes_signals:
            self._tell(
                f"OpenSM (process {found.pid}) takes no signals from this user: run as root or as "
                "its user, or name an [opensm] reload_command"
            )
        if found.log is None:
            self._tell(
                f"the log of OpenSM (process {found.pid}) cannot be read, so its errors are not "
                "seen: let this user read it"
            )
        LOG.info("OpenSM is process %s, its log %s, its cache %s", *_shown(found))
        return found

    def _tell(self, text: str) -> None:
        """Log a warning, unless it was the last one."""
        if text != self._told:
            LOG.warning("%s", text)
        self._told = text

    def _is_opensm(self, pid: int) -> bool:
        return self._text(pid, "comm").strip() == "opensm" and bool(self._words(pid))

    def _text(self, pid: int, name: str) -> str:
        try:
            return (self.processes / str(pid) / name).read_text(errors="replace")
        except OSError:
            return ""

    def _words(self, pid: int) -> list[str]:
        return self._text(pid, "cmdline").split("\0")[:-1]

    def _place(self, pid: int, text: str) -> Path | None:
        """A path as the process means it; None if its working directory cannot be read."""
        if text.startswith("/"):
            return Path(text)
        with suppress(OSError):
            return (self.processes / str(pid) / "cwd").readlink() / text
        return None

    def _configuration(self, pid: int) -> str:
        """The configuration that the process was started with; empty if it cannot be read."""
        words = self._words(pid)
        path = self._place(pid, _argument(words, "-F", "--config") or OWN_CONFIGURATION)
        try:
            return path.read_text(errors="replace") if path is not None else ""
        except OSError:
            return ""

    def _reads_ours(self, pid: int) -> bool:
        named = f"{self.directory}/"
        given = _argument(self._words(pid), "-F", "--config")
        path = self._place(pid, given) if given else None
        return named in f"{path}" or any(
            named in text for text in (*self._words(pid), self._configuration(pid))
        )

    def _whereabouts(self, pid: int) -> Whereabouts:
        words = self._words(pid)
        setting = _SETTING.search(self._configuration(pid))
        named = setting[1] if setting else OWN_LOG
        log = self._place(pid, _argument(words, "-f", "--log_file") or named)
        variables = self._text(pid, "environ").split("\0")
        places = (v.partition("=")[2] for v in variables if v.startswith("OSM_CACHE_DIR="))
        cache = self._place(pid, next(places, OWN_CACHE))
        try:
            os.kill(pid, 0)
        except OSError:
            takes_signals = False
        else:
            takes_signals = True
        return Whereabouts(
            pid,
            log if log is not None and os.access(log, os.R_OK) else None,
            cache if cache is not None and os.access(cache, os.W_OK | os.X_OK) else None,
            takes_signals,
        )


def _shown(found: Whereabouts) -> tuple[int, str, str]:
    return found.pid, shlex.quote(str(found.log)), shlex.quote(str(found.cache))


def _argument(words: list[str], short: str, long: str) -> str:
    """The value of an option on a command line; empty without it."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in (short, long):
            return following
        if word.startswith(f"{long}="):
            return word.partition("=")[2]
        if word.startswith(short) and not word.startswith("--") and len(word) > len(short):
            return word.removeprefix(short)
    return ""
