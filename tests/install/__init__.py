"""What an installation needs once, asked for as an operator or a hook of the chart asks."""
