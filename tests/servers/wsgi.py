# SPDX-License-Identifier: Apache-2.0

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
