# SPDX-License-Identifier: Apache-2.0

"""Runs inside a job: writes again and again, from start to end, where it runs and what it owns.

    witness.py URL FILE SECONDS

Asks the service itself and shares no code with the plug-in.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request

PAUSE = 0.7
"""Seconds between two lines."""


def owned(url: str, job: str) -> list[tuple[str, str, list[str]]]:
    with urllib.request.urlopen(f"{url}/v1/allocations?limit=1000", timeout=300) as answer:
        listed = json.load(answer)["allocations"]
    return [
        (each["id"], each["state"], sorted(host["name"] for host in each["hosts"]))
        for each in listed
        if each["name"] == f"job-{job}"
    ]


def main() -> None:
    url, file, seconds = sys.argv[1:]
    job, nodes = os.environ["SLURM_JOB_ID"], os.environ["SLURM_JOB_NODELIST"]
    names = subprocess.run(
        ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True
    ).stdout.split()
    started = time.time()
    until, moment = started + float(seconds), "start"
    while True:
        seen = {"job": int(job), "run": started, "moment": moment, "at": time.time()}
        line = json.dumps({**seen, "nodes": sorted(names), "owned": owned(url, job)})
        with open(file, "a") as told:
            told.write(f"{line}\n")
        if moment == "end":
            return
        left = until - time.time()
        moment = "end" if left <= PAUSE else "on"
        time.sleep(max(0.0, min(PAUSE, left)))


if __name__ == "__main__":
    main()
