"""Pictures of results that estimators and reports share: rows and centers, memberships, rounds, and the fleet.

Most functions return a :class:`~p2pclust.lab.pictures.drawing.Drawing`, which is an element of a page, or is drawn on axes of
Matplotlib. Matplotlib is in the extra ``plots``, so it is imported where it is needed.
"""
