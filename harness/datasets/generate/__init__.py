"""Generated collections; ``kinds`` has what ``harness generate`` writes."""
