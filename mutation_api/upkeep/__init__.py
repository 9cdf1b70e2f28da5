"""Work on tables besides change sets: creating, examining, sweeping, reading their past."""
