"""The checker over histories that are too large for one process: `raftlog check --spark`, see docs/PIPELINE.md."""
