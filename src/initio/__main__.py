"""`python -m initio` is `initio`."""

import sys

from initio.cli import main

sys.exit(main())
