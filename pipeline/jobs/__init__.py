"""Programs that use the log as a user would."""
