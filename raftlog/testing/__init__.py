"""Broker processes for tests: `with raftlog.testing.cluster() as cluster: cluster.bootstrap_servers`."""

from raftlog.testing.cluster import Cluster, cluster
from raftlog.testing.process import BrokerDied, BrokerProcess

__all__ = ["BrokerDied", "BrokerProcess", "Cluster", "cluster"]
