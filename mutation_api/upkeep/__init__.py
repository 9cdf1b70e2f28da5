"""Work on tables around the change sets: creating, examining, sweeping, reading their past."""
