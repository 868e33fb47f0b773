"""The drill is a script, not a module to look for doctests in: it changes how runs save."""

collect_ignore = ["drill.py"]
