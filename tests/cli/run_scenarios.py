"""Every scenario on real processes, as `make scenarios` does it: a table of what held, and exit code 1 if something did not.

python -m tests.cli.run_scenarios [NAME...]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .stories import FOLDER, STORIES, Story, absent

OUT = Path("runs", "scenarios")


def main(names: list[str]) -> int:
    """Run the named scenarios, or all; return the exit code."""
    strangers = [name for name in names if name not in STORIES]
    if strangers:
        print(f"error: no scenario {strangers[0]}: expected some of {', '.join(STORIES)}", file=sys.stderr)
        return 2
    print(f"{'scenario':20} {'peers':>6} {'seconds':>8}  {'expected':9} {'exit':6} what did not hold")
    begun = time.monotonic()
    good = [_line(name, STORIES[name]) for name in names or STORIES]
    print(f"\n{sum(good)} of {len(good)} scenarios as they should be, after {time.monotonic() - begun:.0f} s")
    return 0 if all(good) else 1


def _line(name: str, story: Story) -> bool:
    """Run one, say how it went, and return whether that was as told."""
    file = FOLDER / f"{name}.toml"
    if why := absent(file):
        print(f"{name:20} {'-':>6} {'-':>8}  {'skipped':9} {'-':6} {why}", flush=True)
        return True
    out = ("--out", str(OUT / name), "--overwrite")
    command = [sys.executable, "-m", "p2pclust", "run", str(file), "--json", *out, *story.real]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begun
    (OUT / f"{name}.log").write_text(done.stderr, encoding="utf-8")
    result: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
    asked = result.get("expectations", [])
    missed = [f"{entry['what']} (found {entry['value']})" for entry in asked if not entry["held"]]
    missed += [f"never happened: {fault}" for fault in result.get("unfired_faults", [])]
    good = done.returncode == story.ends and (story.ends != 0 or not missed)
    if not result:
        missed = done.stderr.strip().splitlines()[-1:]
    held = f"{sum(entry['held'] for entry in asked)} of {len(asked)}"
    code = f"{done.returncode}" if good else f"{done.returncode} (!)"
    told = "" if good and story.ends == 0 else "; ".join(missed) or ("as it should" if good else "")
    print(f"{name:20} {len(result.get('peers', {})):6} {seconds:8.1f}  {held:9} {code:6} {told}".rstrip(), flush=True)
    return good


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    sys.exit(main(sys.argv[1:]))
