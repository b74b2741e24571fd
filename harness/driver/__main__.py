"""The entry point of every image."""

import sys

from harness.driver.driver import main

sys.exit(main())
