# SPDX-License-Identifier: Apache-2.0

"""The trust boundary of the agent: whatever the API serves, root's OpenSM reads known options only.

An attacker with the API's account chooses every byte of the manifest and of the files, with
matching checksums.
"""

import copy
import hashlib
import json
import os
import re
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.messages import TenantRoute
from opensm_writer import fileset, validate
from opensm_writer.site import SiteSettings
from tests.offers import Offer
from tests.unit.opensm_writer.states import ONE, POD, WIDE, state

OPTIONS = {
    "routing_engine",
    "lfts_file",
    "partition_config_file",
    "part_enforce",
    "use_ucast_cache",
    "honor_guid2lid_file",
    "sweep_on_trap",
    "force_log_flush",
    "disable_multicast",
}
"""The options of OpenSM that an accepted fragment may set."""

SITE_OPTIONS = {
    "m_key",
    "m_key_protection_level",
    "m_key_lease_period",
    "m_key_lookup",
    "m_key_per_port",
    "sm_key",
    "sa_key",
    "sm_priority",
    "sminfo_polling_timeout",
    "polling_retry_number",
    "allowed_sm_guids",
    "sa_enhanced_trust_model",
    "sa_etm_max_num_mcgs",
    "sa_etm_max_num_srvcs",
    "sa_etm_max_num_event_subs",
    "virt_enabled",
}
"""The options of OpenSM that site settings may add, where OpenSM runs."""

HOSTILE = [
    "x\nevent_plugin_name evil\nlog_file /etc/cron.d/owned\nrouting_engine minhop",
    "omitted: x\nevent_plugin_name evil",
    "omitted: x\r\nlog_file /etc/cron.d/owned",
    "omitted: \u2028event_plugin_name evil",
    "omitted: x\x85log_file y",
    "omitted: x\x0blog_file y",
    "omitted: \0",
    "omitted: # \x1b[2J",
    "included\n",
    " included",
    "../../../etc/opensm/opensm.conf",
    "..",
    "/etc/cron.d/owned",
    "engines/../../x.conf",
    "a.pod\n",
    "-rf",
    "$(id)",
    "\u202egnp",
    "\uff10" * 64,
    "0" * 63 + "\n",
    "",
    True,
    -1,
    2**63,
    1e9,
    None,
    [],
    {},
    [["included"]],
    {"lfts": "x"},
]
ANY = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=80),
    st.integers(),
    st.floats(),
    st.none(),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
)


@pytest.fixture(scope="module", autouse=True)
def no_power_cut():
    """Skip fsync, because these tests write many files and simulate no power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("here") / "tiny" / "current"


@pytest.fixture(scope="module")
def offer(tmp_path_factory, home):
    return Offer(state(generation=8), tmp_path_factory.mktemp("there"), home.parent)


def places(value, path=()):
    """The paths of all values in a document, and of the keys of its maps."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, "key of", key)
            yield from places(item, (*path, key))


def changed(document, path, value):
    """The document with another value at a path, or with another key."""
    if not path:
        return value
    document = copy.deepcopy(document)
    at, rename = document, len(path) > 1 and path[-2] == "key of"
    for key in path[: -2 if rename else -1]:
        at = at[key]
    if rename:
        at[value if isinstance(value, str) else repr(value)] = at.pop(path[-1])
    else:
        at[path[-1]] = value
    return document


def texts(value):
    """All texts in a manifest, with the keys of its maps."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)


def outcome(check):
    """What a check returns, and its refusal; one of them is None."""
    try:
        return check(), None
    except InvalidFile as error:
        return None, error


def check_manifest(document):
    """Refused in one printable line, or of texts that are names, sha256, or one short line."""
    manifest, error = outcome(lambda: validate.manifest(document, "tiny"))
    if manifest is None:
        assert str(error).isprintable()
        return
    assert document["fabric"] == manifest.fabric == "tiny"
    assert 1 <= manifest.generation <= validate.MAX_GENERATION
    for text in texts(json.loads(fileset.text(manifest))):
        assert re.fullmatch(r"[A-Za-z0-9._/-]{1,120}|omitted: [A-Za-z0-9 .,;()-]{1,200}", text)
        assert ".." not in text.split("/")


@given(data=st.data(), value=ANY)
def test_every_field_of_a_manifest_has_a_grammar(offer, data, value):
    path = data.draw(st.sampled_from([*places(offer.manifest), ("more",)]))
    check_manifest(changed(offer.manifest, path, value))


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_hostile_values_are_refused_in_every_field(offer, value):
    for path in places(offer.manifest):
        check_manifest(changed(offer.manifest, path, value))


FILES = ["lfts", "guid2lid", "partitions.conf", "opensm.conf", "guid_index.json", "cabling"]
FILES += ["port_groups.conf", "topologies.conf", "chains.conf", "base.conf", "base.roots"]
LINES = [
    "event_plugin_name evil\n",
    "log_file /etc/cron.d/owned\n",
    "\u2028event_plugin_name evil",
    "\x0b",
    "\x85",
    "\r",
    " ",
    "\t",
    "\u0661",
    "\uff11",
    "+",
    "_",
    "0",
    "/..",
    "../",
    "#",
    ", indx0",
    ", ipoib",
    ", sl=15",
    "engine: ",
    "minhop",
]


def check_files(offer, files, directory, home, **options):
    """Write the files and check them; the set that was accepted."""
    manifest = copy.deepcopy(offer.manifest)
    for name, data in files.items():
        fileset.write(directory / name, [data])
        manifest["files"][name] = hashlib.sha256(data).hexdigest()
    validate.check(directory, validate.manifest(manifest, "tiny"), home, **options)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("fetched")


def test_the_set_itself_is_accepted_with_the_known_options_alone(offer, directory, home):
    assert set(FILES) <= offer.files.keys()
    check_files(offer, offer.files, directory, home)
    lines = offer.files["opensm.conf"].decode().splitlines()
    assert {line.split()[0] for line in lines if not line.startswith("#")} == OPTIONS


@given(data=st.data())
def test_site_settings_add_known_options_and_numbers_alone(offer, home, data, tmp_path_factory):
    key = tmp_path_factory.getbasetemp() / "key"
    key.write_text("0x1b\n")
    key.chmod(0o600)
    values: dict[str, Any] = {}
    for name, kind in get_type_hints(SiteSettings).items():
        if name == "allowed_sm_guids":
            values[name] = tuple(data.draw(st.lists(st.integers(1, 2**64 - 1), max_size=16)))
        elif kind == bool | None:
            values[name] = data.draw(st.booleans())
        elif kind == int | None:
            values[name] = data.draw(st.integers(-5, 2**17))
        elif name != "directory":
            values[name] = key
    try:
        site = SiteSettings(home, **values)
    except InvalidInput:
        return
    fragment = offer.files["opensm.conf"].decode()
    lines = "".join(site.configuration(fragment)).removeprefix(fragment).split("\n")
    assert lines.pop(0).startswith("# ")
    assert lines.pop() == ""
    for line in lines:
        assert re.fullmatch(
            r"[a-z_]{1,30} (TRUE|FALSE|\d{1,9}|0x[0-9a-f]{16}(,0x[0-9a-f]{16})*)", line
        )
        assert len(line) < 1000
    assert {line.split()[0] for line in lines} <= SITE_OPTIONS
    assert not OPTIONS & SITE_OPTIONS


@given(data=st.data(), more=st.sampled_from(LINES) | st.text(min_size=1, max_size=12))
def test_text_that_is_put_into_a_file_is_refused(offer, directory, home, data, more):
    """All bytes of all files are known; only the comment with a switch's name is free."""
    name = data.draw(st.sampled_from(FILES))
    content = offer.files[name]
    at = data.draw(st.integers(0, min(len(content), 4000)))
    altered = content[:at] + more.encode("utf-8", "replace") + content[at:]
    if re.sub(rb"\('[ -&(-~]*'\)", b"", altered) == re.sub(rb"\('[ -&(-~]*'\)", b"", content):
        return
    files = {**offer.files, name: altered}
    _, error = outcome(lambda: check_files(offer, files, directory, home))
    if error is not None:
        assert str(error).isprintable()
        return
    assert name == "guid_index.json"  # which no OpenSM reads
    index = json.loads(altered)
    keys = {*index, *index["hosts"]} - {"hosts"}
    assert all(re.fullmatch(r"([0-9/]+|[a-z0-9]+:[0-9]+:[0-9]+)", key) for key in keys)


REFUSED = {
    "flags of a partition": ("partitions.conf", b", defmember", b", sl=15, defmember"),
    "a key with the bit of full members": ("partitions.conf", b"=0x02d2", b"=0x8407"),
    "the default partition's key": ("partitions.conf", b"=0x02d2", b"=0x7fff"),
    "another engine": ("chains.conf", b"engine: updn", b"engine: minhop"),
    "a file elsewhere": ("chains.conf", b"/base.conf", b"/../../../../etc/base.conf"),
    "a number of another script": ("chains.conf", b"id: 1\n", "id: \u0661\n".encode()),
    "a line that only Python ends": ("port_groups.conf", b"\nname", b"\x0bname"),
    "a group that is no name": ("port_groups.conf", b"name: laas-", b"name: laas "),
    "records out of order": ("guid2lid", None, None),
}


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_say_more_than_this_release_writes_are_refused(offer, directory, home, what):
    name, old, new = REFUSED[what]
    content = offer.files[name]
    if old is None:
        altered = b"".join(f"{record}\n\n".encode() for record in reversed(records(content)))
    else:
        assert old in content
        altered = content.replace(old, new)
    with pytest.raises(InvalidFile) as refused:
        check_files(offer, {**offer.files, name: altered}, directory, home)
    assert refused.value.source == name


def records(guid2lid):
    return guid2lid.decode().split("\n\n")[:-1]


def test_the_engine_of_a_tenant_that_moves_is_accepted_where_chains_are_enforced(home, tmp_path):
    moved = replace(WIDE, groups=(WIDE.groups[0], *ONE.groups, *WIDE.groups[2:]))
    links = replace(WIDE, groups=(), columns=())
    moving = replace(state([POD]), tenants=(TenantRoute(WIDE, 0x100, moved, bridge=links),))
    made, fetched = Offer(moving, tmp_path, home.parent, enforcement="chains"), tmp_path / "fetched"
    assert b"engine: minhop" in made.files["chains.conf"]
    check_files(made, made.files, fetched, home, enforcement="chains")
    base = made.files["chains.conf"].replace(b"engine: updn", b"engine: minhop")
    files = {**made.files, "chains.conf": base}
    with pytest.raises(InvalidFile, match="minhop"):
        check_files(made, files, fetched, home, enforcement="chains")
