# SPDX-License-Identifier: Apache-2.0

"""Prints a picture as a file: ``PYTHONPATH=doc/ext:. python -m drawings NAME``."""

import sys

from drawings import PICTURES, svg

if sys.argv[1:] in ([name] for name in PICTURES):
    print(svg(sys.argv[1], alone=True))
else:
    sys.exit(f"usage: python -m drawings {'|'.join(PICTURES)}")
