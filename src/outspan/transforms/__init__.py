"""The transforms: their table, their definition in torch, and the one executor."""
