# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From training to a core set
#
# This notebook trains on the included digits, looks at what the policy chose, measures what each transform does, and finds a
# small set of transforms that is enough. It takes about a minute on two CPU cores. The file is `docs/notebook.py`: open it in
# Jupyter with [jupytext](https://jupytext.readthedocs.io).

# %%
import sys
import tempfile
from pathlib import Path

from IPython.display import Image

import outspan
from outspan.measurement.core import find_core_set

folder = Path(tempfile.mkdtemp())
keys = {"data": "digits", "model": "mlp", "batch": 64, "device": "cpu"}
names = ["rotate", "shear_x", "cutout", "invert"]

# %% [markdown]
# ## Train
#
# `uncertain` draws four candidates for each image and trains on the one with the highest loss.

# %%
summary = outspan.train(**keys, policy="uncertain", transforms=",".join(names), epochs=4, out=folder / "run")
summary

# %% [markdown]
# ## What was chosen?
#
# The candidates of some training images, their losses and the choice. Then how often each transform was chosen over the epochs.

# %%
# !{sys.executable} -m outspan candidates {folder}/run -o {folder}/candidates.png --count 4
Image(folder / "candidates.png")

# %%
# !{sys.executable} -m outspan compositions {folder}/run -o {folder}/chosen.png
Image(folder / "chosen.png")

# %% [markdown]
# ## Where is the model wrong?

# %%
outspan.evaluate(folder / "run")

# %% [markdown]
# ## What does each transform do?
#
# `measure` trains three models without augmentation, and three with each transform alone. The error is that of their vote. The
# interval tells whether the difference from the baseline is significant.

# %%
measurement = outspan.measure(**keys, epochs=3, transforms=names, seeds=3, out=folder / "measured")
measurement

# %% [markdown]
# ## The core set
#
# Add one transform at a time, always the one that lowers the error most. The core set is the shortest of these sets within 10 %
# of the lowest error.

# %%
core = find_core_set(**keys, epochs=3, transforms=names, seeds=3, out=folder / "measured")
core

# %% [markdown]
# `core.toml` is a recipe with these transforms. Train with it:

# %%
outspan.train(folder / "measured" / "core.toml", out=folder / "best", epochs=4)

# %% [markdown]
# Everything in one HTML page: `outspan report FOLDER`, or `outspan.report`. With so few seeds and epochs the differences are
# small; for a decision take 9 seeds.

# %%
outspan.report(folder).stat().st_size
