from __future__ import annotations

from importlib.util import find_spec

# It imports cosmic-ray, which only `make mutants` installs; pytest looks for examples in every module.
collect_ignore = [] if find_spec("cosmic_ray") else ["sample.py"]
