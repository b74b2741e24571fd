"""A process and its descendants, from ``/proc``."""

from __future__ import annotations

from pathlib import Path


def process_tree(root: int, proc: Path = Path("/proc")) -> list[int]:
    """Process ids, the root's first; what ends while we look may be missing."""
    pids, queue = [], [root]
    while queue:
        pid = queue.pop()
        pids.append(pid)
        try:
            for task in (proc / str(pid) / "task").iterdir():
                queue.extend(int(child) for child in (task / "children").read_text(encoding="ascii").split())
        except OSError:
            continue
    return pids
