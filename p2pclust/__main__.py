"""``python -m p2pclust`` is ``p2pclust``."""

from __future__ import annotations

from p2pclust.cli import main

if __name__ == "__main__":
    main()
