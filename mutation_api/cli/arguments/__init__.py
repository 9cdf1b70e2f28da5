"""Arguments that several subcommands share, and what they become."""
