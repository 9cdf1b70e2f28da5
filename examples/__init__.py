"""Small programs that show the library at work; each runs alone, and each is run by a test."""
