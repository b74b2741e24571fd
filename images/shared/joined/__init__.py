"""Two systems in one envelope: each in its own process, asked one after the other."""
