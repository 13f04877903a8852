# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""[laas]: where the service is for an agent beside OpenSM, and how to log in there."""

from __future__ import annotations

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = "laas"
OPTIONS: list[Any] = [
    *loading.get_auth_common_conf_options(),
    *loading.get_session_conf_options(),
    *loading.get_adapter_conf_options(include_deprecated=False),
]
cfg.set_defaults(
    OPTIONS,
    service_type="isolated-network",
    valid_interfaces=["internal", "public"],
    timeout=120,  # a large set is rendered when it is first asked for
)

LOGIN_OPTIONS: list[Any] = loading.get_auth_plugin_conf_options("password")
"""For the sample file; keystoneauth registers those of the auth_type that is chosen."""
