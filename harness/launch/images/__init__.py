"""Docker images of engines and systems: catalogue, recipes, assets and builds.

A build gets all inputs in its context (wheels, assets, code, driver) and runs without network.
"""
