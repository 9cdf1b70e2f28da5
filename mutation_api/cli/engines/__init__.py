"""What subcommands do by one engine or the other.

``<command>_by_<engine>`` is imported only when its engine was chosen; ``tasks`` says what they are given.
"""
