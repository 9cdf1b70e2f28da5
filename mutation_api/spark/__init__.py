"""Spark jobs, and what they share: session, JVM, workers' credentials and errors."""
