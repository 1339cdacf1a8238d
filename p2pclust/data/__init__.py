"""Data on its way to the peers: readers, the registry of data sets, and partitions of rows.

Names are imported when they are first used, so that a running peer loads only what reads its file. scikit-learn is imported
when one of its built-in data sets is asked for, and pyarrow for Parquet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust.data.dataset import DataSet
    from p2pclust.data.partition import SCHEMES, deal, split, split_columns
    from p2pclust.data.readers import read
    from p2pclust.data.registry import BUILT_IN, load

__all__ = ["BUILT_IN", "SCHEMES", "DataSet", "deal", "load", "read", "split", "split_columns"]

__getattr__, __dir__ = lazy_names(
    __name__, dataset="DataSet", partition="SCHEMES deal split split_columns", readers="read", registry="BUILT_IN load",
)  # fmt: skip
