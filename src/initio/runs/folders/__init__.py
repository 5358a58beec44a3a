"""What work leaves on disk: the folders of a run, a trained network, an ensemble and a study, each with its records."""
