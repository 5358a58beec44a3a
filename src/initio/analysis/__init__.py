"""What finished results say: correlations, bounds."""
