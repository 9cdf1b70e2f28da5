"""What subcommands do by one engine or the other; a module is imported only when its engine was chosen."""
