"""Writers that append to one table at the same time."""
