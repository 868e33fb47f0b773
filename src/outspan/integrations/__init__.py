"""Policies inside the training frameworks of others. Each module needs its framework and is imported when it is used."""
