"""One recorded forward pass, many backward passes."""
