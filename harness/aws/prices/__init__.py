"""Fetch prices of EC2 into a new snapshot; the rest of harness only reads snapshots."""
