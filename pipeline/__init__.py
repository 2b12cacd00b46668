"""The place of the data pipeline on Spark, which is not written yet: a source, a sink and jobs."""
