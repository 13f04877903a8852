# SPDX-License-Identifier: Apache-2.0

"""Fetched sets: a valid set becomes current, any other set changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.errors import Conflict, InvalidFile, LaasError
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import fetch, fileset, parse, render, validate
from tests.offers import Offer, everything
from tests.partitions import tenant
from tests.unit.opensm_writer.states import GOLDEN, ONE, POD, WIDE, state

NEVER = "0" * 64
PKEYS = "partitions.conf"


@pytest.fixture(scope="module", autouse=True)
def no_power_cut():
    """Skip fsync, because these tests write many files and simulate no power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def home(tmp_path):
    return tmp_path / "here" / "tiny"


@pytest.fixture
def offer(tmp_path, home):
    """The set of generation 8; generation 7, with two of its tenants, is current."""
    fetch_set(Offer(state([POD, ONE]), tmp_path / "there", home), home)
    return Offer(state(generation=8), tmp_path / "there", home)


def fetch_set(offer, home, **options):
    return fetch.fetch_set(offer, home.parent, "tiny", keep=3, **options)


def test_a_set_with_partitions_by_rail_is_fetched_and_each_has_its_rail(home, tmp_path):
    made = generate(Description(xgft="3;2,2,4;1,2,2", rails=2, wiring="plane", subnet_managers=1))
    routes = (
        TenantRoute(tenant("a", [(0, 0b11, 0b0101)]), 3, pkeys=(3, 4)),
        TenantRoute(tenant("b", [(1, 0b11, 0b0101)]), 5),
    )
    given_state = FabricState("tiny", 8, made.topology, made.inventory, routes)
    offer = Offer(given_state, tmp_path / "there", home)
    directory = fetch_set(offer, home)
    text = (directory / "partitions.conf").read_text()
    ports = made.inventory.endpoint_of_port
    assert [(p.pkey, p.name, p.members) for p in parse.partitions(text, "f").partitions] == [
        (3, "laas-a", (ports[0, 0].guid, ports[1, 0].guid)),
        (4, "laas-a/1", (ports[0, 1].guid, ports[1, 1].guid)),
        (5, "laas-b", tuple(ports[host, rail].guid for host in (2, 3) for rail in (0, 1))),
    ]
    others = text.replace("laas-a/1=", "laas-c=")
    offer = Offer(replace(given_state, generation=9), tmp_path / "there", home)
    offer.rewrite("partitions.conf", others.encode())
    with pytest.raises(InvalidFile, match="its tenants are not those of the manifest"):
        fetch_set(offer, home)


def test_a_fetched_set_equals_the_rendered_set(offer, home, tmp_path):
    directory = fetch_set(offer, home)
    assert directory == (home / "current").resolve()
    made = (tmp_path / "there" / "tiny" / "current").resolve()
    assert [path.relative_to(directory) for path in sorted(directory.rglob("*"))] == [
        path.relative_to(made) for path in sorted(made.rglob("*"))
    ]
    for path in directory.rglob("*"):
        assert (
            path.is_dir() or path.read_bytes() == (made / path.relative_to(directory)).read_bytes()
        )
    assert not (home / ".draft").exists()
    before = everything(home)
    offer.asked.clear()
    fetch_set(offer, home)
    assert offer.asked == []
    assert everything(home) == before


def test_only_missing_tables_are_fetched(offer, home):
    ours = {
        (table.size, table.digest.hex())
        for table in parse.switch_tables(parse.file_pieces(home / "current" / "lfts"), "lfts")
    }
    lacking = [(size, digest) for size, digest in offer.parts() if (size, digest) not in ours]
    fetch_set(offer, home)
    asked = [(start, size) for name, start, size in offer.asked if name == "lfts"]
    assert 0 < len(lacking) < len(offer.parts())
    assert sum(size for _, size in asked) == sum(size for size, _ in lacking)
    assert len(asked) < len(lacking)  # neighbours are fetched in one request


@pytest.mark.parametrize("harm", [None, "damaged", "missing"])
def test_only_files_that_the_current_set_lacks_are_fetched(offer, home, harm):
    same = home / "current" / "guid2lid"
    before = contents(home / "current")
    changed = {name for name, text in offer.files.items() if before.get(Path(name)) != text}
    if harm == "damaged":
        same.write_bytes(same.read_bytes().replace(b"0x", b"0X", 1))
    elif harm == "missing":
        same.unlink()
    directory = fetch_set(offer, home)
    asked = {name for name, _, _ in offer.asked}
    assert same.name not in changed != offer.files.keys()
    assert asked == changed | ({same.name} if harm else set())
    assert contents(directory).keys() - {Path("manifest.json")} == set(map(Path, offer.files))
    for name, text in offer.files.items():
        assert (directory / name).read_bytes() == text


def contents(directory):
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_tables_without_port_guids_get_them_if_the_lids_are_not_right(home, tmp_path):
    """The set is then the one that a service writes with port GUIDs, to the byte."""

    def offered(tenants, generation, **settings):
        place = tmp_path / f"there{settings}"
        offer = Offer(state(tenants, generation), place, home, **settings)
        return offer, (place / "tiny" / "current").resolve()

    def right(pinned, cables):
        assert (pinned, cables) == (state().inventory.lids, state().inventory.cable_ends)

    def wrong(pinned, cables):
        return "a port has another LID"

    for generation, (tenants, wrong_lids) in enumerate(
        [
            ([POD], wrong),
            ([POD, ONE], wrong),
            ([POD, ONE, WIDE], right),
            ([POD, ONE], right),
            ([POD], wrong),
        ],
        7,
    ):
        offer, bare = offered(tenants, generation, bare=True)
        _, named = offered(tenants, generation)
        had = local_rows(home)
        directory = fetch_set(offer, home, wrong_lids=wrong_lids)
        assert contents(directory) == contents(bare if wrong_lids is right else named)
        lacking = [t for t in parse.switch_tables([offer.files["lfts"]], "") if t.row not in had]
        asked = sum(size for name, _, size in offer.asked if name == "lfts")
        assert asked == sum(table.size for table in lacking)
        assert bool(had) == (len(lacking) < len(offer.parts()))
        offer.asked.clear()
        before = everything(home)
        fetch_set(offer, home, wrong_lids=wrong_lids)
        assert (offer.asked, everything(home)) == ([], before)


def local_rows(home):
    path = home / "current" / "lfts"
    pieces = parse.file_pieces(path)
    return [t.row for t in parse.switch_tables(pieces, "")] if path.exists() else []


UNFIT_BARE = {
    "torn tables": (lambda o: o.rewrite("lfts", o.files["lfts"][:-100]), "ends without the count"),
    "torn without a word": (
        lambda o: o.files.update(lfts=o.files["lfts"][:-100]),
        "sha256 is not the one|ends without the count",
    ),
    "another port": (
        lambda o: o.files.update(lfts=o.files["lfts"].replace(b" 001\n", b" 002\n", 1)),
        "lfts, line 1: its sha256 is not the one",
    ),
    "a LID of nobody": (
        lambda o: o.rewrite("lfts", o.files["lfts"].replace(b"0x0001 ", b"0x0000 ", 1)),
        "contradicts guid2lid",
    ),
    "with port GUIDs": (
        lambda o: o.rewrite("lfts", named_tables(o)),
        "its entries are not those of form 6",
    ),
}


def named_tables(offer):
    names = render.GuidNames(parse.guid2lid(offer.files["guid2lid"].decode(), ""))
    return b"".join(map(names.named, parse.blocks([offer.files["lfts"]])))


@pytest.mark.parametrize("what", UNFIT_BARE)
@pytest.mark.parametrize("problem", [None, "a port has another LID"])
def test_a_refused_set_without_port_guids_changes_nothing(home, tmp_path, what, problem):
    spoil, why = UNFIT_BARE[what]
    fetch_set(Offer(state([POD, ONE]), tmp_path / "there", home, bare=True), home)
    before = everything(home)
    offer = Offer(state(generation=8), tmp_path / "there", home, bare=True)
    spoil(offer)
    with pytest.raises(InvalidFile, match=why):
        fetch_set(offer, home, wrong_lids=lambda pinned, cables: problem)
    assert everything(home) == before


def test_a_damaged_set_is_replaced(offer, home):
    fetch_set(offer, home)
    whole = everything((home / "current").resolve()).values()
    with (home / "current" / "lfts").open("r+b") as file:
        file.seek(5000)
        file.write(b"#")
    assert (home / "current").readlink().name == "gen-8"
    fetch_set(offer, home)
    assert (home / "current").readlink().name == "gen-8.1"
    assert list(everything((home / "current").resolve()).values()) == list(whole)


def lies_about_entries(offer):
    """Another port towards a tenant's host, with matching checksums."""
    lid = parse.guid2lid(offer.files["guid2lid"].decode(), "")[0x2C90300000001]
    entry, other = b"%#06x 001" % lid, b"%#06x 002" % lid
    assert entry in offer.files["lfts"]
    offer.rewrite("lfts", offer.files["lfts"].replace(entry, other, 1))


def one_switch_less(offer):
    """The last table is cut off, with matching checksums."""
    lfts = offer.files["lfts"]
    offer.rewrite("lfts", lfts[: lfts.rindex(b"Unicast")])


def rename(old, new):
    def spoil(offer):
        offer.files[new] = offer.files.pop(old)
        offer.manifest["files"][new] = offer.manifest["files"].pop(old)

    return spoil


def add(name):
    def spoil(offer):
        offer.rewrite(name, b"log_file /etc/passwd\n")

    return spoil


def omit_chains(offer, reason):
    """Make the set one without routing chains, with the reason in its fragment."""
    for name in [name for name in offer.files if name not in validate.ALWAYS]:
        offer.drop(name)
    lines = offer.files["opensm.conf"].decode().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "routing chains" in line)
    lines[at : at + 4] = [f"# No routing chains: {reason}\n"]
    offer.rewrite("opensm.conf", "".join(lines).encode())
    offer.describe(chains=f"{fileset.OMITTED}{reason}")


def change_cabling(old, new):
    def spoil(offer):
        assert old in offer.files["cabling"]
        offer.rewrite("cabling", offer.files["cabling"].replace(old, new, 1))

    return spoil


def reverse_cabling(offer):
    lines = offer.files["cabling"].splitlines(keepends=True)
    offer.rewrite("cabling", b"".join(reversed(lines)))


def test_a_set_without_the_cabling_is_accepted(offer, home):
    """Services of earlier releases write no such file."""
    offer.drop("cabling")
    directory = fetch_set(offer, home)
    assert not (directory / "cabling").exists()
    assert (directory / "lfts").exists()


UNFIT = {
    "nothing in it": (lambda o: o.describe(files={}), "missing"),
    "no manifest": (lambda o: o.manifest.clear(), "it has fabric, generation"),
    "more in the manifest": (lambda o: o.describe(more=1), "and no other keys"),
    "empty tables": (lambda o: o.rewrite("lfts", b""), "not the head of a switch's table"),
    "a cable with three ends": (change_cabling(b"0\n", b"0 1\n"), "not the line of a cable"),
    "a cable to nowhere": (change_cabling(b"c90300000001 0", b"c90300000002 0"), "contradicts the"),
    "an adapter with a port": (change_cabling(b"0001 0\n", b"0001 1\n"), "contradicts the"),
    "a port above 254": (change_cabling(b" 0\n", b" 255\n"), "ports are 0..254"),
    "cables that descend": (reverse_cabling, "do not ascend"),
    "an end with two cables": (change_cabling(b"00 2 0x", b"00 1 0x"), "an end has two cables"),
    "torn tables": (lambda o: o.rewrite("lfts", o.files["lfts"][:-100]), "ends without the count"),
    "one switch less": (one_switch_less, "entries of tenant"),
    "no port GUIDs": (
        lambda o: o.rewrite(
            "lfts", b"".join(map(render.without_guids, parse.blocks([o.files["lfts"]])))
        ),
        "its entries are not those of form 5",
    ),
    "torn without a word": (
        lambda o: o.files.update(lfts=o.files["lfts"][:-100]),
        "sha256 is not the one",
    ),
    "another byte": (
        lambda o: o.files.update({PKEYS: o.files[PKEYS].replace(b"0x", b"0X", 1)}),
        "partitions.conf, line 1: its sha256 is not the one",
    ),
    "no partitions": (lambda o: o.drop("partitions.conf"), "partitions.conf missing"),
    "no tables": (lambda o: o.manifest["files"].pop("lfts"), "lfts missing"),
    "an extra file": (add("scripts.conf"), "'scripts.conf' is not a file of a set"),
    "an engine nobody has": (add("engines/x.conf"), "no step of chains.conf uses it"),
    "out of the directory": (add("../evil.conf"), "'../evil.conf' is not a file of a set"),
    "an engine out of it": (add("engines/../../evil.conf"), "is not a file of a set"),
    "an absolute name": (add("/etc/opensm/opensm.conf"), "is not a file of a set"),
    "a hidden name": (add(".told"), "'.told' is not a file of a set"),
    "the manifest itself": (add("manifest.json"), "'manifest.json' is not a file of a set"),
    "a renamed file": (rename("chains.conf", "chains.conf "), "'chains.conf ' is not a file"),
    "another fabric": (lambda o: o.describe(fabric="other"), "of fabric 'other', not of 'tiny'"),
    "a hostile fabric": (lambda o: o.describe(fabric="../tiny"), "of fabric '../tiny'"),
    "an older generation": (lambda o: o.describe(generation=6), "6 is older"),
    "no generation": (lambda o: o.describe(generation=True), "True is not a generation"),
    "a generation beyond the database's numbers": (
        lambda o: o.describe(generation=2**63),
        "9223372036854775808 is not a generation",
    ),
    "another form of chains": (lambda o: o.describe(chains="left out"), "a short line"),
    "lines of OpenSM's configuration in the manifest": (
        lambda o: omit_chains(o, "x\nevent_plugin_name evil\nlog_file /etc/cron.d/owned"),
        "a short line",
    ),
    "a reason of many words": (lambda o: omit_chains(o, "x" * 201), "a short line"),
    "the reason in OpenSM's configuration": (
        lambda o: omit_chains(o, "there are 50"),
        "opensm.conf, line 4: '# No routing chains: there are 50' is not",
    ),
    "a tenant's name that is none": (
        lambda o: o.manifest["tenants"].update({"x\n": {"depends": NEVER, "entries": NEVER}}),
        "tenants is a map",
    ),
    "more tenants than partition keys": (
        lambda o: o.manifest["tenants"].update(
            {f"t{n}": {"depends": NEVER, "entries": NEVER} for n in range(0x7FFF)}
        ),
        "tenants is a map",
    ),
    "more files than steps can have": (
        lambda o: o.manifest["files"].update({f"engines/{n}.conf": NEVER for n in range(200)}),
        "files is a map from names to sha256 with at most 159 names",
    ),
    "a checksum that is none": (
        lambda o: o.manifest["files"].update(lfts="x"),
        "'x' is not a sha256",
    ),
    "entries that are not the manifest's": (lies_about_entries, "entries of tenant a.pod"),
    "a tenant without a partition": (
        lambda o: o.manifest["tenants"].update(x={"depends": NEVER, "entries": NEVER}),
        "its tenants are not those of the manifest",
    ),
    "a partition that no tenant has": (
        lambda o: o.manifest["tenants"].pop(WIDE.id),
        "its tenants are not those of the manifest",
    ),
    "everybody a full member": (
        lambda o: o.rewrite(
            "partitions.conf", o.files["partitions.conf"].replace(b"ALL=limited", b"ALL=full")
        ),
        "the first rule is not the default",
    ),
    "a fallback": (
        lambda o: o.rewrite(
            "opensm.conf", o.files["opensm.conf"].replace(b"file,no_fallback", b"file")
        ),
        "opensm.conf, line 2: 'routing_engine file' is not 'routing_engine file,no_fallback'",
    ),
    "files elsewhere": (
        lambda o: o.rewrite(
            "opensm.conf", o.files["opensm.conf"].replace(b"/lfts", b"/../other/lfts")
        ),
        r"\[opensm\] directory must be the same",
    ),
    "one more option": (
        lambda o: o.rewrite("opensm.conf", o.files["opensm.conf"] + b"event_plugin_name x\n"),
        "opensm.conf",
    ),
    "an index of other LIDs": (
        lambda o: o.rewrite(
            "guid_index.json", o.files["guid_index.json"].replace(b'"lid": 1\n', b'"lid": 2\n')
        ),
        "contradicts guid2lid",
    ),
    "nested too deeply": (
        lambda o: o.rewrite("guid_index.json", b"[" * 100_000),
        "cannot be parsed",
    ),
    "no text": (lambda o: o.rewrite("partitions.conf", b"\xff\xfe"), "cannot be parsed"),
    "an engine file elsewhere": (
        lambda o: o.rewrite("base.conf", b"root_guid_file /etc/passwd\n"),
        "base.conf, line 1: .* is not what this release writes",
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_refused_set_changes_nothing(offer, home, what):
    spoil, why = UNFIT[what]
    before = everything(home)
    spoil(offer)
    with pytest.raises((InvalidFile, Conflict), match=why):
        fetch_set(offer, home)
    assert everything(home) == before
    assert not (home.parent.parent / "evil.conf").exists()


def test_the_first_set_is_checked_too(tmp_path, home):
    offer = Offer(state(), tmp_path / "there", home)
    one_switch_less(offer)
    with pytest.raises(InvalidFile):
        fetch_set(offer, home)
    assert everything(home) == {}


def test_a_set_for_other_switches_is_refused(offer, home):
    before = everything(home)
    with pytest.raises(InvalidFile, match="none of its switches is in this fabric"):
        fetch_set(offer, home, switches={1, 2})
    assert everything(home) == before
    fetch_set(offer, home, switches={1, *offer.rows()})


def test_a_set_that_disturbs_an_unchanged_tenant_is_refused(home, tmp_path):
    """The tenant's entries differ, and the manifest has their true sha256."""
    fetch_set(Offer(state([POD, ONE]), tmp_path / "there", home), home)
    offer = Offer(state([POD, ONE], 8), tmp_path / "there", home)
    before = everything(home)
    lies_about_entries(offer)
    tables = [*parse.switch_tables([offer.files["lfts"]], "lfts")]
    lids = parse.guid2lid(offer.files["guid2lid"].decode(), "")
    members = [lids[guid] for guid in (0x2C90300000001, 0x2C90300000007)]
    prints = offer.manifest["tenants"][POD.id]
    prints["entries"] = entries(tables, members)
    with pytest.raises(Conflict, match=r"the entries of tenant a\.pod would change"):
        fetch_set(offer, home)
    assert everything(home) == before


def entries(tables, lids):
    digest = hashlib.sha256()
    for table in sorted(tables, key=lambda each: each.guid):
        digest.update(bytes(table.row.ljust(max(lids) + 1, b"\xff")[lid] for lid in lids))
    return digest.hexdigest()


def test_a_symbolic_link_among_the_files_is_refused(offer, home, monkeypatch):
    before = everything(home)
    write = fileset.write

    def linked(path, pieces):
        digest = write(path, pieces)
        if path.name == "guid2lid" and path.parent.name == ".draft":
            path.rename(home.parent / "elsewhere")
            path.symlink_to(home.parent / "elsewhere")
        return digest

    monkeypatch.setattr(fileset, "write", linked)
    with pytest.raises(InvalidFile, match="guid2lid, line 1: this is not a regular file"):
        fetch_set(offer, home)
    assert everything(home) == before


def test_a_full_disk_changes_nothing(offer, home, monkeypatch):
    before = everything(home)

    def full(path, pieces):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fileset, "write", full)
    with pytest.raises(OSError, match="No space"):
        fetch_set(offer, home)
    assert everything(home) == before


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"manifest": None, "sizes": {}, "parts": {}},
        {"manifest": [], "sizes": [], "parts": []},
    ],
)
def test_a_document_of_another_form_is_refused(home, document):
    offer = type("Nonsense", (), {"described": lambda self: document})()
    with pytest.raises(InvalidFile, match=r"manifest\.json"):
        fetch_set(offer, home)


@pytest.mark.parametrize(
    "sizes", [lambda s: s | {"lfts": 3}, lambda s: s | {"x": 1}, lambda s: s | {"guid2lid": "1"}]
)
def test_sizes_that_contradict_the_files_are_refused(offer, home, sizes):
    document = dict(offer.described())
    document["sizes"] = sizes(document["sizes"])
    offer.described = lambda: document
    with pytest.raises(InvalidFile):
        fetch_set(offer, home)


def test_a_file_is_not_read_beyond_its_size(offer, home):
    def endless(generation, name, start, size):
        while True:
            yield b"x" * 1000

    before = everything(home)
    offer.contents = endless
    with pytest.raises(InvalidFile, match="it is longer than"):
        fetch_set(offer, home)
    assert everything(home) == before


def test_a_set_without_chains_is_accepted(offer, home):
    omit_chains(offer, "manifest.json says why")
    offer.describe(chains=f"{fileset.OMITTED}routing chains hold 49 tenants with links (50; 51)")
    directory = fetch_set(offer, home)
    assert (
        "# No routing chains: manifest.json says why\n" in (directory / "opensm.conf").read_text()
    )


def test_a_fabric_with_a_path_as_name_is_refused(offer, home):
    before = everything(home.parent.parent)
    offer.describe(fabric="../tiny")
    with pytest.raises(InvalidFile, match="cannot be the name of a directory"):
        fetch.fetch_set(offer, home.parent, "../tiny", keep=3)
    assert everything(home.parent.parent) == before


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A valid set, and an empty directory to fetch it into."""
    directory = tmp_path_factory.mktemp("whole")
    home = directory / "here" / "tiny"
    return Offer(state(), directory / "there", home), home


HOSTILE = st.one_of(
    st.text(),
    st.text("abc ,;()\n\r\x85\u2028\u2066", max_size=300),
    st.sampled_from(
        [
            "x\nevent_plugin_name evil\nlog_file /etc/cron.d/owned\nrouting_engine minhop",
            *"\r\x00\x1b\x85\u2028\u2029\u202e",
        ]
    ),
)


def set_field(offer, field, text):
    if field == "omitted":
        omit_chains(offer, "manifest.json says why")
        offer.describe(chains=fileset.OMITTED + text)
    elif field == "omitted, and in the fragment":
        omit_chains(offer, text)
    elif field == "file":
        offer.rewrite(text, b"")
    elif field == "engine":
        offer.rewrite(f"engines/{text}.conf", b"")
    elif field == "sha256":
        offer.manifest["files"]["lfts"] = text
    elif field == "tenant":
        offer.manifest["tenants"][text] = {"depends": NEVER, "entries": NEVER}
    elif field in ("depends", "entries"):
        offer.manifest["tenants"][POD.id][field] = text
    else:
        offer.manifest[field] = text


def directives(fragment):
    """The directives of a fragment, for any definition of the end of a line."""
    return {line for line in fragment.splitlines() if line and not line.startswith("#")}


@settings(deadline=None, max_examples=200)
@given(
    field=st.sampled_from(
        [
            *("fabric", "generation", "chains", "omitted", "omitted, and in the fragment"),
            *("file", "engine", "sha256", "tenant", "depends", "entries"),
        ]
    ),
    text=HOSTILE,
)
@example(field="omitted, and in the fragment", text="x\nlog_file /etc/cron.d/owned")
@example(field="omitted", text="x\u2028y")
def test_no_text_of_a_manifest_reaches_the_configuration(whole, field, text):
    """The set is refused, or its fragment has the same directives as with any other text."""
    good, home = whole
    offer = Offer.__new__(Offer)
    offer.__dict__.update(
        manifest=json.loads(json.dumps(good.manifest)), files=dict(good.files), asked=[]
    )
    set_field(offer, field, text)
    try:
        fetch.fetch_set(offer, home.parent, "tiny", keep=0)
    except InvalidFile:
        return
    fragment = (home / "current" / "opensm.conf").read_text()
    shutil.rmtree(home)
    assert directives(fragment) == directives(good.files["opensm.conf"].decode())
    assert all(line.isascii() and line.isprintable() for line in offer.manifest["chains"])


@pytest.mark.parametrize("field", ["fabric", "generation", "chains", "file", "sha256"])
def test_a_refusal_is_one_short_line(offer, home, field):
    set_field(offer, field, "x\n\u2028\u202e" * 5000)
    with pytest.raises(InvalidFile) as refused:
        fetch_set(offer, home)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_any_changed_byte_is_refused(whole, data):
    """Bytes are flipped, cut, repeated or moved."""
    good, home = whole
    name = data.draw(st.sampled_from(sorted(good.files)))
    text = good.files[name]
    at = data.draw(st.integers(0, len(text) - 1))
    to = data.draw(st.integers(at + 1, len(text)))
    spoilt = data.draw(
        st.sampled_from(
            [
                text[:at] + bytes([text[at] ^ data.draw(st.integers(1, 255))]) + text[at + 1 :],
                text[:at],
                text[:at] + text[to:],
                text[:to] + text[at:],
                text[to:] + text[at:to] + text[:at],
                text[:at] + text[at:to][::-1] + text[to:],
            ]
        )
    )
    if spoilt == text:
        return
    offer = Offer.__new__(Offer)
    offer.__dict__.update(
        manifest=json.loads(json.dumps(good.manifest)), files=good.files | {name: spoilt}, asked=[]
    )
    with pytest.raises(LaasError):
        fetch_set(offer, home)
    assert everything(home) == {}


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_no_checksum_changes_the_entries_of_a_tenant(whole, data):
    """A byte of the tables changes, with a matching checksum: no tenant's entry changes."""
    good, home = whole
    text = bytearray(good.files["lfts"])
    text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    offer = Offer.__new__(Offer)
    offer.__dict__.update(
        manifest=json.loads(json.dumps(good.manifest)), files=dict(good.files), asked=[]
    )
    offer.rewrite("lfts", bytes(text))
    try:
        fetch.fetch_set(offer, home.parent, "tiny", keep=0)
    except InvalidFile:
        return
    lids = parse.guid2lid(good.files["guid2lid"].decode(), "")
    partitions = parse.partitions(good.files["partitions.conf"].decode(), "").partitions
    members = [lids[guid] for partition in partitions for guid in partition.members]
    current = parse.switch_tables(parse.file_pieces(home / "current" / "lfts"), "lfts")
    meant = {t.guid: t.row for t in parse.switch_tables([good.files["lfts"]], "lfts")}
    for table in current:
        assert [table.row[lid : lid + 1] for lid in members] == [
            meant[table.guid][lid : lid + 1] for lid in members
        ]
    (home / "current").unlink()


def test_the_golden_set_is_accepted(tmp_path):
    """The files in ``tests/golden``, for the directory that they were rendered for."""
    manifest = fileset.read_manifest(GOLDEN)
    tables = validate.check(GOLDEN, manifest, Path("/var/lib/laas/opensm/tiny/current"))
    assert len(tables) == len({table.guid for table in tables}) > 0
    other = replace(manifest, files=dict(manifest.files) | {"lfts": NEVER})
    with pytest.raises(InvalidFile, match="lfts, line 1: its sha256"):
        validate.check(GOLDEN, other, Path("/"))


# -- forms, and other pasts -------------------------------------------------------------


def test_a_set_of_a_service_of_the_release_before_is_taken_as_it_is(offer, home):
    """Until form 4 a manifest named neither its form nor a stamp."""
    del offer.manifest["form"], offer.manifest["stamp"]
    offer.describe(generation=9)
    fetch_set(offer, home)
    current = fileset.current(home.parent, "tiny")
    assert current is not None
    assert (current.form, current.stamp, current.generation) == (4, "", 9)
    assert json.loads((home / "current" / fileset.MANIFEST).read_text()) == offer.manifest
    before = everything(home)
    fetch_set(offer, home)
    assert everything(home) == before


@pytest.mark.parametrize("form", [3, 7, "5", True, None])
def test_a_form_that_the_agent_does_not_know_is_refused_with_the_way_out(offer, home, form):
    offer.describe(form=form, generation=9)
    with pytest.raises(InvalidFile, match="this agent knows 4, 5, 6: upgrade the agent"):
        fetch_set(offer, home)


def test_a_set_of_another_past_replaces_none_of_its_number(offer, home):
    offer.describe(generation=9, stamp="1" * 16)
    fetch_set(offer, home)
    offer.describe(stamp="2" * 16)
    with pytest.raises(Conflict, match="the database went back"):
        fetch_set(offer, home)
    offer.describe(generation=10)
    fetch_set(offer, home)
    current = fileset.current(home.parent, "tiny")
    assert current is not None
    assert current.stamp == "2" * 16
