"""What many tests share: waiting with a bound, databases of their own."""
