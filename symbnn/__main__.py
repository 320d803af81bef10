"""`python -m symbnn`: the command."""

import sys

from symbnn.command import main

sys.exit(main())
