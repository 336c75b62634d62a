"""What a study found, as tables, figures and verdicts on claims. Reads results folders and measures nothing."""
