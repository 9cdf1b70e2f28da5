"""Random damage to everything that is read: :mod:`.kinds` lists what, :mod:`.children` runs it."""
