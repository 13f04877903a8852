# SPDX-License-Identifier: Apache-2.0

"""Domains from files of each form, as the tools write them; all are made here."""

import json

import pytest
import yaml  # type: ignore[import-untyped]

from laas_service.adapters.fabric_import.domains_file import read_domains
from laas_service.adapters.slurm import expanded, host_list
from laas_service.domain.errors import InvalidFile, InvalidInput

RACKS = {
    f"block{rack:03}": tuple(f"node{18 * rack + i:05}" for i in range(18)) for rack in range(576)
}


def as_yaml() -> str:
    blocks = [{"block": name, "nodes": host_list(hosts)} for name, hosts in RACKS.items()]
    one = {"topology": "nvl72", "cluster_default": True}
    one["block"] = {"block_sizes": [18, 144], "blocks": blocks}
    return str(yaml.safe_dump([one, {"topology": "plain", "flat": True}], sort_keys=False))


def as_conf() -> str:
    lines = [
        f"# {name}=clique-{number}\nBlockName={name} Nodes={host_list(hosts)}"
        for number, (name, hosts) in enumerate(RACKS.items())
    ]
    return "\n".join([*lines, "BlockSizes=18,144"])


@pytest.mark.parametrize("written", [as_yaml, as_conf], ids=["yaml", "conf"])
def test_blocks_of_slurm_are_domains(written):
    assert read_domains(written(), "file", "nvlink") == {"nvlink": RACKS}


def test_own_files_name_their_kinds():
    domains = {"nvlink": RACKS, "power": {"A": ("node00000",)}}
    assert read_domains(json.dumps(domains), "file", "rack") == domains


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "- topology: a\n  tree: {}",
        "BlockName=a Nodes=node[1-",
        "BlockName=a Nodes=node[5-1]",
        "BlockName=a Nodes=node[0-999999999]",
        "- topology: a\n  block: {blocks: [{block: b}]}",
        "- {",
    ],
)
def test_other_files_are_refused_in_one_line(text):
    with pytest.raises((InvalidFile, InvalidInput)) as error:
        read_domains(text, "file", "nvlink")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ['{"leaf": {"a": ["node1"]}}', '{"nvlink": ["node1"]}'])
def test_kinds_and_lists_of_own_files_are_checked(text):
    with pytest.raises(InvalidInput, match="domains"):
        read_domains(text, "file", "nvlink")


def test_lists_of_hosts_are_what_slurm_makes_of_them():
    assert expanded("a[1-2]b[03-04],c") == ("a1b03", "a1b04", "a2b03", "a2b04", "c")
