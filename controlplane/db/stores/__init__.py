"""Every query, one store per noun."""
