"""Small checkpoints that stand in for published ones: of exactly their format, trained for a minute or random."""
