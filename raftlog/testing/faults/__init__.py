"""Faults for tests: what goes wrong is a file in the cluster's directory, which brokers and proxies look at when told.

`Kafka.faults` is where tests begin (`faults.py`); docs/TESTING.md tells it to people.
"""
