from __future__ import annotations

from hypothesis import settings

# The same examples in every run, and no deadline on a machine that does other things as well.
settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")
