"""A suite on EC2: which machines, what they cost, started, watched, brought home, and gone."""
