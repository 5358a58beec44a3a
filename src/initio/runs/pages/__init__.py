"""What a report shows: `subjects` read folders, `sections` and `summaries` tell of them, `report` makes the page."""
