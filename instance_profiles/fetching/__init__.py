"""The parts of ``fetch_prices.py``."""
