"""All tables; importing this package registers every one of them on `Base.metadata`."""
