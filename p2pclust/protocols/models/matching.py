"""The best one-to-one matching of a few rows with columns, in whole numbers: a peer loads no SciPy for it."""

from __future__ import annotations


def cheapest_matching(costs: list[list[int]]) -> list[int]:
    """Return a column for each row, no column twice, such that the costs have the smallest sum.

    The Hungarian method by shortest augmenting paths (Kuhn 1955, Munkres 1957). It takes rows**2 times columns steps of
    plain Python: meant for the clusters of a peer, not for hundreds. Raises ValueError if there are fewer columns than
    rows.

    - `costs`: at least as many columns as rows; any sign.

    >>> cheapest_matching([[1, 2, 9], [1, 4, 9]])
    [1, 0]
    """
    n, m = len(costs), len(costs[0]) if costs else 0
    if n > m:
        raise ValueError(f"{n} rows cannot have a column each: there are {m}")
    # Row and column 0 are the method's own.
    of_row, of_column = [0] * (n + 1), [0] * (m + 1)  # The potentials.
    matched = [0] * (m + 1)  # The row of each column.
    for row in range(1, n + 1):
        matched[0] = row
        _augment(costs, of_row, of_column, matched)
    columns = [0] * n
    for column in range(1, m + 1):
        if matched[column]:
            columns[matched[column] - 1] = column - 1
    return columns


def _augment(costs: list[list[int]], of_row: list[int], of_column: list[int], matched: list[int]) -> None:
    """Match one more row, the one that column 0 holds, along a shortest path of exchanges."""
    m = len(of_column) - 1
    column = 0
    slack: list[int | None] = [None] * (m + 1)
    came_from = [0] * (m + 1)
    seen = [False] * (m + 1)
    while matched[column]:
        seen[column] = True
        current, following, step = matched[column], 0, 0
        for j in range(1, m + 1):
            if seen[j]:
                continue
            cost = costs[current - 1][j - 1] - of_row[current] - of_column[j]
            known = slack[j]
            if known is None or cost < known:
                slack[j], came_from[j], known = cost, column, cost
            if following == 0 or known < step:
                following, step = j, known
        for j in range(m + 1):
            if seen[j]:
                of_row[matched[j]] += step
                of_column[j] -= step
            else:
                known = slack[j]
                slack[j] = None if known is None else known - step
        column = following
    while column:
        matched[column] = matched[came_from[column]]
        column = came_from[column]
