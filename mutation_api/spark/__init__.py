"""Spark jobs and what they share: the session, the JVM, and the workers' credentials and errors."""
