# SPDX-License-Identifier: Apache-2.0

"""``python -m laas_doctor``, as the command does."""

import sys

from laas_doctor import main

if __name__ == "__main__":
    sys.exit(main())
