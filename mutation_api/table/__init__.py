"""What travels from the driver to the workers."""
