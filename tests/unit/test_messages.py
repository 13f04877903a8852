# SPDX-License-Identifier: Apache-2.0

"""Bus documents have versions: a newer minor one is read, another major one is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service import messages
from laas_service.domain.errors import InvalidInput

WAKE = messages.document(messages.Wake())
NOTE = messages.Notification(
    id="1",
    event_type="isolated_network.allocation.create.start",
    at="2026-05-01T09:30:12+00:00",
    fabric="f",
    initiator=messages.Initiator("req-1", "alice", "blue"),
    allocation=messages.NotedAllocation("a", "name", "blue", "jigsaw", 4),
    host=None,
    link=None,
    old_state=None,
    new_state="allocating",
    reason="claimed 4 hosts",
    error=None,
)


def test_what_is_written_is_read():
    assert messages.read(messages.Wake, WAKE) == messages.Wake()
    assert messages.read(messages.Notification, messages.document(NOTE)) == NOTE


def test_parts_of_a_newer_minor_version_are_read_without_what_they_added():
    newer = messages.document(NOTE) | {"version": "1.1"}
    newer["allocation"] |= {"colour": "blue"}
    read = messages.read(messages.Notification, newer)
    assert read.allocation == NOTE.allocation
    assert read.version == "1.1"


def test_a_notification_of_an_older_minor_version_is_read():
    """After an upgrade the outbox still holds notifications of the older release."""
    older = messages.document(NOTE) | {"version": "1.0"}
    del older["drift"]
    read = messages.read(messages.Notification, older)
    assert (read.version, read.drift) == ("1.0", None)


@pytest.mark.parametrize("name", ["event_type", "initiator", "error"])
def test_a_field_that_is_missing_from_a_notification_is_named(name):
    document = messages.document(NOTE)
    del document[name]
    with pytest.raises(InvalidInput, match=name):
        messages.read(messages.Notification, document)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.99"])
def test_newer_minor_versions_are_read_without_what_they_added(version):
    newer = {**WAKE, "version": version, "added": {"since": version}}
    assert messages.read(messages.Wake, newer) == messages.Wake(version)


@pytest.mark.parametrize("version", ["2.0", "0.9", "10.0"])
def test_other_major_versions_are_refused(version):
    with pytest.raises(InvalidInput, match=rf"version: '{version}' .* this release reads 1\.0"):
        messages.read(messages.Wake, {**WAKE, "version": version})


@given(st.none() | st.integers() | st.text() | st.lists(st.text()))
def test_what_is_no_version_is_refused(version):
    major, _, minor = str(version).partition(".")
    if not (major == "1" and minor.isdecimal()):
        with pytest.raises(InvalidInput):
            messages.read(messages.Wake, {**WAKE, "version": version})


def test_a_missing_field_is_named():
    with pytest.raises(InvalidInput, match="version"):
        messages.read(messages.Wake, {})
