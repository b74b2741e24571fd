"""The entry point of every image."""

import faulthandler
import sys

from harness.driver.driver import main

# A crash by a signal leaves no exception: this writes its line to the job's log, where the host reads it.
faulthandler.enable(all_threads=False)
sys.exit(main())
