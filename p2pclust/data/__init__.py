"""Data on its way to the peers: readers, the registry of data sets, and partitions of rows.

Only numpy is imported at module level, so that a running peer can read its file; scikit-learn is imported when one
of its built-in data sets is asked for, Pooch when one is fetched, pyarrow for Parquet, Matplotlib for a picture.
"""

from __future__ import annotations

from p2pclust.data.dataset import DataSet
from p2pclust.data.partition import SCHEMES, deal, split
from p2pclust.data.readers import read
from p2pclust.data.registry import BUILT_IN, load
from p2pclust.data.vertical import split_columns

__all__ = ["BUILT_IN", "SCHEMES", "DataSet", "deal", "load", "read", "split", "split_columns"]
