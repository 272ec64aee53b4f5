"""What is done once per installation: the plane's signing key, the first administrator's token."""
