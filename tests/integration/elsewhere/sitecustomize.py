"""Python starts with this where it is on its path: the host has the name that the environment says."""

import os
import socket

if "HARNESS_TEST_HOST" in os.environ:
    socket.gethostname = lambda: os.environ["HARNESS_TEST_HOST"]
