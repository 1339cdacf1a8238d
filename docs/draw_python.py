"""Draw docs/python-plots.png, the pictures of docs/python.md: python docs/draw_python.py."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot
from PIL import Image
from sklearn.datasets import load_iris

from p2pclust import LosslessFuzzyCMeans

X = load_iris().data
options = {"n_clusters": 3, "n_peers": 6, "scaling": "minmax", "random_state": 1}
here = LosslessFuzzyCMeans(**options).fit(X)  # its rounds, too, are known
fleet = LosslessFuzzyCMeans(**options, fleet="simulated").fit(X)

figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
here.plot_centers(X, ax=axes[0, 0])
here.plot_memberships(X, ax=axes[0, 1])
here.plot_convergence(X, ax=axes[1, 0])
fleet.plot_overlay(ax=axes[1, 1])
figure.set_dpi(80)
figure.canvas.draw()
# With a palette the file is a third as large.
picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB").quantize(256)
picture.save(Path(__file__).with_name("python-plots.png"), optimize=True)
