"""EC2 as a backend, and the account stack that both backends use."""
