"""Reports: results on disk in, one self-contained HTML page out."""
