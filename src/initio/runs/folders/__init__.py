"""What work leaves on disk: a run, a trained network, an ensemble, a study and a solved task, each with its records."""
