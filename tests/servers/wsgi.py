# SPDX-License-Identifier: Apache-2.0

"""``python -P wsgi.py MODULE PORT``: serves an OpenStack service's WSGI module on loopback.

The interpreter of that service runs this file, so it imports nothing of this project. The
services parse ``sys.argv`` when they are imported, so this file clears it first. With ``-P``
they do not import modules of this directory by mistake.
"""

from __future__ import annotations

import importlib
import sys

THREADS = 8
CONNECTIONS = 2000
"""Limit of connections; waitress allows 100, but compute services keep theirs open."""


def main() -> None:
    module, port = sys.argv[1:]
    del sys.argv[1:]
    import waitress  # installed beside the service, not here

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
