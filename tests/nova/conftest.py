# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""Nova wants to be patched before anything else of it is imported."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")

from nova import monkey_patch

monkey_patch.patch(backend="threading")

from tests.marks import pytest_runtest_makereport as pytest_runtest_makereport  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _place_for_files(tmp_path_factory):
    """Made before Nova's fixtures move the directory for temporary files, and remove it."""
    return tmp_path_factory.getbasetemp()
