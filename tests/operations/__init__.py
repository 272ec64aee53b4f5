"""Operations: break glass, replicas, keys, what the operations pages tell to type."""
