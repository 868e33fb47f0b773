"""Proposals draw plans; policies pick among them."""
