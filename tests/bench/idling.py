# SPDX-License-Identifier: Apache-2.0

"""What an idle service costs: ``python -m tests.bench.roads --idle [--minutes M]``.

383 active allocations on 11,664 hosts, SQLite, adapters that write to directories. Then
``laas-api --all-in-one`` runs with ``poll_interval`` 0.2 and has nothing to do.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

XGFT = "3;18,18,36;1,18,18"
ALLOCATIONS, MEAN = 383, 6.0
"""Active allocations, and the mean of their hosts."""

SETTLING = 30.0
"""Seconds until the first comparison of everything is over."""

PATIENCE = 300.0


def measure(directory: Path, minutes: float) -> str:
    """Fill the fabric of a service without a worker, and watch it. Raises: SystemExit."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    config = directory / "idle.conf"
    config.write_text(
        f"[DEFAULT]\nstate_dir = {directory}\n"
        f"[database]\nconnection = sqlite:///{directory}/laas.sqlite\n"
        "[sharing]\naccess = together\n"
        f"[worker]\npoll_interval = 0.2\n[api]\nbind_port = {url.rpartition(':')[2]}\n"
    )
    run = "import sys; from laas_service.cmd.api import main; sys.exit(main())"
    words = [sys.executable, "-c", run, "--all-in-one", "--config-file", str(config)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        answering(process, f"{url}/healthcheck", directory / "log")
        _fill(url)
        time.sleep(SETTLING)
        began, spent = time.monotonic(), seconds_spent(process.pid)
        time.sleep(60 * minutes)
        spent, passed = seconds_spent(process.pid) - spent, time.monotonic() - began
        resident, most = _mebibytes(process.pid)
    finally:
        process.terminate()
        process.wait(PATIENCE)
    return (
        f"{ALLOCATIONS} allocations, nothing to do: {60 * spent / passed:.1f} s of processor time "
        f"a minute in {passed / 60:.1f} minutes, {resident:.0f} MiB of memory, {most:.0f} at most"
    )


def _fill(url: str) -> None:
    """Request all allocations, and wait until the service has made them active."""
    rng, path = Random(1), f"{url}/v1/allocations"
    for number in range(ALLOCATIONS):
        call(path, {"name": f"tenant {number}", "hosts": 1 + int(rng.expovariate(1 / MEAN))})
    until = time.monotonic() + 10 * PATIENCE
    while time.monotonic() < until:
        if not call(f"{path}?state=allocating&limit=1")["allocations"]:
            return
        time.sleep(1)
    raise SystemExit("not all allocations become active")


def call(url: str, body: dict[str, Any] | None = None) -> Any:
    """The document that answers GET, or POST with a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def answering(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the process serves a URL. Raises: SystemExit."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    raise SystemExit(f"laas-api does not answer:\n{log.read_text()[-3000:]}")


def seconds_spent(pid: int) -> float:
    """Processor time of a process, user's and system's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _mebibytes(pid: int) -> tuple[float, float]:
    """Resident memory of a process, now and at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in lines)
    return int(sizes["VmRSS"].split()[0]) / 1024, int(sizes["VmHWM"].split()[0]) / 1024
