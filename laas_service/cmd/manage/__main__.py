# SPDX-License-Identifier: Apache-2.0

import sys

from laas_service.cmd.manage import main

sys.exit(main())
