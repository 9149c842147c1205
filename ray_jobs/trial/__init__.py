"""One attempt at one seed: what it takes of the cluster, what it is told, and what it died of."""
