"""Tungsten Replicator's staging files for Hadoop."""
