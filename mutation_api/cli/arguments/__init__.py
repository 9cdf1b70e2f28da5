"""Arguments that several subcommands share, and the objects made from them."""
