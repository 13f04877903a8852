# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""All figures of this machine: ``python -m tests.bench``; each module also runs by itself."""

from tests.bench import constraints, ledger, load, looks, policies, rendering, stars

for part in (policies, constraints, ledger, rendering, stars, looks, load):
    part.main()
