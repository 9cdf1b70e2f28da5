"""File systems and object stores, behind one protocol."""
