"""How a benchmark measures, reports and draws."""
