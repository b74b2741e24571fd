"""Pages and pictures of docs/, made from the code and from shipped results."""

import os

# Pages show the prices that ship, not the ones that their author has fetched.
os.environ["HARNESS_PRICES"] = os.devnull
