"""The entry point of every image."""

import sys

from harness.measure.driver import main

sys.exit(main())
