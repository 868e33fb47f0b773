"""The drill is a script and must not be collected for doctests: importing it changes how runs save."""

collect_ignore = ["drill.py", "ranks_drill.py"]
