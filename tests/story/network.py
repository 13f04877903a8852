# SPDX-License-Identifier: Apache-2.0

"""A simulated fabric with the real OpenSM, and the options by which our service reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laas_service.adapters.fabric_import import generator
from laas_service.adapters.fabric_import.netlist import netlist, node_id
from tests.ibsim import Simulator
from tests.story.judge import Subnet


class Network:
    """The fabric ``xgft`` in ibsim; its hosts have the names ``node000`` and so on.

    ``start`` starts OpenSM, whose pid file is in ``directory``.
    """

    def __init__(self, simulator: Simulator, directory: Path, manager: str) -> None:
        self.simulator = simulator
        self.manager = manager
        self.pid_file = directory / "opensm.pid"
        self.log = simulator.directory / "osm.log"
        self.subnet = Subnet(simulator.read)

    def cable_list(self) -> str:
        """Output of ``ibnetdiscover``, which our service imports."""
        return self.simulator.read("ibnetdiscover")

    def options(self) -> str:
        """Lines of the section [opensm] in our service's configuration."""
        environment = self.simulator.environment()
        names = ("IBSIM_SOCKNAME", "LD_PRELOAD", "SIM_HOST")
        client = [f"{name}={environment[name]}" for name in names]
        tool = ["env", f"--chdir={self.simulator.directory}", *client]
        dump = [*tool, "dump_lfts", "-n"]
        tools = self.simulator.tools(self.simulator.directory / "tools")
        return (
            f"pid_file = {self.pid_file}\n"
            f"log_file = {self.log}\n"
            f"cache_directory = {self.simulator.directory}\n"
            f"dump_command = {','.join(dump)}\n"
            f"tools = {tools}\n"
            "patience = 30\n"
        )

    def start(self, *settings: str) -> None:
        """Start OpenSM with these options."""
        daemon = self.simulator.start("opensm", "-f", str(self.log), "-s", "0", *settings)
        self.pid_file.write_text(f"{daemon.pid}\n")


@contextmanager
def network(xgft: str, directory: Path) -> Iterator[Network]:
    """Run the simulator until the block ends; it ends OpenSM too."""
    made = generator.generate(generator.Description(xgft=xgft, subnet_managers=1))
    manager = next(e for e in made.inventory.endpoints if e.name.startswith("sm"))
    text, host = netlist(made.inventory), node_id(made.inventory, manager)
    with Simulator(text, host=host) as simulator:
        yield Network(simulator, directory, manager.name.split()[0])
