from __future__ import annotations

import sys
from pathlib import Path

# `communities` is shared with tests/protocols, `swarm_seeds` by the folders below; pytest's importlib mode puts no test
# folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent.parent / "protocols"))
sys.path.insert(0, str(Path(__file__).parent))
