"""The transforms of images: their table, their definitions in torch, and the executor of plans."""
