"""The domain: graphs, clusters, problems, plans, their cost. Knows no solver and no framework."""

__all__: list[str] = []
