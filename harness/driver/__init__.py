"""The half that runs inside an image: driver, clock, checks.  Standard library only."""
