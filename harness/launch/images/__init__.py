"""Docker images: what decides them, whether they are there, and how they are made.

A build gets everything in its context (wheels, assets, code, driver) and runs without network.
"""
