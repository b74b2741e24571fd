"""Hardware profiles, instance types, dated prices, cost formulas."""
