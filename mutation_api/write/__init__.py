"""From a change set to staged files: rules for changes, coordinators, and the engine without Spark."""
