"""The promises that stored rows can break, as queries that find nothing; one family per file."""
