"""What a change set is, whichever engine writes it: columns, addresses, order, summary; without Spark."""
