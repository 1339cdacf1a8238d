"""Pictures of results that estimators and reports share: rows and centers, memberships, rounds, and the fleet.

Most functions return a :class:`~p2pclust.lab.pictures.drawing.Drawing`, an element of a page that axes of Matplotlib can
show, too. Matplotlib is in the extra ``plots``, so it is imported where it is needed.
"""
