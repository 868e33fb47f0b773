"""What an augmentation does to a model: k seeds are trained, and what changes is split into error and instability."""
