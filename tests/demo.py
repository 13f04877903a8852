# SPDX-License-Identifier: Apache-2.0

"""Demonstrates the service from end to end: from a cable list to isolated tenants and back.

    python -m tests.demo [--fabric DUMP] [--accept no-fat-tree] [--json FILE]

Imports a fabric from what ``ibnetdiscover`` prints and starts the service with its
default configuration. Allocates hosts to tenants over REST until a request is refused.
The real OpenSM programs a simulated fabric from the published files, and the tables of
the simulated switches are walked for every pair of ports of every tenant. At the end
everything is released. The exit status is 0 only if every step succeeded. All files
stay in ``demo/`` for inspection.
"""

from __future__ import annotations

import argparse
import glob
import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from laas_service import page
from laas_service.adapters.fabric_import.fabric_file import FabricFile, read_fabric
from laas_service.adapters.fabric_import.netlist import netlist, node_id
from laas_service.adapters.fabric_import.recovery.report import Reason
from laas_service.domain.errors import LaasError
from laas_service.domain.inventory import Endpoint, Inventory
from tests.ibsim import AVAILABLE, Simulator
from tests.waiting import PATIENCE, eventually

HOME = Path("demo").absolute()
EXAMPLE = Path(__file__).parent.parent / "etc" / "laas" / "fabric-example.json"
"""Description of the two-rail fabric that is used if no dump is given."""

FABRIC = "demo"
SHARES = (0.04, 0.11, 0.29, 0.02, 0.07, 0.16, 0.03, 0.21, 0.09, 0.13, 0.05, 0.18)
"""Tenant sizes in the order of the requests, as fractions of all hosts; their sum exceeds 1."""

console = Console(width=110, highlight=False, soft_wrap=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__.split("\n")[0])
    parser.add_argument("--fabric", type=Path, help="what ibnetdiscover printed")
    parser.add_argument(
        "--accept", action="append", default=[], choices=("no-fat-tree",), help="see fabric import"
    )
    parser.add_argument("--json", type=Path, help="also write what was seen to this file")
    parser.add_argument("--html", type=Path, help="write the page of the fabric to this file")
    arguments = parser.parse_args(argv)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    seen: dict[str, Any] = {"simulated": AVAILABLE}
    with ExitStack() as stack:
        try:
            cables = Cables(arguments.fabric, tuple(arguments.accept))
            problems = story(stack, cables, seen, arguments.html)
        except LaasError as error:
            raise SystemExit(f"demo: {error}") from error
        except AssertionError as error:  # a wait timed out
            raise SystemExit(str(error)) from error
    seen["problems"] = problems
    if arguments.json:
        arguments.json.write_text(json.dumps(seen, indent=1) + "\n")
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    console.print("[bold]Everything held.[/bold]" if not problems else "[bold red]Failed.[/]")
    return 1 if problems else 0


class Cables(NamedTuple):
    """The dump (None: of the example), and what ``--accept`` takes."""

    dump: Path | None
    accept: tuple[str, ...] = ()

    def read(self) -> FabricFile:
        """What the import recognises. Raises: LaasError."""
        accept = "no-fat-tree" in self.accept
        return read_fabric(self.dump or EXAMPLE, accept_no_fat_tree=accept)


def story(
    stack: ExitStack, cables: Cables, seen: dict[str, Any], html: Path | None = None
) -> list[str]:
    """Run all steps and return the problems found."""
    heading("A fabric, from its cable list")
    fabric = cables.read()
    manager = management_port(fabric)
    simulator = stack.enter_context(simulated(fabric.inventory, manager)) if AVAILABLE else None
    path = cables.dump or cable_list(simulator)
    subnet = SubnetManager(simulator) if simulator else None
    configure(subnet)
    run("laas-manage", "db", "upgrade")
    words = [word for accept in cables.accept for word in ("--accept", accept)]
    words += ["--subnet-manager", glob.escape(manager.name.split()[0])]
    run("laas-manage", "fabric", "import", str(path), "--id", FABRIC, *words)

    heading("The service, and the subnet manager")
    service = Service(stack)
    eventually(lambda: (published() / "manifest.json").exists(), "the service publishes files")
    if subnet:
        subnet.start()
    routing = eventually(service.routes_confirmed, "the published routes are confirmed")
    by = routing["worker"]["confirmed_by"]
    console.print(f"routes of generation {routing['generation']} are confirmed by {by}")

    heading("Tenants, until one is refused")
    tenants, refusal = let_in(service)
    seen |= {"fabric": service.get(f"/v1/fabrics/{FABRIC}"), "tenants": tenants}
    seen["refusal"] = refusal
    seen["page"] = str(show_page(service, refusal, html))
    problems = [] if refusal else ["no tenant was refused"]
    problems += [f"{t['name']} is {t['state']}" for t in tenants if t["state"] != "active"]

    heading("What Nova and the subnet manager are told")
    seen["files"] = show_files()

    heading("Every promise, derived again")
    switches: list[str] = []
    if subnet:
        switches = ["--lfts", str(subnet.tables()), "--subnet-manager", f"{manager.guid:#018x}"]
    seen["verified"] = run("laas-manage", "fabric", "verify", FABRIC, *switches)

    heading("Everything given back")
    for tenant in tenants:
        _, released = service.call("DELETE", f"/v1/allocations/{tenant['id']}?wait=60")
        problems += [f"{tenant['name']} is {released['state']}"] * (released["state"] != "released")
    eventually(service.routes_confirmed, "the last routes are withdrawn")
    seen["after"] = usage = service.get(f"/v1/fabrics/{FABRIC}/utilization")
    for what in ("hosts", "leaf_links", "spine_links"):
        console.print(f"{what}: {usage[what]}")
        problems += [f"{what} are still owned"] * bool(usage[what]["allocated"])
    return problems


def show_page(service: Service, refusal: dict[str, Any] | None, html: Path | None) -> Path:
    """Write the page of the fabric, with the refused size as its question; returns the file."""
    question = f"?hosts={refusal['asked']}" if refusal else ""
    path = html or HOME / "fabric.html"
    path.write_text(page.page(service.get(f"/v1/fabrics/{FABRIC}/map{question}")))
    console.print(f"the fabric, to look at: {path}")
    return path


def let_in(service: Service) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Allocate tenants in turn until one is refused; return the allocations and the refusal."""
    hosts = service.get(f"/v1/fabrics/{FABRIC}")["hosts"]["total"]
    tenants: list[dict[str, Any]] = []
    refusal = None
    for number, share in enumerate(SHARES):
        body = {"name": f"tenant-{number}", "hosts": max(1, round(share * hosts))}
        status, answer = service.call("POST", "/v1/allocations?wait=60", body)
        if status == 409:
            refusal = {**answer, "asked": body["hosts"]}
            break
        tenants.append(answer)
    columns = ("TENANT", "ASKED", "HOSTS", "SHAPE", "LEAF LINKS", "SPINE LINKS", "STATE")
    table = Table(*columns, "CONFIRMED BY", box=None)
    for tenant in tenants:
        names = [host["name"] for host in tenant["hosts"]]
        table.add_row(
            tenant["name"],
            str(tenant["requested"]),
            f"{len(names)}: {names[0]} .. {names[-1]}",
            str(tenant["shape"]["text"]),
            str(len(tenant["leaf_links"])),
            str(len(tenant["spine_links"])),
            tenant["state"],
            tenant["confirmed_by"],
        )
    console.print(table)
    for tenant in tenants:
        held = " ".join(host["name"] for host in tenant["hosts"])
        links = " ".join(tenant["links"]) or "no links: inside one leaf"
        console.print(f"\n[bold]{tenant['name']}[/bold] {shortened(held)}", soft_wrap=False)
        console.print(f"  {shortened(links)}", soft_wrap=False)
    if refusal:
        asked = max(1, round(SHARES[len(tenants)] * hosts))
        console.print(
            f"\ntenant-{len(tenants)} asked for {asked} hosts and was refused: "
            f"{refusal['detail']} ({refusal['code']}; {refusal['largest_fit']} would fit)"
        )
    return tenants, refusal


def shortened(text: str, most: int = 240) -> str:
    return text if len(text) <= most else f"{text[:most]} ... ({len(text.split())} in all)"


def show_files() -> dict[str, int]:
    """Print the first lines of some published files; return the size in bytes of every file."""
    commands = sorted((HOME / "state" / "compute" / "commands").glob("*.sh"))
    files = [*commands, *sorted(path for path in published().rglob("*") if path.is_file())]
    for path in [*commands[-1:], published() / "partitions.conf", published() / "port_groups.conf"]:
        console.rule(str(path.relative_to(HOME)), style="dim")
        lines = path.read_text().splitlines()
        console.print("\n".join(line[:108] for line in lines[:10]), markup=False)
        console.print(f"... {len(lines)} lines" if len(lines) > 10 else "")
    sizes = {str(path.relative_to(HOME)): path.stat().st_size for path in files}
    console.print(f"{len(sizes)} files, {sum(sizes.values()):,} bytes, below {HOME.name}/state")
    return sizes


# -- the fabric -----------------------------------------------------------------


def simulated(inventory: Inventory, manager: Endpoint) -> Simulator:
    """The simulator on a fabric."""
    return Simulator(netlist(inventory), host=node_id(inventory, manager))


def management_port(fabric: FabricFile) -> Endpoint:
    """The adapter the subnet manager runs on: of a host that is not for tenants, if possible."""
    inventory, kept_out = fabric.inventory, fabric.report.kept_out if fabric.report else ()
    machines = {name for kept in kept_out if kept.kind is Reason.SERVICE for name in kept.names}
    adapters = [
        endpoint for endpoint in inventory.endpoints if "Aggregation Node" not in endpoint.name
    ]
    managers = [endpoint for endpoint in adapters if endpoint.name.startswith("sm")]
    others = [each for each in adapters if each.name.partition(" ")[0] in machines]
    tenants = [endpoint for endpoint in adapters if endpoint.host is not None]
    return (managers or others or tenants)[-1]


def cable_list(simulator: Simulator | None) -> Path:
    """The output of ``ibnetdiscover`` on the simulator; without one, the generator's rendering."""
    path = HOME / "fabric.ibnetdiscover"
    if simulator:
        path.write_text(simulator.read("ibnetdiscover"))
    else:
        run("laas-manage", "fabric", "generate", str(EXAMPLE), "--output", str(path))
    return path


# -- the programs -----------------------------------------------------------------


class SubnetManager:
    """The real OpenSM as a daemon on the simulated fabric, configured by the published files."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.pid_file = HOME / "opensm.pid"
        self.log = simulator.directory / "osm.log"
        environment = simulator.environment()
        names = ("IBSIM_SOCKNAME", "LD_PRELOAD", "SIM_HOST")
        client = [f"{name}={environment[name]}" for name in names]
        self.dump = ["env", f"--chdir={simulator.directory}", *client, "dump_lfts", "-n"]

    def options(self) -> str:
        return (
            f"pid_file = {self.pid_file}\n"
            f"log_file = {self.log}\n"
            f"cache_directory = {self.simulator.directory}\n"
            f"dump_command = {','.join(self.dump)}\n"
            "tools = none\n"
            "patience = 30\n"
        )

    def start(self) -> None:
        settings = ("-F", str(published() / "opensm.conf"), "-f", str(self.log), "-s", "0")
        daemon = self.simulator.start("opensm", *settings)
        self.pid_file.write_text(f"{daemon.pid}\n")

    def tables(self) -> Path:
        """Write the current tables of the simulated switches to a file; return its path."""
        path = HOME / "switches.lfts"
        path.write_text(self.simulator.read(*self.dump))
        return path


class Service:
    """``laas-api --all-in-one`` on a free port, and its REST interface."""

    def __init__(self, stack: ExitStack) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        with (HOME / "laas.conf").open("a") as config:
            config.write(f"[api]\nbind_port = {port}\n")
        log = stack.enter_context((HOME / "laas-api.log").open("wb"))
        self.process = subprocess.Popen(
            [script("laas-api"), "--all-in-one", *configured()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        stack.callback(self.stop)
        eventually(self.ready, "laas-api answers")

    def ready(self) -> bool:
        if self.process.poll() is not None:
            raise SystemExit(f"laas-api ended:\n{(HOME / 'laas-api.log').read_text()}")
        try:
            return self.call("GET", "/healthcheck")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> Any:
        return self.call("GET", path)[1]

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request; return status and document. An error other than 409 ends the demo."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 409:
                return error.code, json.load(error)
            raise SystemExit(f"{method} {path}: {error.read().decode()}") from error

    def routes_confirmed(self) -> Any:
        """The fabric's routing once the switches run the desired tables, otherwise None."""
        routing = self.get(f"/v1/fabrics/{FABRIC}/routing")
        return routing if all(sm["current"] for sm in routing["subnet_managers"]) else None

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def configure(subnet: SubnetManager | None) -> None:
    (HOME / "laas.conf").write_text(
        f"[DEFAULT]\nstate_dir = {HOME}/state\n"
        f"[opensm]\n{subnet.options() if subnet else ''}"
        "[worker]\npoll_interval = 0.2\nretry_last = 2\n"
    )


def configured() -> list[str]:
    return ["--config-file", str(HOME / "laas.conf")]


def script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def run(program: str, *words: str) -> str:
    """Run a command of the service and show its output; the demo ends if it fails."""
    console.print(f"[bold]$ {program} {' '.join(words)}[/bold]")
    done = subprocess.run(
        [script(program), *configured(), *words], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    console.print("\n".join(lines[:30]), markup=False)
    if len(lines) > 30:
        console.print(f"... {len(lines)} lines")
    if done.returncode:
        raise SystemExit(f"{program} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def published() -> Path:
    return HOME / "state" / "opensm" / FABRIC / "current"


def heading(text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}[/bold]", align="left")


if __name__ == "__main__":
    sys.exit(main())
