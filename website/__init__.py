"""The documentation site: its settings, and the pages that are made from the code."""
