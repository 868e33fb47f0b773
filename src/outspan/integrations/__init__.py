"""Policies inside other training frameworks, and models for other programs. Each module is imported when it is used."""
