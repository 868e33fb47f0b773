"""Measure the effect of augmentation: train several seeds, and separate the error of their vote from their disagreement."""
