"""The formats of messages: what a tool means by them."""
