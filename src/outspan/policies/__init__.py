"""Proposals draw plans; policies choose among them and return training batches."""
