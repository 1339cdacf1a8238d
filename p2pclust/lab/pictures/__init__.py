"""Pictures of results that estimators and reports share: rows and centers, memberships, rounds, and the fleet.

Each function draws into axes that it is given, or makes a figure without global state and without a window, and returns a
:class:`~p2pclust.lab.pictures.canvas.Drawing`. Matplotlib is in the extra ``plots``, so it is imported where it is needed.
"""
