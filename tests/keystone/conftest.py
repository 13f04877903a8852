# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""One real Keystone for all tests here, run by the Python that runs them."""

from __future__ import annotations

import pytest

from tests.servers.keystone import Keystone


@pytest.fixture(scope="session")
def keystone(tmp_path_factory):
    with Keystone(tmp_path_factory.mktemp("keystone")) as running:
        yield running
