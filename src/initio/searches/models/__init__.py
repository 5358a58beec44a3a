"""What searches learn with: Gaussian processes, encodings of architectures, a prior from metrics."""
