"""pipeplan: which layers of a network go on which GPU, and how many copies of each."""

__version__ = "0.1.0"
__all__ = ["__version__"]
