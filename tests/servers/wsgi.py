# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""``python -P wsgi.py MODULE PORT``: serves an OpenStack service's WSGI module on loopback.

Run by the Python that has the service; knows nothing of this project. The services
parse ``sys.argv`` when they are imported, so it is cleared before; with ``-P`` they do not
meet the modules beside this file.
"""

from __future__ import annotations

import importlib
import sys

THREADS = 8
CONNECTIONS = 2000
"""waitress stops accepting at 100 by default; compute services keep theirs open."""


def main() -> None:
    module, port = sys.argv[1:]
    del sys.argv[1:]
    import waitress  # its Python, not ours

    application = importlib.import_module(module).application
    waitress.serve(
        application,
        host="127.0.0.1",
        port=int(port),
        threads=THREADS,
        connection_limit=CONNECTIONS,
    )


if __name__ == "__main__":
    main()
