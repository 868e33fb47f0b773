"""Fast backends: they execute the same plans and return the same bytes as the definitions in torch."""
