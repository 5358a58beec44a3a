"""What finished results say: correlations, bounds, topology; and what an architecture is, computed."""
