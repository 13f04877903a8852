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


def test_blocks_of_slurm_are_domains():
    assert read_domains(as_yaml(), "file", "nvlink") == {"nvlink": RACKS}
    plain = "\n".join(line for line in as_conf().splitlines() if not line.startswith("#"))
    assert read_domains(plain, "file", "nvlink") == {"nvlink": RACKS}


def test_comments_of_topograph_name_the_domains():
    cliques = {f"clique-{number}": hosts for number, hosts in enumerate(RACKS.values())}
    assert read_domains(as_conf(), "file", "nvlink") == {"nvlink": cliques}


def test_domains_that_topograph_cuts_into_blocks_are_whole():
    lines = [
        "# first=clique-7",
        "BlockName=first Nodes=n[1-16]",
        "# second=clique-7",
        "BlockName=second Nodes=n[17-18]",
        "BlockName=padding",
        "BlockSizes=16,32",
    ]
    found = read_domains("\n".join(lines), "file", "nvlink")
    assert found == {"nvlink": {"clique-7": tuple(f"n{i}" for i in range(1, 19))}}
    blocks = [{"block": "a", "nodes": "n1"}, {"block": "padding"}]
    document = yaml.safe_dump([{"topology": "t", "block": {"blocks": blocks}}])
    assert read_domains(document, "file", "nvlink") == {"nvlink": {"a": ("n1",)}}


AGGREGATES = [
    {"id": 1, "name": "one", "hosts": ["n1", "n2"], "metadata": {"nvlink": "rack1", "ssd": "true"}},
    {"id": 2, "name": "two", "hosts": ["n3"], "metadata": {"nvlink": "rack2"}},
    {"id": 3, "name": "fast", "hosts": ["n1", "n3"], "metadata": {"ssd": "true"}},
]


def test_aggregates_of_nova_with_a_property_of_the_kind_are_domains():
    expected = {"nvlink": {"rack1": ("n1", "n2"), "rack2": ("n3",)}}
    assert read_domains(json.dumps({"aggregates": AGGREGATES}), "file", "nvlink") == expected
    shown = [
        {"ID": a["id"], "Name": a["name"], "Properties": a["metadata"], "Hosts": a["hosts"]}
        for a in AGGREGATES
    ]
    assert read_domains(json.dumps(shown), "file", "nvlink") == expected


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
        "- topology: a\n  block: {blocks: [{nodes: n1}]}",
        '{"aggregates": [{"name": "a", "hosts": ["n1"], "metadata": {"rack": "r"}}]}',
        '{"aggregates": [{"name": "a", "hosts": "n1", "metadata": {"nvlink": "r"}}]}',
        '{"aggregates": [{"name": "a", "hosts": ["n1"]}, 1]}',
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
