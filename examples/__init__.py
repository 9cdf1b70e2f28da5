"""Small programs that show the library at work. Each runs alone, and a test runs each of them."""
