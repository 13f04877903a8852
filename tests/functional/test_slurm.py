# SPDX-License-Identifier: Apache-2.0

"""The real Slurm controller reads the topology and the node lists written for it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest

from laas_service.adapters.compute_directory import DirectoryCompute
from laas_service.adapters.fabric_import.fabric_file import read_fabric
from laas_service.adapters.slurm import host_list, topology_conf
from laas_service.app.ports.compute import Handover
from tests.servers.daemon import Daemon
from tests.servers.process import Port

pytestmark = pytest.mark.skipif(
    not (shutil.which("slurmctld", path="/usr/sbin") and shutil.which("scontrol")),
    reason="needs the Debian packages slurmctld and slurm-client",
)

CONFIGURATION = """\
ClusterName=laas
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={directory}
SlurmctldPidFile={directory}/pid
ProctrackType=proctrack/linuxproc
TopologyPlugin=topology/tree
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={nodes} NodeAddr=127.0.0.[1-{count}] CPUs=1
PartitionName=all Nodes=ALL Default=YES
"""


class Slurmctld(Daemon):
    """Slurm's controller on a fabric; the compute nodes do not run."""

    def __init__(self, topology: str, nodes: Sequence[str]) -> None:
        super().__init__("slurmctld")
        self._port = Port()
        (self.directory / "topology.conf").write_text(topology)
        (self.directory / "slurm.conf").write_text(
            CONFIGURATION.format(
                port=self._port.number,
                user=self.directory.owner(),
                directory=self.directory,
                nodes=host_list(nodes),
                count=len(nodes),
            )
        )

    def command(self) -> Sequence[str]:
        return "/usr/sbin/slurmctld", "-D", "-f", f"{self.directory}/slurm.conf"

    def environment(self) -> dict[str, str]:
        return super().environment() | {"SLURM_CONF": f"{self.directory}/slurm.conf"}

    def ready(self) -> bool:
        try:
            return "is UP" in self.run("scontrol", "ping")
        except RuntimeError:
            return False

    def close(self) -> None:
        super().close()
        self._port.close()


@pytest.fixture(scope="module", params=["3;4,4,8;1,4,4", "etc/laas/fabric-example.json"])
def fabric(request):
    return read_fabric(request.param)


@pytest.fixture(scope="module")
def slurm(fabric):
    names = [name for name in fabric.inventory.host_names if name]
    with Slurmctld(topology_conf(fabric.topology, fabric.inventory), names) as server:
        yield server


def names_in(slurm, expression):
    return set(slurm.run("scontrol", "show", "hostnames", expression).split())


def test_slurm_has_every_host_below_the_switches_that_it_is_below(slurm, fabric):
    shown = {}
    for line in slurm.run("scontrol", "show", "topology").splitlines():
        fields = dict(field.split("=", 1) for field in line.split())
        shown[fields["SwitchName"]] = names_in(slurm, fields["Nodes"])
    names = {name for name in fabric.inventory.host_names if name}
    assert shown["spines"] == names
    topology = fabric.topology
    for host, name in enumerate(fabric.inventory.host_names):
        if name:
            pod, leaf = divmod(topology.place_of(host)[0], topology.groups_per_pod)
            below = {switch for switch, hosts in shown.items() if name in hosts}
            assert below == {"spines", f"pod-{pod}", f"leaf-{pod}-{leaf}"}
    assert not [line for line in slurm.said().splitlines() if "WARNING" in line]


@pytest.fixture
def held(fabric, tmp_path):
    """The names of an allocation's hosts, and the path of its node list."""
    names = [name for name in fabric.inventory.host_names if name][3:20:2]
    DirectoryCompute(tmp_path).hand_over(Handover("blue-1", "p", tuple(names)))
    (nodes,) = (tmp_path / "nodes").iterdir()
    return set(names), nodes


def test_an_allocation_becomes_a_reservation(slurm, held):
    names, nodes = held
    slurm.run(
        *("scontrol", "create", "reservation", "ReservationName=laas-blue-1"),
        f"Nodes={slurm.run('scontrol', 'show', 'hostlist', str(nodes)).strip()}",
        *("Users=root", "StartTime=now", "Duration=UNLIMITED", "Flags=IGNORE_JOBS"),
    )
    shown = slurm.run("scontrol", "-o", "show", "reservation", "laas-blue-1")
    fields = dict(field.split("=", 1) for field in shown.split() if "=" in field)
    assert names_in(slurm, fields["Nodes"]) == names


def test_a_job_is_confined_to_the_allocation(slurm, held):
    names, nodes = held
    slurm.run("sbatch", "--hold", f"--nodelist={nodes}", "--wrap=hostname")
    shown = slurm.run("scontrol", "-o", "show", "job").splitlines()[-1]
    fields = dict(field.split("=", 1) for field in shown.split() if "=" in field)
    assert names_in(slurm, fields["ReqNodeList"]) == names
