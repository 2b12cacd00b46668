"""Records that Kafka keeps in its own topics, and what members of a group exchange: one module per subject."""
