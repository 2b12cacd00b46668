"""A year of flights through three brokers whose leaders are killed, and the books balanced afterwards."""
