"""`raftlog pipeline demo`: the jobs on real flights, while a broker and an executor are killed."""
