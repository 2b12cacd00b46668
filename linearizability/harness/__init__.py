"""The fault suite: workloads through real clients against real brokers, faults, and a verdict.

See docs/VERIFICATION.md.
"""
