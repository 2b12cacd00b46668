"""Jobs on real data, each a module that `raftlog pipeline run NAME` and `spark-submit` start. See docs/PIPELINE.md."""
